"""`sub hash`: the args_hash of a JSON object, as every shim computes it (§1.9)."""

from __future__ import annotations

import sys
from typing import Any

import click

from subluminal.cli.render.output import print_json
from subluminal.contracts.canonical import DuplicateKeyError, digest, read_args
from subluminal.contracts.errors import CanonicalError, UsageError
from subluminal.reports.printable import printable

EPILOG = """\b
Examples:
  echo '{"branch":"main","force":false}' | sub hash
  sub hash args.json
  sub hash --canonical args.json      the bytes that are hashed
  sub hash --json args.json
"""
FORMS = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}


@click.command("hash", epilog=EPILOG)
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the hash and the canonical form.")
@click.option("--canonical", is_flag=True, help="Print the canonical bytes, with no newline added, not the hash.")
def hash_command(file: str, as_json: bool, canonical: bool) -> None:
    """Print the args_hash of the JSON object in FILE, or on standard input.

    Two spellings of the same arguments (order of keys, white space, escapes, 1.0 for 1) have the same hash.
    """
    if as_json and canonical:
        raise UsageError("--json and --canonical exclude each other.", hint="--json prints the canonical form as well.")
    form = _canonical_object(file)
    if canonical:
        sys.stdout.buffer.write(form)
        sys.stdout.buffer.flush()
    elif as_json:
        print_json({"args_hash": digest(form), "canonical": form.decode(), "bytes": len(form)})
    else:
        print(digest(form))


def _canonical_object(file: str) -> bytes:
    where = "standard input" if file == "-" else printable(file)
    try:
        value, form = read_args(_read(file, where))
    except DuplicateKeyError as error:
        hint = f'The key is "{printable(error.key[:60])}". Which one counts differs from parser to parser: remove one.'
        raise CanonicalError(f"{where}: {error}", kind=error.kind, hint=hint) from None
    except CanonicalError as error:
        raise CanonicalError(f"{where}: {error}", kind=error.kind, hint=error.hint) from None
    if not isinstance(value, dict):
        raise CanonicalError(
            f"{where}: tool call arguments are a JSON object, not {_form(value)}.",
            kind="invalid_value",
            hint='Give an object, such as {"path": "notes.md"}.',
        )
    return form


def _form(value: Any) -> str:
    form = FORMS.get(type(value), "number")
    return form if form == "null" else f"an {form}" if form == "array" else f"a {form}"


def _read(file: str, where: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        with open(file, "rb") as stream:
            return stream.read()
    except OSError as error:
        hint = "Give a file, or - for standard input."
        raise UsageError(f"{where} cannot be read: {error.strerror}.", hint=hint) from None

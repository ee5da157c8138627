"""Secrets written out in clients' files: pointing them out, and keeping them off the screen."""

from __future__ import annotations

import re

from subluminal.clients.document import Document
from subluminal.clients.spans import Edit, apply, walk
from subluminal.host.secrets.addresses import address_fault, secret_parts
from subluminal.host.secrets.credential_names import is_credential_name

_SHAPE = re.compile(
    r"sk-[A-Za-z0-9_-]{16}|gh[pousr]_[A-Za-z0-9]{16}|github_pat_|glpat-|xox[abeprs]-|AKIA[0-9A-Z]{16}|"
    r"AIza[0-9A-Za-z_-]{30}|eyJ[A-Za-z0-9_-]{8,}\.eyJ|-----BEGIN [A-Z ]*PRIVATE KEY|"
    r"[a-z][a-z0-9+.-]{0,20}://[^/\s:@]{0,200}:[^/\s@]{3,200}@|(?i:bearer) \S{12}"
)
# `${VAR}`, `$VAR`, `${input:key}`, `{env:VAR}`, `%VAR%`, `secretref:...`: a name, not a value.
_REFERENCE = re.compile(
    r"\$\{[^}]*\}|\$\w+|\{(env|file):[^}]*\}|%\w+%|<[^>]*>|[a-z]+ref:\S+|(sub|op|vault|secret)://\S+"
)
_NO_VALUE = re.compile(r"\s*(?:(?i:bearer|basic|token)\s*)?")  # what a reference leaves of a header
# The beginning shows the shape; a hostile file must not make the search long.
_MAX_LOOKED_AT = 4096
_MASK = '"********"'


def looks_secret(name: str, value: str) -> bool:
    """A literal that looks like a secret, by the shape of the value or by the name it stands under."""
    value = value[:_MAX_LOOKED_AT]
    if not value or _NO_VALUE.fullmatch(_REFERENCE.sub("", value)):
        return False
    if _SHAPE.search(value) or _is_secret_address(value):
        return True
    plain_words = value.lower() in ("true", "false", "none", "null") or value.isdigit() or value.startswith(("/", "~"))
    return is_credential_name(name) and len(value) >= 6 and not plain_words


def _is_secret_address(value: str) -> bool:
    return value.startswith("http") and address_fault(value) is None and bool(secret_parts(value))


def masked_diff(path: str, dialect: str, before: str, after: str) -> str:
    """A unified diff in which nothing that looks like a secret can be read, wherever in the file it stands."""
    old, new = (_masked(Document(text, dialect)).splitlines(keepends=True) for text in (before, after))
    from difflib import unified_diff

    lines = unified_diff(old, new, path, path)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _masked(document: Document) -> str:
    edits = []
    for key, node in walk(document.root):
        if looks_secret(key, node.value) or len(node.value) > _MAX_LOOKED_AT:
            edits.append(Edit(node.start, node.end, _MASK))
    return apply(document.text, edits)

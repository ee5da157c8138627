"""The C part against its twins: whatever it takes, they take as well and in the same sense.

    python tests/fuzz/fuzz_native.py [--count N] [--seed S] [--variant plain|portable|sanitized] [--into DIRECTORY]

Builds the extension of its own, into DIRECTORY or a temporary one, and works through N texts of each kind. `portable`
has no SIMD; `sanitized` runs under the address and undefined-behaviour sanitizers of the compiler, with every object of
Python in memory of its own, so that a look one byte too far ends the run.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.native_tables import Step

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
VARIANTS = {"plain": (), "portable": ("-DSUB_PORTABLE",), "sanitized": SANITIZERS}
KINDS = ("call", "reply", "arguments", "plain", "credentials", "preview", "hashed", "event", "state")
LIMIT = 100  # bytes of a preview


def built(variant: str, into: str) -> str:
    """The path of an extension; BuildError is the builder's own."""
    build = runpy.run_path(str(ROOT / "src" / "subluminal" / "native" / "build.py"))["build"]
    path: str = build(into, VARIANTS[variant])
    return path


def loaded(path: str) -> Any:
    loader = ExtensionFileLoader("_core", path)
    spec = spec_from_file_location("_core", path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


class Differ:
    """`core`: the functions in C. The package itself must run on its twins: SUB_CORE=py."""

    def __init__(self, core: Any, seed: int) -> None:
        from harness.native_tables import Tables
        from harness.native_texts import Texts
        from subluminal.contracts.canonical import read_args
        from subluminal.contracts.digest import sha256_hex
        from subluminal.contracts.errors import CanonicalError
        from subluminal.core.emit import emitter
        from subluminal.core.redact.prefilter import may_hold_credential
        from subluminal.core.redact.preview import _quote, previewer
        from subluminal.core.redact.redactor import Redactor, _has_no_shape, _shapes
        from subluminal.mcp.message.exact import read_object
        from subluminal.mcp.message.reading import CALL, TOOLS_CALL, Reading, Reply
        from subluminal.mcp.message.wire import is_plain_result, read_message, read_reply
        from subluminal.native.chosen import NAME

        assert NAME == "py", "a twin would be compared with itself"
        self.core, self.texts, self.taken = core, Texts(seed), Counter[str]()
        self._read_message, self._read_object, self._read_reply = read_message, read_object, read_reply
        self._is_plain_result, self._read_args, self._quote = is_plain_result, read_args, _quote
        self._may_hold, self._search, self._has_no_shape = may_hold_credential, _shapes().search, _has_no_shape
        self._fault = CanonicalError
        self._bound_call = core.bound("read_call", read_message, Reading, CALL, TOOLS_CALL)
        self._bound_reply = core.bound("read_reply", read_reply, Reply)
        self._bound_quote = core.bound("quote", _quote)
        self._sha256_hex, self._bound_hash = sha256_hex, core.bound("sha256_hex", sha256_hex)
        self._start, self._bound_start = emitter._start, core.bound("filled", left, emitter.pieces_of(emitter._start))
        self._tables = Tables(core)
        # One that looks for shapes alone, and those for whom nothing may be shown without a look of theirs.
        redactors = (Redactor(), Redactor(["word"]), Redactor(patterns=[("own", "lorem")]))
        self._previews = [
            (previewer(LIMIT, one), core.bound("preview", left, LIMIT, one, "only_shapes")) for one in redactors
        ]

    def compare(self, count: int) -> None:
        for kind in KINDS:
            make, check = getattr(self.texts, kind), getattr(self, kind)
            for _ in range(count):
                self.taken[kind] += checked(kind, check, make())

    def compare_corpora(self) -> None:
        """What other tests send past a reader, and the encodings in which they look for secrets."""
        from harness import hostile
        from harness.secret_corpus import encodings, random_secret

        for line in hostile.table():
            for check in (self.call, self.reply, self.arguments, self.credentials):
                checked("hostile", check, line)
        for _ in range(100):
            for _, text, _ in encodings(random_secret(self.texts.rng), self.texts.rng):
                checked("encoded secret", self.credentials, text)

    def call(self, text: bytes) -> bool:
        found = self.core.read_call(text)
        bound, twin = self._bound_call(text), self._read_message(text)
        assert all(getattr(bound, name) == getattr(twin, name) for name in MEMBERS)
        if found is None:
            return False
        for reading in (self._read_message(text), self._read_object(text)):
            assert (reading.kind, reading.ambiguous, reading.raw) == ("call", None, text)
            assert (reading.id_raw, reading.tool_name, reading.arguments, reading.meta) == found
            assert reading.method == "tools/call" and reading.request_state is None
        return True

    def reply(self, text: bytes) -> bool:
        found = self.core.read_reply(text)
        reply, bound = self._read_reply(text), self._bound_reply(text)
        assert (reply is None) == (bound is None)
        if found is None:
            return False
        assert (bound.id_raw, bound.result, bound.error, bound.ends_well) == found
        assert reply is not None
        assert (reply.id_raw, reply.result, reply.error) == found[:3]
        if found[3]:
            assert self._is_plain_result(reply.result or b"")
        return True

    def arguments(self, text: bytes) -> bool:
        found = self.core.read_args(text)
        if found is None:
            return False
        value, canonical = self._read_args(text)
        assert repr(value) == repr(found[0])  # types and order, not only equality
        assert canonical == found[1]
        return True

    def plain(self, text: str) -> bool:
        found = self.core.quote(text)
        assert found is None or found == self._quote(text)
        assert self._bound_quote(text) == self._quote(text)
        return found is not None

    def preview(self, data: bytes) -> bool:
        """Shown as it stands, or left to the twin: by whoever looks for more than shapes, always."""
        (twin, shown), *others = self._previews
        for _, other in others:
            assert other(data) is LEFT
        found = shown(data)
        assert found is LEFT or found == twin(data)
        return found is not LEFT

    def hashed(self, data: bytes | bytearray) -> bool:
        found = self.core.sha256_hex(data)
        assert found is None or found == self._sha256_hex(data)
        assert self._bound_hash(data) == self._sha256_hex(data)
        return found is not None

    def event(self, values: list[str | int]) -> bool:
        """Of a template: filled in as its twin does it, or left to it."""
        found = self._bound_start(*values)
        assert found is LEFT or found == self._start(*values)
        return found is not LEFT

    def state(self, step: Step) -> bool:
        """Processes that share a run's state: the same file to the byte, and the same entries, with and without C."""
        return self._tables.same_after(step)

    def credentials(self, data: bytes) -> bool:
        """The same answer, and never "no" where the shapes match."""
        found = self.core.may_hold_credential(data)
        assert found == self._may_hold(data)
        if self._search(data) is not None:
            assert found and not self._has_no_shape(data)
        return not found


LEFT = object()
MEMBERS = ("kind", "raw", "id_raw", "tool_name", "arguments", "meta", "method", "request_state", "ambiguous")


def left(*_: object) -> object:
    return LEFT


def checked(kind: str, check: Callable[[Any], bool], text: Any) -> bool:
    try:
        return check(text)
    except Exception as error:
        raise AssertionError(f"{kind}: {text!r}") from error


def in_its_own_process(arguments: argparse.Namespace, path: str) -> int:
    """With the twins, and under the sanitizers where they are asked for."""
    environ = {**os.environ, "SUB_CORE": "py"}
    if arguments.variant == "sanitized":
        found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
        environ |= {
            "LD_PRELOAD": found.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
            "PYTHONMALLOC": "malloc",
        }
    command = [sys.executable, __file__, "--count", str(arguments.count), "--seed", str(arguments.seed)]
    return subprocess.run([*command, "--extension", path], env=environ, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="texts of each kind")
    parser.add_argument("--seed", type=int, default=20_261_117)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--into", help="where the extension is put")
    parser.add_argument("--extension", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.extension is None:
        with tempfile.TemporaryDirectory() as directory:
            return in_its_own_process(arguments, built(arguments.variant, arguments.into or directory))
    differ = Differ(loaded(arguments.extension), arguments.seed)
    differ.compare_corpora()
    differ.compare(arguments.count)
    shares = {kind: round(differ.taken[kind] / arguments.count, 3) for kind in KINDS}
    print(f"{arguments.count} texts of each kind, seed {arguments.seed}: no difference. Taken by C: {shares}")
    # A comparison of nothing would find nothing.
    return 0 if min(shares.values()) > 0.2 and max(shares.values()) < 0.999 else 1


if __name__ == "__main__":
    sys.exit(main())

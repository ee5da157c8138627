"""Coverage-guided fuzzing of the reading of client lines: `make fuzz` (FUZZ_SECONDS=60).

Two properties. Nothing crashes the reader or the scan. And what is let through under a policy that denies one tool is
not run as that tool by any of the harness's spies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

with atheris.instrument_imports(include=["subluminal.mcp", "subluminal.adapters.stdio", "harness.spies"]):
    from harness import hostile
    from harness.engine import rule, tools
    from harness.exchange import Talk, scanned
    from harness.spies import SCAN_SPIES, SPIES, tools_run
    from subluminal.mcp.message.reading import AMBIGUOUS, CALL

DENY = rule("no-danger", "deny", tools(hostile.TOOL))


def let_through(line: bytes) -> bytes:
    talk = Talk(DENY)
    out = b"".join(message + b"\n" for side, message in talk.client(line) if side == "server")
    talk.server(line)
    return out


def let_through_scanned(line: bytes, step: int) -> bytes:
    reading = scanned(line, step)
    denied = reading.kind == AMBIGUOUS or (reading.kind == CALL and reading.tool_name == hostile.TOOL)
    return b"" if denied else line + b"\n"


def one_input(data: bytes) -> None:
    step, line = 1 + (data[0] if data else 0), data[1:].replace(b"\n", b" ")
    for out, spies in ((let_through(line), [*SPIES]), (let_through_scanned(line, step), SCAN_SPIES)):
        if out:
            for spy in spies:
                if hostile.TOOL in tools_run(spy, out):
                    raise AssertionError(f"{spy} would run {hostile.TOOL}: {out!r}")


def write_corpus(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate(hostile.table()):
        if len(line) < 2000:
            (directory / f"seed-{number}").write_bytes(b"\x3d" + line)


if __name__ == "__main__":
    corpus = Path(sys.argv[1])
    write_corpus(corpus)
    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[2:]], one_input)
    atheris.Fuzz()

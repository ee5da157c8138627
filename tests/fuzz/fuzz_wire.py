"""Coverage-guided fuzzing of the reading of client lines: `make fuzz` (FUZZ_SECONDS=60).

Two properties. Nothing crashes the reader or the scan. And what is let through under a policy that denies one tool is
not run as that tool by any of the harness's spies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

with atheris.instrument_imports(include=["subluminal.mcp", "harness.spies"]):
    from harness import hostile
    from harness.engine import compiled, rule, tools
    from harness.spies import SCAN_SPIES, SPIES, tools_run
    from subluminal.contracts.identity import Identity, Source
    from subluminal.core.engine.stack import Engine, Stack
    from subluminal.core.engine.state import LocalState
    from subluminal.core.gate.gate import Gate
    from subluminal.core.redact.redactor import Redactor
    from subluminal.mcp.exchange import Session
    from subluminal.mcp.message import wire
    from subluminal.mcp.message.scan import MessageScan

IDENTITY = Identity("run")
STACK = Stack([Engine(compiled(rule("no-danger", "deny", tools(hostile.TOOL))), IDENTITY)])


def let_through(line: bytes) -> bytes:
    gate = Gate(IDENTITY, Source("h", "p", "s"), STACK, LocalState(), Redactor([], []))
    session = Session(gate, "server")
    session.client_line(line, 1_700_000_000_000, 1_000_000)
    session.announce(1_700_000_000_000)
    session.server_line(line, 1_700_000_000_000, 2_000_000)
    session.settle(1_700_000_000_000, 2_000_000, 2_000_000)
    return b"".join(session.to_server)


def scanned(line: bytes, step: int) -> bytes:
    scan = MessageScan()
    for start in range(0, len(line), step):
        scan.feed(line[start : start + step])
    scan.finish()
    reading = wire.read_scan(scan)
    denied = reading.kind == wire.AMBIGUOUS or (reading.kind == wire.CALL and reading.tool_name == hostile.TOOL)
    return b"" if denied else line + b"\n"


def one_input(data: bytes) -> None:
    step, line = 1 + (data[0] if data else 0), data[1:].replace(b"\n", b" ")
    for out, spies in ((let_through(line), [*SPIES]), (scanned(line, step), SCAN_SPIES)):
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

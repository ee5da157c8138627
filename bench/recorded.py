"""Journal lines as a shim writes them: calls judged by a real gate under the guardrails policy, about 800 bytes each.

Every argument and result is drawn anew (seeded), so that hashes and previews differ as they do in life: a repeated line
would deflate to nothing, and its index entries would stand side by side.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

POLICY = Path(__file__).resolve().parent / "guardrails.yaml"
BASE_MS = 1_700_000_000_000
TOOLS = [f"{verb}_{noun}" for verb in ("read", "list", "search", "get") for noun in ("file", "issue", "branch", "page")]
_SYLLABLES = (
    "ka",
    "lo",
    "mi",
    "ten",
    "vi",
    "del",
    "for",
    "get",
    "pass",
    "key",
    "turn",
    "im",
    "self",
    "null",
    "path",
    "name",
)


def words(chance: random.Random, size: int) -> str:
    """Text with about the entropy of source code."""
    text = ""
    while len(text) < size:
        text += "".join(chance.choices(_SYLLABLES, k=3)) + chance.choice((" ", " ", "_", "(", ") ", ".", " = "))
    return text[:size]


def calls(
    run_id: str, shim_id: str, count: int, seed: int, server_name: str = "tools", trouble: float = 0.0
) -> Iterator[bytes]:
    """The events of a whole run: `run_start`, then three lines per call at a time, then `run_end`.

    `trouble`: the share of calls that are refused, and that of those that fail."""
    from subluminal.contracts.identity import Identity, Source
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.engine.state import LocalState
    from subluminal.core.gate.gate import Gate
    from subluminal.core.redact.redactor import Redactor
    from subluminal.producer.policies import PolicyWatch

    chance = random.Random(seed)
    workload = {"user": "ann", "repo_path": "/home/ann/work/project", "repo_branch": "main"}
    identity = Identity(run_id, "repo-fixer", "claude", "dev", "ann", workload)
    source = Source("7f0c1a52-9d3e-4b8a-8c1f-2e6d5b4a3c21", f"{chance.getrandbits(48):012x}", shim_id)
    stack = PolicyWatch(os.environ, "/", str(POLICY), identity).stack
    gate = Gate(identity, source, stack, LocalState(), Redactor(()))
    now = BASE_MS + seed
    gate.open(now, now)
    yield gate.take()
    for number in range(1, count + 1):
        now += chance.randrange(1, 20)
        path = "src/" + words(chance, 20).replace(" ", "/")
        args = b'{"path":"%s","n":%d,"content":"%s"}' % (path.encode(), number, words(chance, 200).encode())
        luck = chance.random() if trouble else 1.0
        tool = "delete_file" if luck < trouble else chance.choice(TOOLS)
        call = ToolCall(server_name, tool, args, len(args) + 90, "mcp_stdio")
        record = gate.judge(call, now, now)
        gate.announce(record, now)
        if luck < trouble:
            gate.settle_refused(record, now, now, 200)
            yield gate.take()
            continue
        status, error = ("ERROR", {"class": "upstream_error"}) if luck < 2 * trouble else ("OK", None)
        latency = chance.randrange(1, 40)
        result = b'{"content":[{"type":"text","text":"%s"}]}' % words(chance, 300).encode()
        overhead = chance.randrange(20, 90)
        done = now + latency
        gate.settle(
            record,
            status,
            done,
            done,
            latency_ms=latency,
            bytes_out=len(result),
            result_raw=result,
            error=error,
            overhead_us=overhead,
        )
        yield gate.take()
    gate.close("SUCCEEDED", now + 100, now + 100)
    yield gate.take()

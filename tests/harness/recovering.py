"""Runs with refusals and what their agents did next: scripted, and at random."""

from __future__ import annotations

import random
from typing import Any

from harness.ledger import EventMaker

ERROR = {"class": "policy_block", "message": "refused"}
STOPPED = {"summary": "Stopped.", "reason_code": "RUN_TERMINATED"}


class Run:
    """One run that a shim sees, and a hook as well where a call says so."""

    def __init__(self, name: str) -> None:
        self.shim, self.hook = EventMaker(name, f"shim-{name}"), EventMaker(name, f"hook-{name}")
        self.lines = [self.shim.run_start()]

    def call(
        self,
        tool: str,
        args: str,
        action: str = "ALLOW",
        *,
        use_id: str | None = None,
        twice: bool = False,
        **decided: Any,
    ) -> Run:
        """`twice`: the hook lets through what the shim then decides."""
        context = {} if use_id is None else {"call_context": {"claudecode/toolUseId": use_id}}
        said = {"args_hash": args * 64, **context}
        if twice:
            self.hook.ms = max(self.hook.ms, self.shim.ms)
            self.lines += [self.hook.start(tool, transport="hook", **said), self.hook.decision()]
        self.lines += [self.shim.start(tool, transport="mcp_stdio", **said), self.shim.decision(action, **decided)]
        self.lines.append(self.shim.end() if action == "ALLOW" else self.shim.end("ERROR", error=ERROR))
        if twice:
            self.hook.ms = self.shim.ms
            self.lines.append(self.hook.end("OK" if action == "ALLOW" else "CANCELLED"))
        return self

    def ended(self, status: str = "SUCCEEDED") -> Run:
        self.lines.append(self.shim.run_end(status))
        return self


def scripted() -> dict[str, tuple[Run, tuple[int, int]]]:
    """Runs, and of each what was corrected and what counts."""
    return {
        "corrected": (Run("corrected").call("push", "a", "BLOCK").call("push", "b").ended(), (1, 1)),
        "half": (
            Run("half")
            .call("push", "a", "BLOCK")
            .call("push", "b", rule_id="other")
            .call("write", "a", "BLOCK", rule_id="no-writes")
            .ended(),
            (1, 2),
        ),
        "never": (Run("never").call("push", "a", "BLOCK").call("log", "a").ended(), (0, 1)),
        "open": (Run("open").call("push", "a", "BLOCK").call("log", "a"), (0, 0)),
        "open, corrected": (Run("open, corrected").call("push", "a", "BLOCK").call("push", "b"), (1, 1)),
        "waited": (Run("waited").call("push", "a", "THROTTLE").call("push", "a").ended(), (1, 1)),
        "nothing refused": (Run("nothing refused").call("push", "a").ended(), (0, 0)),
        "stopped": (
            Run("stopped").call("push", "a", "BLOCK", rule_id=None, explain=STOPPED).ended("TERMINATED"),
            (0, 0),
        ),
        "two doors": (
            Run("two doors")
            .call("push", "a", "BLOCK", use_id="use-1", twice=True)
            .call("push", "b", use_id="use-2", twice=True)
            .ended(),
            (1, 1),
        ),
        "promoted": (
            Run("promoted")
            .call("push", "a", "BLOCK")
            .call("push", "a", explain={"summary": "Let through.", "reason_code": "PROMOTED"})
            .ended(),
            (0, 0),
        ),
    }


def at_random(name: str, chance: random.Random) -> Run:
    run = Run(name)
    for number in range(chance.randrange(2, 40)):
        action = chance.choice(["ALLOW", "ALLOW", "BLOCK", "REJECT_WITH_HINT", "THROTTLE"])
        decided = {} if action == "ALLOW" else {"rule_id": chance.choice(["r1", "r2", None])}
        use_id = chance.choice([None, f"use-{number}", "use-again"])
        twice = use_id is not None and chance.random() < 0.5
        run.call(chance.choice(["push", "log"]), chance.choice("abc"), action, use_id=use_id, twice=twice, **decided)
    return run if chance.random() < 0.3 else run.ended(chance.choice(["SUCCEEDED", "FAILED"]))

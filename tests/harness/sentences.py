"""The table of sentences (`tests/language/sentences`): what a person says, the policy that says it, and calls.

A case is one call, or a list of calls that follow each other. In `pass` every call goes through; in `refuse` the last
one does not, and those before it do. `repeat` is the same call several times: of a refused one, the last time.

Paths: `~` is a home made for the table and `$HOME` its name; the repository `$ROOT` is ~/work/app, where the server
stands.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from harness import places
from subluminal.contracts.canonical import CanonicalError, read_args
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.identity import Identity
from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack, Verdict
from subluminal.core.engine.state import WIDE, LocalState
from subluminal.host.places import ThisMachine

TABLE = places.ROOT / "tests" / "language" / "sentences"
MAX_LINES = 12
MORE_THAN_LOOKED_AT = 1_001
HEAD = {
    "policy_id": "policy_id: sentence",
    "version": 'version: "1"',
    "mode": "mode: guardrails",
    "defaults": "defaults: {decision_on_error: BLOCK}",
    "selectors": "selectors: {}",
}
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Step(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One call. What is left out of `action`, `reason`, `tags` and `would` is not compared."""

    call: str  # server/tool
    args: dict[str, Any] = {}
    fill: dict[str, int] = {}  # arguments of so many characters
    many: dict[str, Any] = {}  # arguments that are lists of more elements than are looked at
    action: str | None = None
    reason: str | None = None
    tags: list[str] | None = None
    would: str | None = None
    tricky: str | None = None  # the trick, where the call is written to get past the rule
    time: str = "12:00"  # of the day, UTC, at the start of the case
    after: str = "0s"  # since the start of the case
    repeat: int = 1
    every: str = "0s"
    run: str = "one"
    identity: dict[str, Any] = {}
    risk_class: list[str] = []
    unlisted: bool = False  # the server has not listed the tool
    status: str = "OK"
    latency: str = "0s"
    cwd: str = "$ROOT"
    leg: int = 1


class Sentence(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    sentence: str
    policy: str
    passes: list[Step | list[Step]] = msgspec.field(name="pass", default_factory=list)
    refuse: list[Step | list[Step]] = []

    @property
    def cases(self) -> list[tuple[list[Step], bool]]:
        return [(_steps(case), True) for case in self.passes] + [(_steps(case), False) for case in self.refuse]

    @property
    def source(self) -> bytes:
        """The whole bundle: what the policy does not say itself is said by the HEAD."""
        members = yaml.safe_load(self.policy)
        if isinstance(members, list):
            indented = "".join(f"  {line}\n" for line in self.policy.splitlines())
            return "\n".join([*HEAD.values(), f"rules:\n{indented}"]).encode()
        return "\n".join([*(text for name, text in HEAD.items() if name not in members), self.policy]).encode()


def _steps(case: Step | list[Step]) -> list[Step]:
    return case if isinstance(case, list) else [case]


def table() -> dict[str, list[Sentence]]:
    return {
        path.stem: msgspec.yaml.decode(path.read_bytes(), type=list[Sentence])  # libyaml's reader: many times quicker
        for path in sorted(TABLE.glob("*.yaml"))
    }


class World:
    """The directories that the table speaks of."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.root = self.home / "work" / "app"
        for name in (".git", "src", "build", "tmp", "tests", "node_modules/a", "artifacts", "outbox"):
            (self.root / name).mkdir(parents=True)
        (self.home / ".ssh").mkdir()
        (self.root / "link-out").symlink_to(directory)
        (self.root / "keys").symlink_to(self.home / ".ssh")
        (self.root / "build" / "link-src").symlink_to("../src")
        (self.root / "link-root").symlink_to("/")
        (self.root / "loop").symlink_to("loop")
        self.environ = {"HOME": str(self.home)}

    def path(self, text: str) -> str:
        return text.replace("$ROOT", str(self.root)).replace("~", str(self.home), 1)


class Story:
    """The calls of one case: runs, their states, and one machine that outlives them."""

    def __init__(self, snapshot: dict[str, Any], world: World) -> None:
        self._snapshot = snapshot
        self._world = world
        self._states: dict[str, LocalState] = {}
        self._machine = LocalState()

    def tell(self, step: Step) -> list[Verdict]:
        """The verdict of every repetition."""
        raw = json.dumps(_filled(step, self._world), ensure_ascii=False).encode()
        stack, state = Stack([self._engine(step)]), self._state(step.run)
        start = epoch_ms(f"2026-01-05T{step.time}:00Z")
        verdicts = []
        for number in range(step.repeat):
            at = milliseconds(step.after) + number * milliseconds(step.every)
            verdict = self._judge(stack, state, step, raw, start + at, 1_000_000 + at)
            if verdict.decision.action == "ALLOW":
                latency = milliseconds(step.latency)
                stack.settle(verdict.watch, step.status == "OK", latency, state, 1_000_000 + at + latency)
            verdicts.append(verdict)
        return verdicts

    def _judge(self, stack: Stack, state: LocalState, step: Step, raw: bytes, wall_ms: int, mono_ms: int) -> Verdict:
        server, _, tool = step.call.partition("/")
        call = ToolCall(server, tool, raw, len(raw), leg=step.leg, continues="call-1" if step.leg > 1 else None)
        call.risk_classes = None if step.unlisted else frozenset(step.risk_class)
        try:
            value, canonical = read_args(raw)
        except CanonicalError:  # too large to be looked into, as at the gate
            value, canonical, call.args_raw_hash = None, b"", sha256_hex(raw)
        digest = "" if value is None else sha256_hex(canonical)
        return stack.judge(call, lambda: value, lambda: digest, state, wall_ms, mono_ms)

    def _engine(self, step: Step) -> Engine:
        identity = Identity(step.run, **step.identity)
        machine = ThisMachine(self._world.environ, self._world.path(step.cwd), run_id="sentences")
        return Engine(self._snapshot, identity, machine)

    def _state(self, run: str) -> LocalState:
        if run not in self._states:
            state = self._states[run] = LocalState()
            state.pools[WIDE:] = self._machine.pools[WIDE:]
        return self._states[run]


def _filled(step: Step, world: World) -> dict[str, Any]:
    """The arguments of the call. `~` stays: to read it is the rule's work, or the server's."""
    args = json.loads(json.dumps(step.args).replace("$ROOT", str(world.root)).replace("$HOME", str(world.home)))
    args |= {key: "x" * length for key, length in step.fill.items()}
    return dict(args | {key: [element] * MORE_THAN_LOOKED_AT for key, element in step.many.items()})


def milliseconds(duration: str) -> int:
    number, unit = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)", duration).groups()  # type: ignore[union-attr]
    return int(number) * _MILLISECONDS[unit]


def differences(case: list[Step], passes: bool, story: Story) -> list[str]:
    """What was decided otherwise than the case says, one line each."""
    found = []
    for number, step in enumerate(case, 1):
        *before, last = story.tell(step)
        refused = not passes and number == len(case)
        wrong = [verdict.decision.action for verdict in before if refused and verdict.decision.action != "ALLOW"]
        wanted = step.action or ("BLOCK" if refused else "ALLOW")
        facts: list[tuple[str, Any, Any]] = [
            ("action", wanted, last.decision.action),
            ("action of an earlier repetition", "ALLOW", wrong[0] if wrong else "ALLOW"),
            ("reason", step.reason, last.decision.reason_code),
            ("tags", step.tags, last.tags),
            ("would", step.would, last.decision.would.action if last.decision.would else None),
        ]
        found += [
            f"call {number} ({step.call} {json.dumps(step.args)[:120]}): {what} should be {told}, is {real}"
            f" ({last.decision.reason_code}, {last.decision.rule_id})"
            for what, told, real in facts
            if told is not None and told != real
        ]
    return found

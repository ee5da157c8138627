"""An adapter under test: start it with a policy, call tools, read what the client got and what was recorded.

    with adapter.start(Setting(place, policy, tools=["search"], arguments=["q"])) as session:
        outcome = session.call("search", {"q": 1})
        outcome.action, outcome.message, outcome.data
    session.executed, session.events.events()         after the block the run has ended and every event is written

A test never asks which adapter it has: it says what it needs (`adapter.need(...)`), and the adapter has declared what
it lacks.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.sink import EventFile
from subluminal.contracts.vocabulary import ERROR_CODES

CODE_TO_ACTION = {code: action for action, code in ERROR_CODES.items()}

# What not every adapter has.
ENVIRONMENT = "identity from the environment"
TOOL_FAILURES = "tools that fail by themselves"

Policy = str | Path | dict[str, Any]


def compact(arguments: Any) -> str:
    """As clients write them."""
    return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True)
class Outcome:
    """What the client got for one call: the tool's own answer, or a refusal in the words of its own protocol."""

    code: int | None = None
    message: str = ""
    data: dict[str, Any] = field(default_factory=dict)  # what programs are told, contract C
    failed: bool = False  # the tool ran, and said that it failed

    @property
    def action(self) -> str:
        return "ALLOW" if self.code is None else CODE_TO_ACTION[self.code]


@dataclass(frozen=True)
class Setting:
    place: Path  # an empty directory for this run alone
    policy: Policy  # a file, a bundle, or a name of tests/fixtures/policies
    server_name: str = "linear"
    tools: Iterable[str] = ()
    failing: Mapping[str, str] = field(default_factory=dict)  # more tools, which fail with that text
    arguments: Iterable[str] = ()  # all names that tools take
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_tools(self) -> dict[str, str | None]:
        """Each tool, and what it fails with."""
        return {**dict.fromkeys(self.tools), **self.failing}


class Session(ABC):
    """One run. The context manager that made it stops it."""

    events: EventFile

    @property
    @abstractmethod
    def executed(self) -> list[str]:
        """The tools that were really carried out, in order."""

    @abstractmethod
    def call_text(self, tool: str, arguments: str) -> Outcome:
        """Call with arguments as this JSON text spells them, or as a parser reads it where the adapter gets values."""

    def call(self, tool: str, arguments: Any = None) -> Outcome:
        return self.call_text(tool, compact({} if arguments is None else arguments))


class Adapter(ABC):
    name: str
    transport: str  # as events tell it
    lacks: Mapping[str, str] = {}  # a capability: why this adapter cannot have it

    def need(self, capability: str) -> None:
        """Skips the test where the adapter has declared that it cannot do this."""
        if capability in self.lacks:
            import pytest  # here, because servers in other environments import this module too

            pytest.skip(f"{self.name}: {self.lacks[capability]}")

    @abstractmethod
    def start(self, setting: Setting) -> AbstractContextManager[Session]:
        """A run in this setting; left behind, it has ended."""

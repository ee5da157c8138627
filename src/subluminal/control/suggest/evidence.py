"""What runs did, counted: tools, their arguments, the values of these, each with the distinct runs that used it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

# Beyond this many different texts of one argument the rest are counted without being kept: no set or tree is made of
# so many, and shapes are settled long before.
MAX_VALUES = 50_000
MAX_DEPTH = 3
MAX_ELEMENTS = 200
MAX_KEYS = 100


class Call(Struct, eq=False):
    """A call with general arguments (`tokens`). `learn`: it ended well, as far as is known, and was let through."""

    server_name: str
    tool_name: str
    args: dict[str, Any]
    size: int
    at_ms: int
    learn: bool = True


class Run(Struct, eq=False):
    run_id: str
    origin: str
    started_ms: int
    calls: list[Call]


class Values(Struct, eq=False):
    """The values of one argument: texts, numbers and booleans, each with its calls and runs."""

    calls: int = 0
    runs: set[int] = field(default_factory=set)
    texts: dict[str, list[Any]] = field(default_factory=dict)  # text -> [calls, runs]
    numbers: dict[float, list[Any]] = field(default_factory=dict)
    truths: dict[bool, set[int]] = field(default_factory=dict)
    nulls: set[int] = field(default_factory=set)

    def add(self, value: Any, run: int) -> None:
        self.calls += 1
        self.runs.add(run)
        if isinstance(value, bool):
            self.truths.setdefault(value, set()).add(run)
        elif isinstance(value, str):
            _count(self.texts, value, run)
        elif isinstance(value, (int, float)):
            _count(self.numbers, value, run)
        else:
            self.nulls.add(run)


def _count(counted: dict[Any, list[Any]], value: Any, run: int) -> None:
    known = counted.get(value)
    if known is None:
        if len(counted) < MAX_VALUES:
            counted[value] = [1, {run}]
        return
    known[0] += 1
    known[1].add(run)


class Tool(Struct, eq=False):
    server_name: str
    tool_name: str
    calls: int = 0
    per_run: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)  # run -> its largest
    keys: dict[str, Values] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)  # top-level key -> calls that have it
    key_runs: dict[str, set[int]] = field(default_factory=dict)  # top-level key -> runs that gave it

    def add(self, call: Call, run: int) -> None:
        self.calls += 1
        self.per_run[run] = self.per_run.get(run, 0) + 1
        self.sizes[run] = max(self.sizes.get(run, 0), call.size)
        for key, given in call.args.items():
            self.present[key] = self.present.get(key, 0) + 1
            self.key_runs.setdefault(key, set()).add(run)
            for path, value in scalars(escaped(key), given, 1):
                values = self.keys.get(path)
                if values is None:
                    if len(self.keys) >= MAX_KEYS:
                        continue
                    values = self.keys[path] = Values()
                values.add(value, run)


def escaped(key: str) -> str:
    """A name as one step of a path of `match.args`."""
    return key.replace("\\", "\\\\").replace(".", "\\.").replace("[", "\\[")


def scalars(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        if depth < MAX_DEPTH:
            for key, item in value.items():
                if key:
                    yield from scalars(f"{path}.{escaped(key)}", item, depth + 1)
    elif isinstance(value, list):
        for item in value[:MAX_ELEMENTS]:
            yield from scalars(path + "[]", item, depth + 1)
    else:
        yield path, value


class Evidence:
    """Everything that some runs did."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.tools: dict[tuple[str, str], Tool] = {}
        self.runs = 0
        self.calls = 0
        self.calls_per_run: dict[int, int] = {}
        self.memo: dict[Any, Any] = {}  # what was found out about it: drafts differ in a few widths only
        for number, run in enumerate(runs):
            self.runs += 1
            for call in run.calls:
                if not call.learn:
                    continue
                self.calls += 1
                self.calls_per_run[number] = self.calls_per_run.get(number, 0) + 1
                name = call.server_name, call.tool_name
                tool = self.tools.get(name)
                if tool is None:
                    tool = self.tools[name] = Tool(*name)
                tool.add(call, number)


def kth_largest(values: Iterable[float], k: int) -> float | None:
    """What at least `k` runs reached; None: fewer runs."""
    ordered = sorted(values, reverse=True)
    return ordered[k - 1] if len(ordered) >= k else None

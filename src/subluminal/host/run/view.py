"""What the state of a run, or of the scopes that outlive runs, says: counters, their limits, and who used them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from subluminal.contracts.errors import UsageError
from subluminal.core.engine.sliding import Sliding
from subluminal.core.engine.state import KEYED, MARK, RUN, WINDOW, StateUnavailable
from subluminal.host.home import wide_state_file
from subluminal.host.run.files import boot_id, salt_of, state_path
from subluminal.host.run.state import open_file, replace_file, wide_time
from subluminal.host.run.table import Table


class Counter(NamedTuple):
    """One entry that has a name. `used_by`: for a wide scope, the calls of each run."""

    policy_id: str
    rule_id: str
    kind: str
    scope: str
    of: str | None
    used: dict[str, int]
    limits: dict[str, int]
    used_by: dict[str, int]


class StateView(NamedTuple):
    """`unnamed` is how many marks and windows there are: of these only digests are kept."""

    path: str
    calls: int
    terminated: bool
    counters: list[Counter]
    unnamed: dict[str, int]
    damage: str | None


_LIMITS = ("limit_calls", "limit_cost_units", "capacity", "window_ms")


def run_state(run_id: str) -> StateView | None:
    return _view(state_path(run_id), lambda table: time.monotonic_ns() // 1_000_000)


def wide_state() -> StateView | None:
    return _view(wide_state_file(), lambda table: wide_time(table, boot_id()))


def _view(path: str, clock: Callable[[Table], int]) -> StateView | None:
    """None: there is no such file. Looks without the lock, at what stood at some moment."""
    try:
        _, fd, damage = open_file(path, "", create=False)
    except OSError:
        return None
    table = Table(fd, salt_of(fd))
    try:
        if damage is None:
            table.read()
            entries, labels = table.all(), table.labels()
            unnamed = {"marks": 0, "windows": 0}
            for _, pool, _ in entries:
                if pool in (MARK, WINDOW):
                    unnamed["marks" if pool == MARK else "windows"] += 1
            calls = table.calls + table.plain_calls
            ended = bool(table.killed or table.terminated)
            return StateView(path, calls, ended, _counters(entries, labels, clock(table)), unnamed, None)
    except StateUnavailable as unavailable:
        damage = str(unavailable)
    finally:
        table.close()
    return StateView(path, 0, False, [], {}, damage)


def _counters(
    entries: list[tuple[bytes, int, tuple[int, ...]]], labels: dict[bytes, str], now_ms: int
) -> list[Counter]:
    named: list[tuple[dict[str, Any], tuple[int, ...]]] = []
    for key, pool, values in entries:
        try:
            label = json.loads(labels.get(key, "null"))
        except ValueError:
            continue
        if isinstance(label, dict) and pool in (RUN, KEYED):
            named.append((label, values))
    users: dict[tuple[str, ...], dict[str, int]] = {}
    for label, values in named:
        if "used_by" in label and now_ms - values[2] < (_window_ms(label) or now_ms + 1):
            users.setdefault(_name(label), {})[str(label["used_by"])] = values[0]
    return [_counter(label, values, users, now_ms) for label, values in named if "used_by" not in label]


def _name(label: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(label.get(field, "")) for field in ("policy_id", "rule_id", "kind", "scope", "of"))


def _counter(
    label: dict[str, Any], values: tuple[int, ...], users: dict[tuple[str, ...], dict[str, int]], now_ms: int
) -> Counter:
    policy_id, rule_id, kind, scope, _ = _name(label)
    of = " on ".join(str(label[field]) for field in ("of", "tool", "server") if label.get(field)) or None
    used = {"tokens": values[0]} if kind == "rate_limit" else {"calls": values[0], "cost_units": values[1]}
    if _window_ms(label):
        used = _within(label, values, now_ms)
    limits = {field: label[field] for field in _LIMITS if isinstance(label.get(field), int)}
    return Counter(policy_id, rule_id, kind, scope, of, used, limits, users.get(_name(label), {}))


def _window_ms(label: dict[str, Any]) -> int:
    window_ms = label.get("window_ms")
    return window_ms if isinstance(window_ms, int) else 0


def _within(label: dict[str, Any], values: tuple[int, ...], now_ms: int) -> dict[str, int]:
    """What a budget with a window has been charged within it: each of its limits is an entry of its own."""
    unit = "calls" if "limit_calls" in label else "cost_units"
    limit = Sliding(int(label.get(f"limit_{unit}") or 0), _window_ms(label), weighted=unit != "calls")
    return {unit: limit.used(limit.adopted(values, now_ms), now_ms)}


def reset(run_id: str | None) -> str:
    """Set the state of a run, or of the wide scopes, aside; what it was set aside as."""
    path = wide_state_file() if run_id is None else state_path(run_id)
    try:
        _, fd, _ = open_file(path, run_id or "", create=False)
    except OSError:
        what = "this machine" if run_id is None else f"run {run_id}"
        raise UsageError(f"there is no state of {what}", hint="`sub state` lists what there is.") from None
    try:
        os.close(replace_file(path, run_id or "", fd))
    finally:
        os.close(fd)
    return f"{path}.bad"

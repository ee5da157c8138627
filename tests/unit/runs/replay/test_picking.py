"""Which recorded call a call is: by server, tool and arguments, first come first served; misses are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subluminal.contracts.canonical import canonical_bytes, digest
from subluminal.runs.replay.picking import Picker, Used
from subluminal.runs.replay.tape import Taped


def taped(number: int, tool: str, arguments: Any, preview: str | None = None) -> Taped:
    text = json.dumps(arguments) if preview is None else preview
    args_hash = digest(canonical_bytes(arguments))
    why = ("ALLOW", None, "DEFAULT_ALLOW")
    return Taped(number, f"c-{number}", "fs", tool, args_hash, text, number, number, 1, *why, "OK", [])


CALLS = [
    taped(0, "read", {"path": "a", "at": 1}),
    taped(1, "read", {"path": "b", "at": 2}),
    taped(2, "read", {"path": "a", "at": 1}),
    taped(3, "write", {"path": "a"}, preview='{"path":"[REDACTED:x]"}'),
]


def picker(tmp_path: Path, *, ignore: tuple[str, ...] = (), repeat_last: bool = False) -> Picker:
    return Picker(CALLS, Used(str(tmp_path / "used")), frozenset(ignore), repeat_last)


def numbers(chosen: Picker, *calls: tuple[str, str]) -> list[int | None]:
    picked = [chosen.pick(tool, text.encode()) for tool, text in calls]
    return [None if each.call is None else each.call.number for each in picked]


def test_the_same_arguments_in_any_spelling_are_answered_in_their_order(tmp_path: Path) -> None:
    calls = [("read", '{"path":"a","at":1}'), ("read", '{ "at": 1, "path": "a" }'), ("read", '{"at":1,"path":"a"}')]
    assert numbers(picker(tmp_path), *calls) == [0, 2, None]


def test_a_masked_preview_does_not_hinder_the_hash(tmp_path: Path) -> None:
    assert numbers(picker(tmp_path), ("write", '{"path":"a"}')) == [3]


def test_another_process_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    first, second = picker(tmp_path), picker(tmp_path)
    same = ("read", '{"path":"a","at":1}')
    assert numbers(first, same) + numbers(second, same) + numbers(first, same) == [0, 2, None]


def test_the_last_answer_is_repeated_where_that_was_asked_for(tmp_path: Path) -> None:
    same = ("read", '{"path":"b","at":2}')
    again = picker(tmp_path, repeat_last=True)
    assert numbers(again, same, same, same) == [1, 1, 1]
    assert again.pick("read", b'{"path":"b","at":2}').how == "repeated"


def test_only_named_members_are_left_out_of_the_comparison(tmp_path: Path) -> None:
    other = ("read", '{"path":"a","at":99}')
    assert numbers(picker(tmp_path), other) == [None]
    strict_first = picker(tmp_path, ignore=("at",))
    assert numbers(strict_first, other, ("read", '{"path":"a","at":1}'), other) == [0, 2, None]


def test_a_miss_names_what_is_nearest_and_in_what_it_differs(tmp_path: Path) -> None:
    chosen = picker(tmp_path)
    miss = chosen.pick("read", b'{"path":"b","at":3}').miss
    assert miss is not None and (miss.nearest, miss.keys) == ("c-1", ["at"])
    miss = chosen.pick("raed", b"{}").miss
    assert miss is not None and (miss.nearest, miss.keys) == ("c-0", [])
    miss = chosen.pick("nothing like it", b"{}").miss
    assert miss is not None and miss.nearest is None
    miss = chosen.pick("read", None).miss
    assert miss is not None and miss.nearest == "c-0"
    assert chosen.pick("read", b"{broken").call is None


def test_what_was_refused_unread_is_the_same_refusal_again_and_nothing_is_answered_unread(tmp_path: Path) -> None:
    refused, large = taped(0, "(unreadable)", {}), taped(1, "write", {})
    refused.args_hash = large.args_hash = ""
    refused.action = "BLOCK"
    chosen = Picker([refused, large], Used(str(tmp_path / "used")), frozenset(), False)
    assert chosen.pick("(unreadable)", None).call is refused
    assert chosen.pick("write", None).call is None

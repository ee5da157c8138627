"""What is learned of tools from their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from subluminal.mcp import tools
from subluminal.mcp.tools import ToolNotes

NOTHING: frozenset[str] = frozenset()


def listed(**annotations: dict[str, Any] | None) -> dict[str, Any]:
    return {"tools": [{"name": name, "annotations": notes} for name, notes in annotations.items()]}


class Kept:
    """Notes of whoever came before."""

    def __init__(self, **notes: frozenset[str]) -> None:
        self.notes = notes
        self.reads = 0
        self.added: list[Mapping[str, frozenset[str]]] = []

    def read(self) -> Mapping[str, frozenset[str]]:
        self.reads += 1
        return self.notes

    def add(self, notes: Mapping[str, frozenset[str]]) -> None:
        self.added.append(dict(notes))


def test_an_explicit_annotation_raises_a_class_and_none_lowers_one() -> None:
    notes = ToolNotes()
    notes.learn(
        listed(
            writes={"readOnlyHint": False},
            destroys={"readOnlyHint": True, "destructiveHint": True},
            talks={"openWorldHint": True, "destructiveHint": False},
            odd={"openWorldHint": 1, "readOnlyHint": "false"},
            plain=None,
        )
    )
    assert notes.recalled("writes") == notes.recalled("destroys") == {"write_like"}
    assert notes.recalled("talks") == {"network_like"}
    assert notes.recalled("odd") == notes.recalled("plain") == NOTHING
    assert notes.recalled("never listed") is None
    notes.learn(listed(writes={"readOnlyHint": True, "openWorldHint": True}))
    assert notes.recalled("writes") == {"write_like", "network_like"}


def test_what_is_beyond_the_bounds_counts_as_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_TOOLS", 2)
    notes = ToolNotes()
    notes.learn(listed(**{"x" * 257: None}))
    for name in ("a", "b", "c"):
        notes.learn(listed(**{name: {"readOnlyHint": False}}))
    assert [notes.recalled(name) is not None for name in ("x" * 257, "a", "b", "c")] == [False, True, True, False]


@pytest.mark.parametrize("result", [None, [], {"tools": "odd"}, {"tools": [1, {}, {"name": 1, "annotations": {}}]}])
def test_a_list_that_is_none_teaches_nothing(result: Any) -> None:
    notes = ToolNotes()
    notes.learn(result)
    assert notes.risk_classes == {}


def test_notes_of_those_before_are_read_once_when_they_are_first_asked_for() -> None:
    kept = Kept(rm=frozenset(["write_like"]))
    notes = ToolNotes(kept)
    assert kept.reads == 0
    assert notes.recalled("rm") == {"write_like"}
    assert notes.recalled("other") is None
    assert kept.reads == 1


def test_only_what_a_list_teaches_anew_is_kept_and_no_list_lowers_what_was_kept() -> None:
    kept = Kept(rm=frozenset(["write_like"]))
    notes = ToolNotes(kept)
    notes.learn(listed(rm=None, ls=None))
    notes.learn(listed(rm=None, ls=None))
    notes.learn(listed(rm={"openWorldHint": True}))
    assert kept.added == [{"ls": NOTHING}, {"rm": {"write_like", "network_like"}}]


def test_what_was_learned_before_there_was_a_place_for_it_goes_there() -> None:
    notes, kept = ToolNotes(), Kept(cp=frozenset(["write_like"]))
    notes.learn(listed(ls=None))
    notes.keep_in(kept)
    assert kept.added == [{"ls": NOTHING}]
    assert (notes.recalled("ls"), notes.recalled("cp")) == (NOTHING, {"write_like"})

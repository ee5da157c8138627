"""What is learned of tools from their annotations."""

from __future__ import annotations

from typing import Any

import pytest

from subluminal.mcp import tools
from subluminal.mcp.tools import ToolNotes


def listed(**annotations: dict[str, Any] | None) -> dict[str, Any]:
    return {"tools": [{"name": name, "annotations": notes} for name, notes in annotations.items()]}


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
    assert notes.risk_classes.get("writes", set()) == notes.risk_classes.get("destroys", set()) == {"write_like"}
    assert notes.risk_classes.get("talks", set()) == {"network_like"}
    assert not notes.risk_classes.keys() & {"odd", "plain"}
    notes.learn(listed(writes={"readOnlyHint": True}))
    assert notes.risk_classes.get("writes", set()) == {"write_like"}


def test_a_server_may_list_any_number_of_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_TOOLS", 2)
    notes = ToolNotes()
    for name in ("a", "b", "c"):
        notes.learn(listed(**{name: {"readOnlyHint": False}}))
    assert [name in notes.risk_classes for name in ("a", "b", "c")] == [True, True, False]


@pytest.mark.parametrize("result", [None, [], {"tools": "odd"}, {"tools": [1, {}, {"name": 1, "annotations": {}}]}])
def test_a_list_that_is_none_teaches_nothing(result: Any) -> None:
    ToolNotes().learn(result)

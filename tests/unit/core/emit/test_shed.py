"""Under back-pressure the preview goes, and the event says so."""

from __future__ import annotations

import json

from subluminal.core.emit.shed import without_preview


def test_a_preview_is_given_up_and_everything_else_stays() -> None:
    line = '{"type":"tool_call_end","call":{"call_id":"é"},"preview":{"truncated":false,"result_preview":"x"},"n":1}\n'
    lean, shed = without_preview(line.encode())
    assert shed == 1
    assert json.loads(lean) == {
        "type": "tool_call_end",
        "call": {"call_id": "é"},
        "preview": {"truncated": True, "shed": True},
        "n": 1,
    }
    assert without_preview(lean) == (lean, 0)


def test_other_lines_stay_as_they_are() -> None:
    lines = [
        b'{"type":"tool_call_decision","preview":{"args_preview":"x"}}\n',
        b'{"type":"tool_call_start","call":{"preview":{"truncated":false}}}\n',
        b'{"type":"tool_call_start","call":{}}\n',
        b'{"type":"tool_call_start","ca',
    ]
    assert [without_preview(line) for line in lines] == [(line, 0) for line in lines]

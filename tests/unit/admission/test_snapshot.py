"""The state a rule may read."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from subluminal.admission import ReadOnlyState, bind_call


def test_the_empty_state_reads_as_nothing() -> None:
    state = ReadOnlyState()
    assert (state.reputation("ada"), state.tokens("ada"), state.stake("ada")) == (0, 0, 0)
    assert (state.epoch, state.event_count, state.fork_id, state.rule_version) == (0, 0, "", "")
    assert state.binding("anything") is None
    assert state == ReadOnlyState()
    assert state != ReadOnlyState(epoch=1)
    assert state != "state"


def test_it_is_a_copy_of_what_went_in() -> None:
    reputation = {"ada": 7}
    state = ReadOnlyState(reputation=reputation, tokens={"ada": 1}, stakes={"ada": 2}, epoch=3, fork_id="f")
    reputation["ada"] = 0
    reputation["eve"] = 10_000
    assert (state.reputation("ada"), state.reputation("eve")) == (7, 0)
    assert (state.tokens("ada"), state.stake("ada"), state.epoch, state.fork_id) == (1, 2, 3, "f")


def test_nothing_can_be_set_or_deleted() -> None:
    state = ReadOnlyState(epoch=3)
    for name in ("epoch", "_epoch", "_reputation", "anything"):
        with pytest.raises(AttributeError):
            setattr(state, name, 9)
        with pytest.raises(AttributeError):
            delattr(state, name)
    with pytest.raises(TypeError):
        hash(state)
    assert state.epoch == 3
    assert copy.copy(state) is copy.deepcopy(state) is state, "what cannot change needs no copy"


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": True},
        {"epoch": 1.5},
        {"event_count": 1 << 63},
        {"fork_id": 7},
        {"rule_version": None},
        {"reputation": {"ada": 1.0}},
        {"tokens": {7: 1}},
        {"stakes": {"ada": False}},
        {"bindings": {"args": {"mutable": 1}}},
        {"bindings": {7: 1}},
        {"bindings": {"x": True}},
    ],
)
def test_values_of_the_wrong_kind_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        ReadOnlyState(**wrong)


def test_a_call_is_bound_by_its_name_arguments_and_time() -> None:
    state = bind_call(server_name="fs", args=b'{"a":1}', wall_ms=5)
    assert (state.binding("server_name"), state.binding("args"), state.binding("bytes_in")) == ("fs", b'{"a":1}', 7)
    assert (state.binding("wall_ms"), state.binding("mono_ms")) == (5, None)
    assert bind_call(server_name="fs", args=None).binding("bytes_in") == 0

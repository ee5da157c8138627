"""`model_message`: what a provider states of a message, and nothing that it did not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine import compiled
from subluminal.contracts.events import MessageStated, decode_event, encode_event
from subluminal.contracts.identity import Identity, Source
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.gate.gate import Gate
from subluminal.core.gate.usage import FIELDS, MAX_BYTES, MAX_NUMBER
from subluminal.core.redact.redactor import Redactor
from subluminal.model.words import Usage

SECRET = "correct-horse-battery"
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.lists(st.integers())


def stated(usage: dict[str, Any]) -> dict[str, Any]:
    identity = Identity("run")
    gate = Gate(
        identity, Source("h", "p", "s"), Stack([Engine(compiled(), identity)]), LocalState(), Redactor([SECRET], [])
    )
    gate.usage_note(usage, 1_700_000_000_000)
    line = gate.take()
    assert encode_event(decode_event(line)) == line, "byte for byte what the contract's types write"
    event = json.loads(line)
    assert event["type"] == "model_message"
    model: dict[str, Any] = event["model"]
    return model


def test_the_names_are_the_contract_s_in_its_order_and_those_of_the_readers() -> None:
    assert tuple(FIELDS) == MessageStated.__struct_fields__
    assert {*Usage.__struct_fields__, "api"} == set(FIELDS)


def test_what_was_stated_is_told_and_what_was_not_is_absent() -> None:
    usage = {"message_id": "msg_1", "input_tokens": 0, "output_tokens": 7, "cached_in_input": False, "api": "anthropic"}
    assert stated(usage) == usage
    assert stated({}) == {}
    assert stated({"input_tokens": None, "model": "", "cost": 3}) == {}


def test_words_of_others_are_masked_and_bounded() -> None:
    told = stated({"model": f"model {SECRET}", "stop_reason": "x" * 10_000, "message_id": "y" * 200 + SECRET * 50})
    assert SECRET not in json.dumps(told)
    assert {len(told[name].encode()) <= MAX_BYTES for name in told} == {True}
    assert len(told["stop_reason"]) == MAX_BYTES


@pytest.mark.parametrize("before", range(0, 2_000, 13))
def test_no_part_of_a_secret_is_left_where_a_text_is_cut(before: int) -> None:
    told = stated({"model": "é" * (before % 7) + SECRET * 40 + "x" * before + SECRET * 100})
    assert not any(SECRET[:length] in told["model"] for length in range(6, len(SECRET)))


def test_numbers_are_whole_and_not_less_than_nothing() -> None:
    odd = (True, -1, 1.5, "7", [7], MAX_NUMBER + 1, float("nan"))
    for value in odd:
        assert stated({"input_tokens": value, "output_tokens": MAX_NUMBER}) == {"output_tokens": MAX_NUMBER}, value


@given(st.dictionaries(st.sampled_from(tuple(FIELDS)) | st.text(max_size=5), VALUES))
def test_whatever_is_given_becomes_an_event(usage: dict[str, Any]) -> None:
    assert set(stated(usage)) <= set(FIELDS)

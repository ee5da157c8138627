"""The playbook states exchanges exactly and shows them when they differ."""

from __future__ import annotations

import pytest

from harness.playbook import Matching, Placeholder, playbook


class Doubler:
    """Bytes in, events out."""

    def feed(self, data: bytes) -> list[bytes]:
        return [data, data] if data else []

    def name(self) -> tuple[str, int]:
        return ("call", 7)


def test_an_exchange_that_holds_passes() -> None:
    playbook(Doubler()).when("feed", b"a").then(b"a", b"a").when("feed", b"").then()


def test_missing_extra_and_different_outputs_fail_with_the_transcript() -> None:
    for wrong, sign in (([b"b"], "+"), ([b"b", b"b", b"b"], "-"), ([b"b", b"c"], "+"), ([], "+")):
        book = playbook(Doubler()).when("feed", b"a").then(b"a", b"a").when("feed", b"b")
        with pytest.raises(AssertionError) as failure:
            book.then(*wrong)
        assert ">> feed(b'a')" in str(failure.value)
        assert f"{sign}<< b'b'" in str(failure.value)


def test_outputs_that_were_not_stated_fail_at_the_next_input() -> None:
    book = playbook(Doubler()).when("feed", b"a")
    with pytest.raises(AssertionError, match="went differently"):
        book.when("feed", b"b")


def test_a_placeholder_is_filled_once_and_must_stay_the_same() -> None:
    value = Placeholder("data")
    book = playbook(Doubler()).when("feed", b"a").then(value, value)
    assert value() == b"a"
    with pytest.raises(AssertionError):
        book.when("feed", b"b").then(value, value)


def test_a_tuple_is_one_output_and_may_be_matched_by_a_condition() -> None:
    playbook(Doubler()).when("name").then(Matching("a call", lambda got: got[0] == "call"))


def test_a_property_can_be_checked_between_steps() -> None:
    with pytest.raises(AssertionError, match="!! it is not a doubler"):
        playbook(Doubler()).when("feed", b"").check(lambda it: False, "it is not a doubler")

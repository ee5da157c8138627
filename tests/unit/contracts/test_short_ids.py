"""Ids as people type them, and what is shown of them."""

from __future__ import annotations

import pytest

from subluminal.contracts.short_ids import named, runs_back, short
from subluminal.host.identity import new_id


def test_what_is_shown_of_an_id_of_ours_can_be_asked_for():
    run, shim = new_id("run-"), new_id("s")
    assert named(short(run), [run, new_id("run-")]) == [run]
    call = f"{shim}-12"
    assert call.endswith(short(call)) and short(call).endswith("-12") and len(short(call)) == 7


@pytest.mark.parametrize("name", ["nightly", "nightly-3", "run-1", "build/2024-11-17", "a" * 30 + "z"])
def test_any_other_id_is_shown_whole(name):
    assert short(name) == name


@pytest.mark.parametrize(
    ("name", "back"),
    [("last", 0), ("last~0", 0), ("last~3", 3), ("last~", None), ("last~x", None), ("lastly", None), ("~1", None)],
)
def test_last_counts_backwards(name, back):
    assert runs_back(name) == back


def test_a_whole_id_goes_before_a_beginning_and_that_before_an_end():
    ids = ["alpha", "alpha-2", "x-alpha"]
    assert named("alpha", ids) == ["alpha"]
    assert named("alpha-", ids) == ["alpha-2"]
    assert named("-alpha", ids) == ["x-alpha"]
    assert named("pha", ids) == [], "too short to be meant"

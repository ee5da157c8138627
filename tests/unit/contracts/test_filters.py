"""The table of filters: what it takes, what it refuses, and that every place offers all of it."""

from __future__ import annotations

from typing import Any

import pytest

from subluminal.cli.record.query import OPTIONS as QUERY_OPTIONS
from subluminal.cli.record.runs import OPTIONS as RUNS_OPTIONS
from subluminal.cli.tail.command import OPTIONS as TAIL_OPTIONS
from subluminal.contracts.errors import UsageError
from subluminal.contracts.filters import (
    CALL_FILTERS,
    END,
    EVENT_FILTERS,
    KNOWN_BY,
    NAMES,
    OF_THEIR_CALLS,
    RUN_FILTERS,
    EventFilters,
    Filter,
    Filters,
    RunFilters,
    known_at,
)
from subluminal.contracts.vocabulary import EVENT_TYPES
from subluminal.ledger.daemon.live import follow_request
from subluminal.ledger.http.openapi import document
from subluminal.ledger.read.ledger import CALL_COLUMNS, GROUPS, RUN_COLUMNS
from subluminal.ledger.read.plan import _plain_conditions, run_conditions

# What is no filter, in the places that have more.
NO_FILTERS = {"limit", "cursor", "by", "patience_ms"}
NO_OPTIONS = {
    "columns",
    "wide",
    "plot",
    "limit",
    "cursor",
    "count",
    "group_by",
    "as_json",
    "as_csv",
    "no_sync",
    "fleet",
    "lines",
    "no_follow",
    "events",
}


def value_of(found: Filter) -> Any:
    if found.words:
        return [found.words[0]]
    return {"whole number": 7, "moment": 7, "free text": "x"}.get(found.kind, ["x"])


def parameters(path: str) -> set[str]:
    return {one["name"] for one in document()["paths"][path]["get"]["parameters"]} - NO_FILTERS


@pytest.mark.parametrize(
    ("options", "table"),
    [(QUERY_OPTIONS, CALL_FILTERS), (TAIL_OPTIONS, EVENT_FILTERS), (RUNS_OPTIONS, (*RUN_FILTERS, *OF_THEIR_CALLS))],
)
def test_a_command_has_an_option_for_every_filter_and_for_no_other(options: Any, table: tuple[Filter, ...]) -> None:
    asked = {option.name: option.flags for option in options if option.name not in NO_OPTIONS}
    assert asked == {found.name: found.flags for found in table}


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/v1/calls", CALL_FILTERS),
        ("/v1/groups", CALL_FILTERS),
        ("/v1/live", EVENT_FILTERS),
        ("/v1/runs", RUN_FILTERS),
    ],
)
def test_the_http_api_documents_every_filter_and_no_other(path: str, table: tuple[Filter, ...]) -> None:
    assert parameters(path) == {found.name for found in table}


@pytest.mark.parametrize("found", EVENT_FILTERS, ids=lambda found: found.name)
def test_a_follower_may_use_the_word_of_the_option_or_of_the_api(found: Filter) -> None:
    for word in (found.word, found.name):
        filters, _ = follow_request({"control": "follow", word: value_of(found)})
        assert filters.asked == {found.name: value_of(found)}


@pytest.mark.parametrize("found", CALL_FILTERS, ids=lambda found: found.name)
def test_every_filter_tests_a_column_in_memory_and_in_sql(found: Filter) -> None:
    filters = Filters(**{found.name: value_of(found)})
    assert found.name == "text" or found.column in (*CALL_COLUMNS, *RUN_COLUMNS)
    assert filters.match({}) is False  # of nothing nothing is known
    leads = {"run_id", "rule_id", "args_hash", "server_name", "tool_name"}  # by an index: see the plan
    leads |= {"since_ms", "until_ms"}  # by the row id
    assert found.name in leads or found.kind == NAMES or _plain_conditions(filters.asked)


@pytest.mark.parametrize("found", RUN_FILTERS, ids=lambda found: found.name)
def test_every_filter_on_runs_is_a_condition(found: Filter) -> None:
    assert found.column in RUN_COLUMNS
    assert found.column in run_conditions(RunFilters(**{found.name: value_of(found)})).sql


def test_words_are_unlike_each_other_and_those_of_groups_are_columns() -> None:
    words = [found.word for found in EVENT_FILTERS]
    assert len({*words, *(found.name for found in EVENT_FILTERS)}) == len({*words}) + sum(
        found.word != found.name for found in EVENT_FILTERS
    )
    assert set(KNOWN_BY) < set(EVENT_TYPES) and GROUPS.keys() >= {"day", "hour", "tool_name", "client"}


@pytest.mark.parametrize(
    ("conditions", "sentence", "hint"),
    [
        ({"tol_name": ["x"]}, "'tol_name' is no filter.", "Did you mean tool_name?"),
        ({"tool": ["x"]}, "'tool' is no filter.", "Did you mean tool_name?"),
        ({"type": ["run_end"]}, "'type' is no filter.", "Known: run_id,"),
        ({"decision": ["MAYBE"]}, "'MAYBE' is no decision.", "Known: ALLOW,"),
        ({"decision": ["blok"]}, "'blok' is no decision.", "Did you mean BLOCK?"),
        ({"client": ["cloude"]}, "'cloude' is no client.", "Did you mean claude?"),
        ({"min_latency_ms": -1}, "min_latency_ms must be a whole number, not '-1'.", ""),
        ({"min_latency_ms": True}, "min_latency_ms must be a whole number, not 'True'.", ""),
        ({"since_ms": "1²"}, "since_ms must be a whole number", ""),
        ({"since_ms": ["1", "2"]}, "since_ms can be given only once.", ""),
        ({"since_ms": 1 << 70}, "since_ms must be a whole number", ""),
        ({"run_id": [5]}, "run_id must be text, not '5'.", ""),
        ({"run_id": {"a": 1}}, "run_id must be text", ""),
        ({"tool_name": ["\udcff"]}, "is no text", ""),
        ({"tool_name": ["*" * 600]}, "has 600 characters", "Use at most 512"),
        ({"tool_name": ["[z-a]"]}, "has the range z-a", "Use ? or"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(conditions: dict[str, Any], sentence: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Filters(**conditions)
    assert sentence in str(caught.value) and hint in (caught.value.hint or "")


def test_what_is_asked_has_one_form() -> None:
    assert Filters(decision="block", tool_name=("a", "b", "a"), client=[], text=None).asked == {
        "decision": ["BLOCK"],
        "tool_name": ["a", "b"],
    }
    assert Filters(since_ms=["12"], min_latency_ms=0).asked == {"since_ms": 12, "min_latency_ms": 0}
    assert Filters(tool_name=["x" * 600]).asked  # a name, however long, is no glob


def test_of_a_call_only_that_is_known_which_its_events_have_said() -> None:
    whole = {found.column: "x" for found in CALL_FILTERS} | {"summary": "x", "result_preview": "x", "args_preview": "x"}
    at_start = known_at(whole, "tool_call_start")
    assert {"tool_name", "created_at", "args_preview", "agent_id"} < at_start.keys()
    assert not {"decision", "rule_id", "summary", "status", "latency_ms", "result_preview"} & at_start.keys()
    assert known_at(whole, "tool_call_decision").keys() - at_start.keys() == {
        found.column for found in EVENT_FILTERS if found.known_from == KNOWN_BY["tool_call_decision"]
    } | {"summary"}
    assert known_at(whole, "tool_call_end") == whole and END not in KNOWN_BY.values()


def test_the_status_of_a_refused_call_is_no_status_of_a_call_that_was_let_through() -> None:
    failed = Filters(status=["ERROR"])
    assert failed.match({"status": "ERROR", "decision": "ALLOW"}) and failed.match({"status": "ERROR"})
    assert not failed.match({"status": "ERROR", "decision": "BLOCK"})
    assert Filters(status=["PENDING"]).match({"decision": "BLOCK"})


def test_a_part_keeps_only_its_stages() -> None:
    filters = EventFilters(type="run_end", run_id="r", tool_name="t", status="OK")
    assert [filters.known_from(stage).asked for stage in range(5)] == [
        {"type": ["run_end"]},
        {"run_id": ["r"]},
        {"tool_name": ["t"]},
        {},
        {"status": ["OK"]},
    ]

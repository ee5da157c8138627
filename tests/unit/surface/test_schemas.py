"""Arguments against input schemas: what is said of the first error, and that no schema costs more than its bound."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.effort import cpu_ratio
from harness.shim import isolated_env
from subluminal.contracts.canonical import parse
from subluminal.surface import schemas
from subluminal.surface.schemas import INSTALL, NOT_FETCHED, TOO_MUCH, UNREADABLE, Checker, Unjudged

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
NEWEST, BEFORE = "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema"
READ = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "mode": {"enum": ["r", "w"]},
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "share": {"type": "number", "multipleOf": 0.1},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def said(schema: Any, args: Any) -> str | None:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    try:
        return Checker(text).first_error(parse(json.dumps(args).encode()))
    except Unjudged as fault:
        return f"unjudged: {fault}"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"path": "/x", "lines": 3, "tags": ["a", "b"], "mode": "r", "name": "ab", "share": 0.3, "either": None}, None),
        ({"path": "/x", "lines": 3.0}, None),
        ({}, "`path` is missing"),
        ({"path": 3}, "`path` must be of type string"),
        ({"path": "secret", "lines": "5"}, "`lines` must be of type integer"),
        ({"path": "/x", "lines": True}, "`lines` must be of type integer"),
        ({"path": "/x", "lines": 0}, "`lines` does not fit minimum: 1"),
        ({"path": "/x", "tags": ["a", 1]}, "`tags[1]` must be of type string"),
        ({"path": "/x", "tags": ["a", "a"]}, "`tags` does not fit uniqueItems: true"),
        ({"path": "/x", "mode": "q"}, '`mode` must be one of "r", "w"'),
        ({"path": "/x", "name": "A"}, '`name` does not fit pattern: "^[a-z]+$"'),
        ({"path": "/x", "share": 0.35}, "`share` does not fit multipleOf: 0.1"),
        ({"path": "/x", "file": 1}, "`file` is not known here; known: path, lines, tags, mode, name, share, either"),
        ({"path": "/x", "either": 1},
         "`either` does not fit one of its alternatives; of the first: `either` must be of type string"),
    ],
)  # fmt: skip
def test_the_first_error_is_said_without_any_value(args: Any, error: str | None) -> None:
    assert said(READ, args) == error


@pytest.mark.parametrize(
    ("schema", "args", "error"),
    [
        ({"$schema": DRAFT_4, "properties": {"a": {"minimum": 3, "exclusiveMinimum": True}}}, {"a": 3}, "minimum"),
        ({"$schema": DRAFT_7, "definitions": {"t": {"type": "string"}},
          "properties": {"a": {"$ref": "#/definitions/t"}}}, {"a": 1}, "`a` must be of type string"),
        ({"$schema": BEFORE, "properties": {"a": {"minItems": 1}}}, {"a": []}, "minItems"),
        ({"$schema": NEWEST, "properties": {"a": {"prefixItems": [{"type": "string"}], "items": False}}},
         {"a": ["x", 1]}, "items"),
        ({"properties": {"a": {"format": "email"}}}, {"a": "no"}, None),
        ({"unevaluatedProperties": False, "properties": {"a": True}}, {"a": 1, "b": 2}, "unevaluatedProperties"),
        ({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}, {"x-a": 1}, "`x-a`"),
        ({"patternProperties": {"^x-": {}}, "additionalProperties": False}, {"y": 1}, "`y` is not known here"),
        ({"properties": {"a": {"pattern": "^\\u00e9+$"}}}, {"a": "éé"}, None),
        (True, {"a": 1}, None),
        (False, {}, "it takes no arguments at all"),
    ],
)  # fmt: skip
def test_each_draft_is_read_as_what_it_says_it_is(schema: Any, args: Any, error: str | None) -> None:
    found = said(schema, args)
    assert found is None if error is None else found is not None and error in found


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "http://127.0.0.1:1/schema.json"}, NOT_FETCHED),
        ({"$ref": "file:///etc/passwd"}, NOT_FETCHED),
        ({"$ref": "#/$defs/none"}, NOT_FETCHED),
        ({"$schema": "https://example.com/mine"}, "dialect"),
        ({"type": 5}, UNREADABLE),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "a pattern that RE2 cannot read: (?=a)b"),
        ({"properties": {"a": {"multipleOf": 0}}}, UNREADABLE),
        (b'{"type":"object","type":"string"}', UNREADABLE),
        (b"[1]", UNREADABLE),
        (b"{", UNREADABLE),
    ],
)
def test_what_cannot_be_judged_is_said(schema: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any) -> None:
        raise AssertionError("something was to be fetched")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    found = said(schema, {"a": 3} if "multipleOf" in str(schema) else {"a": "b"})
    assert found is not None and found.startswith("unjudged: ") and why in found


def doubling(keyword: str, last: Any) -> dict[str, Any]:
    """Two to the sixtieth ways through it."""
    parts = {"a0": last}
    for number in range(1, 60):
        parts[f"a{number}"] = {keyword: [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
    return {"$ref": "#/$defs/a59", "$defs": parts}


def nested(keyword: str, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(depth):
        made = {keyword: [made] if keyword.endswith("Of") else made}
    return made


LONG = "y" * 900_000
RANDOM = "".join(Random(7).choices("ab", k=4_000)) + "a" + "b" * 900 + "c"
NAMES = [f"v{number}" for number in range(7_000)]
BIG = {f"k{number}": "x" * 20 for number in range(1_500)}
HOSTILE = {
    "a reference to itself": ({"$ref": "#"}, {}),
    "references in a circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, {},
    ),
    "a dynamic reference to itself": ({"$dynamicRef": "#"}, {}),
    "a recursive reference to itself": ({"$schema": BEFORE, "$recursiveRef": "#"}, {}),
    "all of, doubled": (doubling("allOf", {}), {}),
    "any of, doubled, over a long text": (doubling("anyOf", False), {"x": LONG}),
    "one of, doubled": (doubling("oneOf", {"type": "string"}), {"x": 1}),
    "ten thousand branches that are false": ({"anyOf": [False] * 10_000}, {"x": LONG}),
    "deep": (nested("not", 250), {}),
    "a huge enum for each of many items": (
        {"properties": {"x": {"items": {"enum": NAMES}}}}, {"x": ["v6999"] * 50_000},
    ),
    "a huge required for each of many items": (
        {"anyOf": [{"properties": {"x": {"items": {"required": NAMES}}}}]}, {"x": [{}] * 50_000},
    ),
    "names that others need, for each of many items": (
        {"properties": {"x": {"items": {"dependentRequired": {"a": ["a"] * 100_000}}}}}, {"x": [{"a": 1}] * 3_000},
    ),
    "a long reference": (
        {"$defs": {"k" * 100_000: {}}, "properties": {"x": {"items": {"$ref": "#/$defs/" + "%6B" * 100_000}}}},
        {"x": [{}] * 500},
    ),
    "patterns that are large programs": (
        {"patternProperties": {rf"^\pL{{30}}x{number}$": True for number in range(100)}}, {"x": 1},
    ),
    "a pattern with more states than fit": (
        {"properties": {"x": {"items": {"pattern": "a[ab]{900}c"}}}}, {"x": [RANDOM] * 200},
    ),
    "large values compared over and over": (
        {"$defs": {"e": {"enum": [BIG]}}, "properties": {"x": {"items": {"allOf": [{"$ref": "#/$defs/e"}] * 900}}}},
        {"x": [BIG] * 20},
    ),
    "items each with each": (
        {"properties": {"x": {"uniqueItems": True}}}, {"x": [[number] for number in range(100_000)]},
    ),
    "anchors": (
        {"$defs": {"z": {"$anchor": "zz"}}, "properties": {"x": {"items": {"$ref": "#zz"}}}}, {"x": [{}] * 50_000},
    ),
    "documents within": (
        {"$defs": {f"p{number}": {"$id": f"http://e/{number}"} for number in range(900)},
         "$id": "http://e/x", "properties": {"x": {"items": {"$ref": "899"}}}}, {"x": [{}] * 50_000},
    ),
    "unevaluated": (
        {"unevaluatedProperties": False, "allOf": [{"properties": dict.fromkeys(NAMES[:3_000], True)}]},
        dict.fromkeys(NAMES[:3_000], 1),
    ),
    "unevaluated by references": ({"unevaluatedProperties": False, **doubling("allOf", {})}, {"x": 1}),
}  # fmt: skip


# So many usual checks make the baseline; the limit is some times what the budget comes to.
USUAL_CHECKS, LIMIT = 100, 200


def times_usual(work: Callable[[], object]) -> float:
    checker, args = Checker(json.dumps(READ).encode()), {"path": "/x", "lines": 3, "tags": ["a", "b"], "mode": "r"}
    return cpu_ratio(work, lambda: [checker.first_error(args) for _ in range(USUAL_CHECKS)], LIMIT)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_schema_makes_a_call_wait(name: str) -> None:
    """Unbounded, these take from seconds to longer than anybody lives."""
    schema, args = HOSTILE[name]
    checker, value = Checker(json.dumps(schema).encode()), parse(json.dumps(args).encode())
    why: list[str] = []

    def check() -> None:
        try:
            checker.first_error(value)
        except Unjudged as fault:
            why.append(str(fault))

    assert times_usual(check) < LIMIT
    assert why and (TOO_MUCH in why[0] or "unevaluated" in why[0])


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "a" * 50_000 + "b"}),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 5_000 + "b": 1}),
    ],
)
def test_a_pattern_that_backtracks_elsewhere_is_judged(schema: Any, args: Any) -> None:
    found: list[str | None] = []
    assert times_usual(lambda: found.append(said(schema, args))) < LIMIT
    assert found[0] is not None and not found[0].startswith("unjudged")


@pytest.mark.parametrize(("pattern", "text"), [(r"^\u0041$", "A"), (r"^\\u0041$", r"\u0041"), (r"^\\\u0041$", r"\A")])
def test_only_what_ecmascript_takes_for_an_escape_is_one(pattern: str, text: str) -> None:
    assert said({"properties": {"a": {"pattern": pattern}}}, {"a": text}) is None


LISTS_AND_CALLS = """
import json, os, sys
from subluminal.contracts.toolcall import ToolCall
from subluminal.mcp.tools import ToolNotes
from subluminal.producer.producer import assemble
from subluminal.producer.surfaces import SurfaceOnDemand
producer = assemble(os.environ, events="none", policy=sys.argv[1])
notes = ToolNotes()
SurfaceOnDemand(producer, "fs", (), notes)
notes.heard("tools/list", json.dumps({"tools": [{"name": "read", "inputSchema": {"required": ["path"]}}]}).encode())
call = ToolCall("fs", "read", b"{}", 2, risk_classes=notes.risk_classes["read"])
loaded = [name in sys.modules for name in ("jsonschema", "subluminal.surface.schemas")]
print(producer.gate.judge(call, 0, 0).decision.action, *loaded)
"""


@pytest.mark.parametrize(("word", "said"), [("none", "ALLOW False False"), ("listed", "REJECT_WITH_HINT True True")])
def test_what_is_not_asked_for_is_not_imported(tmp_path: Path, word: str, said: str) -> None:
    policy = {"policy_id": "p", "version": "1", "mode": "guardrails", "selectors": {}, "rules": []}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**policy, "defaults": {"decision_on_error": "BLOCK", "check_schemas": word}}))
    done = subprocess.run(
        [sys.executable, "-c", LISTS_AND_CALLS, str(path)],
        env=isolated_env(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == said, done.stderr


def test_without_the_library_nothing_is_judged_and_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "_classes", {})
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert said(READ, {}) == f"unjudged: {INSTALL}"

"""Requests at random: what is not in doubt, a generous server and a strict one read exactly as it was judged."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

import pytest

from harness.places import ROOT
from subluminal.adapters.http_api.files import load_mapping
from subluminal.adapters.http_api.reading import read_body, read_target
from subluminal.contracts.canonical import parse
from subluminal.contracts.errors import CanonicalError
from subluminal.http.heads import read_request

MAPPING = load_mapping(str(ROOT / "tests" / "fixtures" / "http_api" / "tracker.yaml"))
WORDS = ["repos", "user", "users", "issues", "comments", "labels", "contents", "ada", "engine", "1", "07", "7", "Repos"]
SPOILERS = ["/", "//", "%2f", "%5c", "\\", ".", "..", "%2e", ";", ";a=b", "%00", "%25", "%2525", "%41", "%72", "+",
            "%20", "%", "%ff", "#", "?", "%3f", "%23", "a", "é".encode().hex(), "%C3%A9", "~", ":",
            "@", "%zz"]  # fmt: skip
NAMES = ["state", "page", "State", "owner", "x", "_method", "a[]", "%73tate", ""]
ROUNDS = 4_000


def head_of(method: str, target: str, *headers: str) -> Any:
    lines = [f"{method} {target} HTTP/1.1", "Host: h", *headers]
    return read_request("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")


def tidied(path: str) -> list[str]:
    """As a server reads it that decodes twice before it takes the path apart, and drops what it has no use for."""
    steps: list[str] = []
    for step in unquote(unquote(path.partition("#")[0])).partition("?")[0].replace("\\", "/").split("/"):
        step = step.partition(";")[0].rstrip(". \0") if step != ".." else step
        if step == "..":
            del steps[-1:]
        elif step:
            steps.append(step)
    return steps


def strict(path: str) -> list[str]:
    """As one that takes it apart first."""
    return [unquote(step) for step in path.split("/")[1:]]


def some_path(chance: random.Random) -> str:
    parts = [chance.choice(WORDS) for _ in range(chance.randint(1, 6))]
    if chance.random() < 0.6:
        parts = ["repos", "ada", "engine", *parts[:2]]
    for _ in range(chance.choice((0, 0, 1, 2))):
        at = chance.randrange(len(parts))
        place = chance.randint(0, len(parts[at]))
        parts[at] = parts[at][:place] + chance.choice(SPOILERS) + parts[at][place:]
    return "/" + "/".join(parts)


@pytest.mark.parametrize("seed", range(3))
def test_a_path_without_doubt_has_one_reading(seed: int) -> None:
    chance = random.Random(seed)
    mapped = 0
    for _ in range(ROUNDS):
        target = some_path(chance)
        reading = read_target(MAPPING, head_of(chance.choice(("GET", "DELETE", "POST")), target), target.encode())
        if reading.doubt is not None or "?" in target:
            continue
        assert tidied(target) == strict(target.rstrip("/")) or target == "/", target
        if reading.operation is not None:
            mapped += 1
            text = reading.operation.template.text
            for name, value in reading.parameters.items():
                text = text.replace(f"{{{name}}}", str(value)).replace(f"{{{name}:int}}", str(value))
                text = text.replace(f"{{{name}...}}", str(value))
            assert text[1:].split("/") == strict(target), target
    assert mapped > 40


@pytest.mark.parametrize("seed", range(3))
def test_a_query_without_doubt_has_one_reading(seed: int) -> None:
    chance = random.Random(seed)
    clear = 0
    for _ in range(ROUNDS):
        parts = []
        for _ in range(chance.randint(0, 3)):
            value = chance.choice(WORDS) + chance.choice(["", *SPOILERS])
            parts.append(chance.choice(NAMES[: chance.choice((2, 9))]) + chance.choice(("=", "=", "=", "")) + value)
        query = chance.choice(("&", "&", ";")).join(parts)
        target = f"/repos/ada/engine/issues?{query}"
        reading = read_target(MAPPING, head_of("GET", target), target.encode())
        if reading.doubt is not None:
            continue
        clear += 1
        assert reading.tool == "list_issues"
        found = {name: value for name, value in reading.parameters.items() if name not in ("owner", "repo")}
        assert found == dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        assert all(len(values) == 1 for values in parse_qs(query, keep_blank_values=True).values())
        assert unquote(query) == query or all(unquote(value) == value for value in map(str, found.values()))
    assert clear > 100


@pytest.mark.parametrize("seed", range(3))
def test_a_body_without_doubt_is_what_every_parser_reads(seed: int) -> None:
    chance = random.Random(seed)
    pieces = ["{", "}", "[", "]", ",", ":", '"a"', '"owner"', '"_method"', '"\\u005fmethod"', "1", "1.50", "null", " ",
              "\n", "\ufeff", '{"a":1}', '{"b":{"c":[1,2]}}', '"body"', "\x00"]  # fmt: skip
    target = "/repos/ada/engine"
    clear = 0
    for _ in range(ROUNDS):
        body = "".join(chance.choice(pieces) for _ in range(chance.randint(0, 5)))
        head = head_of("PATCH", target, "Content-Type: application/json")
        reading = read_target(MAPPING, head, target.encode())
        args_raw = read_body(reading, head, body.encode())
        try:
            args = parse(args_raw)
        except CanonicalError:
            continue  # the gate finds the same
        if reading.doubt is not None:
            continue
        clear += 1
        value = json.loads(body, parse_float=Decimal) if body else {}
        given = value if isinstance(value, dict) else {"body": value}
        assert args == {"owner": "ada", "repo": "engine", **given}
        assert not {"owner", "repo", "_method"} & set(given)
    assert clear > 100

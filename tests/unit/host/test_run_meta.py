"""What a user says of a run: taken as it is if it can stand in an event, else a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from subluminal.host.identity import discover
from subluminal.host.run_meta import MAX_META_CHARS, MetaFault, checked, meta_text, pairs, parse_meta


@pytest.mark.parametrize(
    ("text", "meta"),
    [
        ("issue_id=ISS-7", {"issue_id": "ISS-7"}),
        ("issue_id=ISS-7, task_type = fix=it ,", {"issue_id": "ISS-7", "task_type": " fix=it "}),
        ('{"issue_id": 7, "tags": ["a", {"b": null}]}', {"issue_id": 7, "tags": ["a", {"b": None}]}),
        (" {} ", {}),
        ("", {}),
    ],
)
def test_an_object_or_pairs_are_taken_as_they_are(text: str, meta: dict[str, Any]) -> None:
    assert parse_meta(text) == meta


@pytest.mark.parametrize(
    "text",
    [
        "words", "=v", "a=1,b", "[1]", "{", '{"a":1', '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}', "caf\udcc3=1",
        '{"a":' * 6 + "1" + "}" * 6, '{"a":' * 600 + "1" + "}" * 600, '{"a":"' + "x" * MAX_META_CHARS + '"}',
        ",".join(f"k{n}=1" for n in range(40)), "k" * 80 + "=1", "server_name=mine", '{"command":"x"}',
    ],
    ids=range(17),
)  # fmt: skip
def test_anything_else_is_left_out_with_one_sentence(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MetaFault):
        parse_meta(text)
    assert discover({"SUB_RUN_ID": "r", "SUB_RUN_META": text}, "h").meta is None
    said = capsys.readouterr().err
    assert said.startswith("sub: SUB_RUN_META is ignored: ") and said.count("\n") == 1 and len(said) < 300


def test_what_is_handed_down_is_read_the_same_below() -> None:
    meta = checked({**pairs(["a=b,c", 'q="{}']), "n": 7, "caf\u00e9": [True, None]})
    assert parse_meta(meta_text(meta)) == meta
    assert json.loads(meta_text(meta)) == meta


def test_what_grows_too_long_by_being_written_is_refused_before_it_is_handed_down() -> None:
    with pytest.raises(MetaFault):
        meta_text({"k": '"' * (MAX_META_CHARS - 20)})

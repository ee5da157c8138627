"""Whatever a provider sends: a client that is told no never finds a call in what passes, however it reads it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.responses_api import custom_call, function_call, message, passed_until, refuse_all, shell_call, stream
from subluminal.model.refused import PREFIX

ITEMS = (
    message("Hm.", 0),
    function_call("echo", '{"text": "hi"}', 1),
    custom_call("apply_patch", "*** Begin Patch", 2),
    shell_call(["ls"], 3),
    {"type": "web_search_call", "id": "ws_4", "status": "completed", "action": {"query": "x"}},
    {"type": "teleport_call", "id": "t_5", "call_id": "call_5", "where": "home"},
)
CALLS = {"function_call", "custom_tool_call", "local_shell_call"}
DATA = stream(*ITEMS)
ROUNDS = 200


def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def without_case(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key.lower(): value for key, value in pairs}


READERS: tuple[Callable[[list[tuple[str, Any]]], dict[str, Any]], ...] = (dict, first_wins, without_case)


def calls_found(out: bytes) -> Iterator[str]:
    """What clients of all kinds would carry out, by items anywhere in an event."""
    for line in out.decode("utf-8", "replace").splitlines():  # at more characters than most do
        field, _, data = line.lstrip("\ufeff").partition(":")
        if field == "data":
            for reader in READERS:
                yield from _calls(_loaded(data, reader))


def _loaded(data: str, reader: Any) -> Any:
    try:
        return json.loads(data, object_pairs_hook=reader)
    except ValueError:
        return None


def _calls(told: Any) -> Iterator[str]:
    """Where a client looks: the item of an event, and the output of an answer."""
    if not isinstance(told, dict):
        return
    answer = told.get("response") if isinstance(told.get("response"), dict) else told
    left = [told.get("item"), answer.get("output")]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            name = str(value.get("name") or value.get("type"))
            runs = value.get("type") in CALLS or (value.get("type") == "teleport_call" and value.get("call_id"))
            if runs and not name.startswith(PREFIX):
                yield name


def test_the_reader_of_these_tests_finds_calls() -> None:
    assert set(calls_found(DATA)) == {"echo", "apply_patch", "local_shell_call", "teleport_call"}


SWAPS = [
    (b'"output_index":1', b'"output_index":2'),
    (b'"output_index":', b'"Output_index":'),
    (b'"output_index":1', b'"output_index":"1"'),
    (b'"call_id":"call_1"', b'"call_id":"call_2"'),
    (b'"call_id":"call_1"', b'"call_id":null'),
    (b'"call_id"', b'"Call_id"'),
    (b'"type":"function_call"', b'"type":"message","type":"function_call"'),
    (b'"type":"function_call"', b'"type":"function_call","type":"message"'),
    (b'"type":"function_call"', b'"Type":"function_call","type":"message"'),
    (b'"type":"function_call"', b'"\\u0074ype":"function_call"'),
    (b'"name":"echo"', b'"name":"subluminal_refused__echo","name":"echo"'),
    (b'"item":', b'"item":null,"item":'),
    (b'"item":', b'"ITEM":'),
    (b'"output":', b'"Output":'),
    (b'"output":[{', b'"output":[],"output":[{'),
    (b"response.output_item.done", b"response.output_text.delta"),
    (b"event: response.output_item.done\n", b""),
    (b"event: response.output_item.done\n", b"event: ping\n"),
    (b"output_item.added", b"output_item.done"),
    (b"output_item.done", b"output_item.added"),
    (b"output_item.done", b"output_item.revised"),
    (b"response.completed", b"response.in_progress"),
    (b"\n\n", b"\r\r"),
    (b"\n\n", b"\r\n\r\n"),
    (b"\n\n", b"\n"),
    (b"data: ", b"data:"),
    (b"data: ", b": "),
    (b"data: ", b": x\xe2\x80\xa8data: "),
    (b"data: ", b"\xef\xbb\xbfdata: "),
    (b"event: ", b"\xef\xbb\xbfevent: "),
    (b'"delta":"', b'"delta":"\\\rdata: '),
    (b"data: ", b"data: \ndata: "),
]


def _changed(chance: random.Random) -> bytes:
    events = DATA.split(b"\n\n")[:-1]
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(events))
        match chance.randrange(6):
            case 0:
                events.insert(chance.randrange(len(events)), events[place])
            case 1:
                del events[place]
            case 2:
                events[place] = events[place][: chance.randrange(1, len(events[place]))]
            case 3:
                other = chance.randrange(len(events))
                events[place], events[other] = events[other], events[place]
            case 4:
                byte = chance.randrange(len(events[place]))
                events[place] = events[place][:byte] + bytes([chance.randrange(256)]) + events[place][byte + 1 :]
            case _:
                old, new = chance.choice(SWAPS)
                events[place] = (events[place] + b"\n\n").replace(old, new).removesuffix(b"\n\n")
    data = b"\n\n".join(events) + b"\n\n"
    if chance.random() < 0.3:
        old, new = chance.choice(SWAPS)
        data = data.replace(old, new, chance.choice((1, 2, -1)))
    return data


@pytest.mark.parametrize("seed", range(8))
def test_no_call_is_found_in_what_passes_when_all_are_refused(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        data = _changed(chance)
        size = chance.choice((1 << 20, 200, 1_000))
        result = passed_until(data, refuse_all, max_call_bytes=size)
        assert not list(calls_found(result.out)), data
        cut = chance.randrange(len(data))
        again = passed_until([data[:cut], data[cut:]], refuse_all, max_call_bytes=size)
        assert (again.out, again.broken) == (result.out, result.broken), data


@pytest.mark.parametrize("old_new", SWAPS, ids=lambda pair: f"{pair[0].decode()!r} to {pair[1].decode()!r}")
def test_each_change_alone(old_new: tuple[bytes, bytes]) -> None:
    for count in (1, -1):
        result = passed_until(DATA.replace(*old_new, count), refuse_all)
        assert not list(calls_found(result.out))


@pytest.mark.parametrize("seed", range(4))
def test_a_whole_answer_has_no_call_either(seed: int) -> None:
    chance = random.Random(seed)
    body = DATA[DATA.rindex(b'"response":') + len(b'"response":') : -len(b"}\n\n")]
    for _ in range(ROUNDS):
        old, new = chance.choice(SWAPS)
        data = body.replace(old, new, chance.choice((1, -1)))
        at = chance.randrange(len(data))
        if chance.random() < 0.5:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        out = passed_until(data, refuse_all, streamed=False).out
        assert not list(calls_found(b"data: " + out.replace(b"\n", b" "))), data

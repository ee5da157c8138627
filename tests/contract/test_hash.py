"""HASH: args_hash as the shim writes it, for arguments as they come over the wire."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.shim import Shim

# The same object, spelled in every way that JSON allows without changing its meaning.
SPELLINGS = (
    '{"title":"Ä \\"quoted\\"","labels":["b","a"],"estimate":3,"nested":{"z":null,"a":true}}',
    '{"nested":{"a":true,"z":null},"estimate":3,"labels":["b","a"],"title":"Ä \\"quoted\\""}',
    '{ "estimate" : 3.0 , "labels" : [ "b" , "a" ] , "nested" : { "z" : null , "a" : true } , '
    '"title" : "\\u00c4 \\u0022quoted\\"" }',
    '{"estimate":30e-1,"title":"Ä \\"quoted\\"","labels":["b","\\u0061"],"nested":{"z":null,"a":true}}',
)
CANONICAL = '{"estimate":3,"labels":["b","a"],"nested":{"a":true,"z":null},"title":"Ä \\"quoted\\""}'
# sha256 of CANONICAL, computed once outside this project with `sha256sum`.
GOLDEN = "d4d96dbafa04f69370bab14ef06fec8d1ffe927e2b3cdb541cf39c69e59e1fcc"


def hashes(tmp_path: Path, *argument_texts: str) -> list[str]:
    setup = Shim(tmp_path, "linear", fake_server(tools={"create": {}}))
    with setup.start() as agent:
        agent.initialize()
        for number, text in enumerate(argument_texts):
            params = f'{{"name":"create","arguments":{text}}}'
            agent.send_raw(f'{{"jsonrpc":"2.0","id":"{number}","method":"tools/call","params":{params}}}\n'.encode())
            assert "result" in agent.reply(str(number))
        agent.finish()
    setup.events.wait_type("run_end")
    starts = [event["call"]["args_hash"] for event in setup.events.events_of("tool_call_start")]
    for kind in ("tool_call_decision", "tool_call_end"):
        assert [event["call"]["args_hash"] for event in setup.events.events_of(kind)] == starts
    return starts


@pytest.mark.contract("HASH-001")
def test_key_order_and_spelling_do_not_change_the_hash(tmp_path: Path) -> None:
    found = hashes(tmp_path, *SPELLINGS)
    assert len(found) == len(SPELLINGS)
    assert len(set(found)) == 1


@pytest.mark.contract("HASH-001")
def test_what_means_something_else_has_another_hash(tmp_path: Path) -> None:
    texts = ['{"a":[1,2]}', '{"a":[2,1]}', '{"a":"1"}', '{"a":1}', '{"a":null}', "{}", '{"A":1}', '{"a":true}']
    assert len(set(hashes(tmp_path, *texts))) == len(texts)


@pytest.mark.contract("HASH-002")
def test_fixed_arguments_have_the_golden_hash_every_time(tmp_path: Path) -> None:
    assert hashlib.sha256(CANONICAL.encode()).hexdigest() == GOLDEN
    for attempt in ("first", "second", "third"):
        home = tmp_path / attempt
        home.mkdir()
        assert hashes(home, SPELLINGS[0]) == [GOLDEN]


@pytest.mark.contract("HASH-002")
def test_no_arguments_hash_as_the_empty_object(tmp_path: Path) -> None:
    assert hashes(tmp_path, "{}") == ["44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"]

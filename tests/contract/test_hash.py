"""HASH: args_hash as any adapter records it, for arguments as clients spell them."""

from __future__ import annotations

import hashlib

import pytest

from contract.conftest import Play

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


def hashes(play: Play, *argument_texts: str) -> list[str]:
    events = play("allow_all.yaml", *[("create", text) for text in argument_texts]).events
    starts = [event["call"]["args_hash"] for event in events.events_of("tool_call_start")]
    for kind in ("tool_call_decision", "tool_call_end"):
        assert [event["call"]["args_hash"] for event in events.events_of(kind)] == starts
    return starts


@pytest.mark.contract("HASH-001")
def test_key_order_and_spelling_do_not_change_the_hash(play: Play) -> None:
    found = hashes(play, *SPELLINGS)
    assert len(found) == len(SPELLINGS)
    assert len(set(found)) == 1


@pytest.mark.contract("HASH-001")
def test_what_means_something_else_has_another_hash(play: Play) -> None:
    texts = ['{"a":[1,2]}', '{"a":[2,1]}', '{"a":"1"}', '{"a":1}', '{"a":null}', "{}", '{"A":1}', '{"a":true}']
    assert len(set(hashes(play, *texts))) == len(texts)


@pytest.mark.contract("HASH-002")
@pytest.mark.parametrize("attempt", ["once", "again"])
def test_fixed_arguments_have_the_golden_hash_every_time(play: Play, attempt: str) -> None:
    assert hashlib.sha256(CANONICAL.encode()).hexdigest() == GOLDEN
    assert hashes(play, SPELLINGS[0], SPELLINGS[0]) == [GOLDEN, GOLDEN]


@pytest.mark.contract("HASH-002")
def test_no_arguments_hash_as_the_empty_object(play: Play) -> None:
    assert hashes(play, "{}") == ["44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"]

"""HASH: args_hash as any adapter records it, for arguments as clients spell them."""

from __future__ import annotations

import hashlib

import pytest

from harness.adapters.every import ADAPTERS, Played

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


OTHERS = ('{"a":[1,2]}', '{"a":[2,1]}', '{"a":"1"}', '{"a":1}', '{"a":null}', "{}", '{"A":1}', '{"a":true}')


@pytest.fixture(scope="module", params=ADAPTERS, ids=[each.name for each in ADAPTERS])
def hashes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The hashes of each text, as an adapter records them in two runs of two processes."""
    texts = (*SPELLINGS, *OTHERS, SPELLINGS[0])
    found: dict[str, list[str]] = {text: [] for text in texts}
    for _ in range(2):
        calls = [("create", text) for text in texts]
        events = Played(request.param, tmp_path_factory.mktemp("run"), "allow_all.yaml", *calls).events
        starts = [event["call"]["args_hash"] for event in events.events_of("tool_call_start")]
        for kind in ("tool_call_decision", "tool_call_end"):
            assert [event["call"]["args_hash"] for event in events.events_of(kind)] == starts
        for text, hash_ in zip(texts, starts, strict=True):
            found[text].append(hash_)
    return found


@pytest.mark.contract("HASH-001")
def test_key_order_and_spelling_do_not_change_the_hash(hashes: dict[str, list[str]]) -> None:
    assert len({hash_ for text in SPELLINGS for hash_ in hashes[text]}) == 1


@pytest.mark.contract("HASH-001")
def test_what_means_something_else_has_another_hash(hashes: dict[str, list[str]]) -> None:
    assert len({hash_ for text in OTHERS for hash_ in hashes[text]}) == len(OTHERS)


@pytest.mark.contract("HASH-002")
def test_fixed_arguments_have_the_golden_hash_every_time(hashes: dict[str, list[str]]) -> None:
    assert hashlib.sha256(CANONICAL.encode()).hexdigest() == GOLDEN
    assert hashes[SPELLINGS[0]] == [GOLDEN] * 4, "twice in each run"


@pytest.mark.contract("HASH-002")
def test_no_arguments_hash_as_the_empty_object(hashes: dict[str, list[str]]) -> None:
    assert set(hashes["{}"]) == {"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}

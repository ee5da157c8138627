"""Contract A: what every event must hold, may hold, and how it stands on its line."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest

from harness import places
from subluminal.contracts import events, vocabulary
from subluminal.contracts.events import decode_event, encode_event

LINES = (places.FIXTURES / "events.jsonl").read_bytes().splitlines(keepends=True)
EXAMPLES = [json.loads(line) for line in LINES]

ENVELOPE = "v ts run_id agent_id client env source source.host_id source.proc_id source.shim_id"
POLICY = "policy.policy_id policy.policy_version policy.policy_hash"
CALL = "call call.call_id call.server_name call.tool_name call.args_hash"
HINT = "hint hint.hint_text hint.suggested_args hint.retry_advice hint.hint_kind"
# §1.4 to §1.8 and §3.3, word for word: what an event of each type cannot be without.
REQUIRED = {
    "run_start": "run run.started_at run.mode run.policy " + POLICY.replace("policy.p", "run.policy.p"),
    "tool_call_start": CALL + " call.transport call.bytes_in call.preview call.preview.truncated call.seq",
    "tool_call_decision": CALL
    + " decision decision.action decision.rule_id decision.severity decision.explain decision.explain.summary"
    + " decision.explain.reason_code decision.policy "
    + POLICY.replace("policy.p", "decision.policy.p"),
    "tool_call_end": CALL + " status latency_ms bytes_out preview preview.truncated",
    "run_end": "run run.ended_at run.status run.summary run.summary.calls_total run.summary.calls_allowed"
    " run.summary.calls_blocked run.summary.calls_throttled run.summary.errors_total run.summary.duration_ms",
    "hint_issued": "call call.call_id " + HINT,
    "secret_injection": "secret secret.inject_as secret.secret_ref secret.source secret.success",
}
# What the pack calls optional or recommended.
OPTIONAL = {
    "run_start": "principal workload run.meta",
    "tool_call_start": "principal workload call.tags call.timeout_ms call.preview.args_preview call.args_stream_hash",
    "tool_call_decision": "principal workload",
    "tool_call_end": "principal workload preview.result_preview error error.message error.code error.retryable"
    " result_stream_hash",
}
ENUMS = {
    "client": vocabulary.CLIENTS,
    "env": vocabulary.ENVS,
    "run.mode": vocabulary.MODES,
    "run.status": vocabulary.RUN_STATUSES,
    "call.transport": vocabulary.TRANSPORTS,
    "decision.action": vocabulary.ACTIONS,
    "decision.severity": vocabulary.SEVERITIES,
    "status": vocabulary.STATUSES,
    "error.class": vocabulary.ERROR_CLASSES,
    "hint.hint_kind": vocabulary.HINT_KINDS,
    "secret.source": vocabulary.SECRET_SOURCES,
    "breaker.scope": vocabulary.SCOPES,
}


def parent(event, path):
    *above, last = path.split(".")
    for name in above:
        event = event[name]
    return event, last


def without(event, path):
    changed = copy.deepcopy(event)
    holder, last = parent(changed, path)
    del holder[last]
    return json.dumps(changed).encode()


def cases(table):
    return [
        pytest.param(example, path, id=f"{example['type']}-{path}")
        for example in {example["type"]: example for example in EXAMPLES}.values()
        for path in (table.get(example["type"], "")).split()
    ]


def objects(value):
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from objects(item)


def test_there_is_an_example_and_a_type_for_every_word_of_the_vocabulary():
    words = {*vocabulary.EVENT_TYPES, *vocabulary.ADDITIVE_EVENT_TYPES}
    assert {example["type"] for example in EXAMPLES} == words
    assert {type_.__struct_config__.tag for type_ in events.Event.__args__} == words


def test_what_is_additive_is_no_word_of_the_pack():
    assert not set(vocabulary.ADDITIVE_EVENT_TYPES) & set(vocabulary.EVENT_TYPES)
    assert len(vocabulary.EVENT_TYPES) == 10


@pytest.mark.parametrize("line", LINES, ids=[example["type"] for example in EXAMPLES])
def test_an_event_is_one_line_with_its_keys_in_a_fixed_order(line):
    assert encode_event(decode_event(line)) == line
    assert line.endswith(b"}\n") and line.count(b"\n") == 1
    assert list(json.loads(line))[:7] == ["type", "v", "ts", "run_id", "agent_id", "client", "env"]


def test_newlines_inside_an_event_do_not_break_its_line():
    event = decode_event(LINES[1])
    event.call.tool_name = "two\nlines\r\u2028"
    line = encode_event(event)
    assert line.count(b"\n") == 1 and b"\r" not in line
    assert decode_event(line) == event


@pytest.mark.parametrize(("example", "path"), cases(dict.fromkeys(vocabulary.EVENT_TYPES, ENVELOPE)))
def test_every_event_needs_the_whole_envelope(example, path):
    with pytest.raises(msgspec.ValidationError, match=path.rsplit(".", 1)[-1]):
        decode_event(without(example, path))


@pytest.mark.parametrize(("example", "path"), cases(REQUIRED))
def test_a_required_field_cannot_be_left_out(example, path):
    with pytest.raises(msgspec.ValidationError, match=path.rsplit(".", 1)[-1]):
        decode_event(without(example, path))


@pytest.mark.parametrize(("example", "path"), cases(OPTIONAL))
def test_an_optional_field_can_be_left_out_and_stays_out(example, path):
    line = without(example, path)
    assert json.loads(encode_event(decode_event(line))) == json.loads(line)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["type"])
def test_unknown_fields_are_ignored_wherever_they_stand(example):
    freeform = [
        example.get("workload"),
        example.get("run", {}).get("meta"),
        example.get("call", {}).get("call_context"),
        *objects(example.get("promote", {}).get("change")),
        *(item["fields"] for item in example.get("tools", {}).get("items", [])),
    ]
    freeform.append(example.get("hint", example.get("decision", {}).get("hint", {})).get("suggested_args"))
    changed = copy.deepcopy(example)
    known = {id(new) for new, old in zip(objects(changed), objects(example), strict=True) if old not in freeform}
    for holder in list(objects(changed)):
        if id(holder) in known and holder is not changed.get("workload", {}).get("labels"):
            holder["from_the_future"] = {"deep": [1, 2.5]}
    assert decode_event(json.dumps(changed).encode()) == decode_event(json.dumps(example).encode())


@pytest.mark.parametrize("path", ENUMS)
def test_words_are_exactly_those_of_the_vocabulary(path):
    tried = 0
    for example in EXAMPLES:
        try:
            parent(copy.deepcopy(example), path)[0][path.rsplit(".", 1)[-1]]
        except (KeyError, TypeError):
            continue
        tried += 1
        for word in ENUMS[path]:
            changed = copy.deepcopy(example)
            holder, last = parent(changed, path)
            holder[last] = word
            decode_event(json.dumps(changed).encode())
        holder[last] = "SOMETHING_ELSE"
        with pytest.raises(msgspec.ValidationError):
            decode_event(json.dumps(changed).encode())
    assert tried


@pytest.mark.parametrize(
    "ts",
    [
        "2025-12-15 12:34:56Z",
        "2025-12-15T12:34:56+01:00",
        "1765802096",
        "",
        "2025-12-15T12:34:56Z\n",
        "٢٠٢٥-12-15T12:34:56Z",
    ],
)
def test_timestamps_are_rfc3339_in_utc(ts):
    with pytest.raises(msgspec.ValidationError):
        decode_event(json.dumps({**EXAMPLES[0], "ts": ts}).encode())


@pytest.mark.parametrize("path", ["call.bytes_in", "call.seq", "latency_ms", "bytes_out", "run.summary.calls_total"])
def test_counts_are_never_negative(path):
    for example in EXAMPLES:
        changed = copy.deepcopy(example)
        try:
            holder, last = parent(changed, path)
            holder[last] += -1 - holder[last]
        except KeyError:
            continue
        with pytest.raises(msgspec.ValidationError):
            decode_event(json.dumps(changed).encode())
        return
    raise AssertionError(f"no example has {path}")


def test_call_numbers_start_at_one():
    changed = copy.deepcopy(EXAMPLES[1])
    changed["call"]["seq"] = 0
    with pytest.raises(msgspec.ValidationError):
        decode_event(json.dumps(changed).encode())

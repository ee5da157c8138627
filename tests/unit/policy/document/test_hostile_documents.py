"""A repository's policy file is written by whoever wrote the repository: it may be slow to write, never to refuse."""

from __future__ import annotations

import pytest

from harness.effort import calls_made
from subluminal.policy.document.tree import MAX_DEPTH, MAX_SOURCE_BYTES, parse_document, plain_value
from subluminal.policy.lint.findings import Finding
from subluminal.policy.lint.load import load_bundle

GOOD = b"""policy_id: p
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
  - rule_id: a
    kind: deny
    enabled: true
    severity: warn
    match: {tool_name: {glob: ["rm*"]}}
    effect: {action: BLOCK, message: "no \xe2\x80\x94 never"}
"""


def codes(source: bytes, filename: str = "policy.yaml") -> list[str]:
    return [finding.code for finding in load_bundle(source, filename).findings]


def laughs(levels: int) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines).encode()


def alias_chain(length: int) -> bytes:
    """Deep without nesting in the text: each list holds the one before."""
    return "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, length))]).encode()


@pytest.mark.parametrize(
    ("source", "filename", "code"),
    [
        (laughs(12), "policy.yaml", "too-many-nodes"),
        (alias_chain(500), "policy.yaml", "too-deep"),
        (b"[" * 100_000, "policy.yaml", "too-deep"),
        (b"{a: " * 100_000, "policy.yaml", "too-deep"),
        (b"- " * 100_000, "policy.yaml", "too-deep"),
        (b"[" * 100_000, "policy.json", "too-deep"),
        (b'{"a":' * 100_000, "policy.json", "too-deep"),
        (b"x: 1\n" * (10 * 1024 * 1024 // 5), "policy.yaml", "file-too-large"),
        (b'"' + b"x" * (10 * 1024 * 1024) + b'"', "policy.json", "file-too-large"),
        (b"policy_id: !!python/object/apply:os.system [id]\n", "policy.yaml", "yaml-tag"),
        (b"policy_id: !!python/name:os.system\n", "policy.yaml", "yaml-tag"),
        (b"policy_id: !custom {a: 1}\n", "policy.yaml", "yaml-tag"),
        (b"%TAG ! tag:example.com,2000:\n---\n!x y\n", "policy.yaml", "yaml-tag"),
        (b"policy_id: a\0b\n", "policy.yaml", "control-character"),
        (b'policy_id: "a\\0b"\n', "policy.yaml", "control-character"),
        (b'{"policy_id": "a\\u0000b"}', "policy.json", "control-character"),
        (b'{"policy_id": "\\ud800"}', "policy.json", "lone-surrogate"),
        (b"policy_id: \xff\n", "policy.yaml", "not-utf8"),
        ("policy_id: p".encode("utf-16"), "policy.yaml", "not-utf8"),
        (b"? [a, b]\n: c\n", "policy.yaml", "key-not-text"),
        (b"? {a: b}\n: c\n", "policy.yaml", "key-not-text"),
        (b"a: &x [1]\n*x : 2\n", "policy.yaml", "key-not-text"),
        (b"a: *nowhere\n", "policy.yaml", "unknown-alias"),
        (b"a: &a {b: *a}\n", "policy.yaml", "recursive-alias"),
        (b"a: " + b"9" * 5000 + b"\n", "policy.yaml", "number-range"),
        (b"a: 0x" + b"f" * 5000 + b"\n", "policy.yaml", "number-range"),
        (b'{"a": 1e999999999}', "policy.json", "number-range"),
        (b'{"a": NaN}', "policy.json", "json-syntax"),
        (b'{"a": 1} {"b": 2}', "policy.json", "json-syntax"),
        (b"", "policy.yaml", "empty"),
        (b"", "policy.json", "json-syntax"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:20]),
)
def test_a_hostile_file_is_refused_quickly_and_by_name(source: bytes, filename: str, code: str) -> None:
    found: list[str] = []
    assert calls_made(lambda: found.extend(codes(source, filename))) < 100_000
    assert code in found


@pytest.mark.parametrize("place", ["top", "rule", "kind", "risk_class"])
def test_a_flood_of_typing_errors_is_answered_quickly(place: str) -> None:
    unknown = ", ".join(f"polcy_id{i}: 1" for i in range(10_000))
    head = "rule_id: r%d, enabled: true, severity: warn, match: {%s}, effect: {action: BLOCK}"
    source = {
        "top": "{" + unknown + "}",
        "rule": f"rules: [{{kind: deny, {unknown}}}]",
        "kind": "rules: [" + ", ".join("{kind: denny, " + head % (i, "") + "}" for i in range(2_000)) + "]",
        "risk_class": "rules: ["
        + ", ".join("{kind: deny, " + head % (i, f"risk_class: [write-like{i}]") + "}" for i in range(2_000))
        + "]",
    }[place]
    findings: list[Finding] = []
    calls = calls_made(lambda: findings.extend(load_bundle(source.encode(), "policy.yaml").findings))
    assert len(findings) == 100
    assert calls < 10_000_000, "each fault is looked at once; comparing each with each would take many times more"


def test_a_merge_bomb_is_counted_before_it_is_built() -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(100)) + "}"]
    lines += [f"a{i}: &a{i} {{x: [{', '.join([f'*a{i - 1}'] * 20)}], <<: *a{i - 1}}}" for i in range(1, 9)]
    assert "too-many-nodes" in codes("\n".join(lines).encode())


def test_values_at_the_bounds_are_still_read() -> None:
    nested = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert plain_value(parse_document(nested, "x.yaml")) == plain_value(parse_document(nested, "x.json"))
    assert plain_value(parse_document(b"a: 9223372036854775807\n", "x.yaml")) == {"a": 2**63 - 1}
    padded = b"# " + b"x" * (MAX_SOURCE_BYTES - len(GOOD) - 3) + b"\n" + GOOD
    assert codes(padded) == []


@pytest.mark.parametrize(
    "same",
    [
        GOOD,
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        b"%YAML 1.2\n---\n" + GOOD + b"...\n",
        b"# a comment\n\n" + GOOD.replace(b'"1"', b"'1' # quoted"),
    ],
    ids=["plain", "bom", "crlf", "directives", "comments"],
)
def test_a_bom_line_ends_and_comments_do_not_matter(same: bytes) -> None:
    assert load_bundle(same, "policy.yaml").bundle == load_bundle(GOOD, "policy.yaml").bundle is not None


def test_plain_words_follow_yaml_1_2() -> None:
    text = b"{a: no, b: on, c: true, d: 1e3, e: 0o17, f: 1:30, g: 2026-01-31, h: ~, i: .5, j: 0x1F, k: 1_000, l: 1.0}"
    assert plain_value(parse_document(text, "x.yaml")) == {
        "a": "no",
        "b": "on",
        "c": True,
        "d": 1000,
        "e": 15,
        "f": "1:30",
        "g": "2026-01-31",
        "h": None,
        "i": 0.5,
        "j": 31,
        "k": "1_000",
        "l": 1,
    }


def test_anchors_and_merge_keys_spare_repetition() -> None:
    text = b"base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {y: 4, <<: [*b, {z: 5}]}\n"
    tree = plain_value(parse_document(text, "x.yaml"))
    assert tree["one"] == {"x": 1, "y": 3}
    assert tree["two"] == {"x": 1, "y": 4, "z": 5}


def test_json_and_yaml_read_the_same_json() -> None:
    text = b'{"a": [1, -0.5, 1E2, true, null, "\\u00e9\\n\\/\\"\\\\ \xf0\x9f\x98\x80"], "b": {}, "c": []}'
    assert plain_value(parse_document(text, "x.json")) == plain_value(parse_document(text, "x.yaml"))
    assert plain_value(parse_document(b'{"a": "\\ud83d\\ude00"}', "x.json")) == {"a": "😀"}

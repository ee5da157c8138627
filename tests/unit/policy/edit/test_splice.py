"""A policy with one rule more, or a limit raised: every other byte is as it was, whatever its layout."""

from __future__ import annotations

from typing import Any

import pytest

from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.document.tree import parse_policy, plain_value
from subluminal.policy.edit.changes import Change
from subluminal.policy.edit.splice import changed_policy, next_version, with_test
from subluminal.policy.lint.findings import InvalidPolicy

RULE: dict[str, Any] = {
    "rule_id": "allow-x",
    "kind": "allow",
    "match": {"tool_name": {"glob": ["x"]}, "args": {"key_equals": {"branch": "no", "ä: {b}": "it's #1", "n": 1.5}}},
    "effect": {"action": "ALLOW"},
}
HEAD = "policy_id: p\nversion: '1.4' # v\nmode: guardrails\ndefaults: {decision_on_error: BLOCK}\nselectors: {}\n"
BLOCK = """rules:
  # all of it
  - rule_id: first
    kind: deny
    match: {tool_name: {glob: [y]}}   \t# a tab
    effect: {action: BLOCK, message: "grüße 🎉"}

  # why it is denied
  # in two lines
  - rule_id: second
    kind: deny
    match: {}
    effect:
      action: BLOCK
      message: |
        text

        more
"""
LAYOUTS = {
    "block": HEAD + BLOCK,
    "no indentation": HEAD + BLOCK.replace("\n  ", "\n"),
    "crlf": (HEAD + BLOCK).replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + HEAD + BLOCK,
    "no newline at the end": (HEAD + BLOCK).replace(": |\n        text\n\n        more\n", ": text"),
    "something after the rules": "rules:" + BLOCK.removeprefix("rules:") + HEAD,
    "lines that only YAML takes for such": "#" + " \u2028#" * 50 + "\n" + HEAD + BLOCK,
    "a dash on its own line": HEAD + BLOCK.replace("  - rule_id", "  -\n    rule_id"),
    "an anchor": HEAD + BLOCK.replace("- rule_id: second", "- &it\n    rule_id: second"),
    "flow": HEAD + "rules: [{rule_id: first, kind: deny, match: {tool_name: {glob: [y]}}, effect: {action: BLOCK}},"
    " {rule_id: second, kind: deny, match: {}, effect: {action: BLOCK}}]  # end\n",
    "flow on lines": HEAD
    + "rules: [\n  {rule_id: first, kind: deny, match: {tool_name: {glob: [y]}}, effect: {action: BLOCK}},\n"
    "  # the second\n  {rule_id: second, kind: deny, match: {}, effect: {action: BLOCK}},\n]\n",
}  # fmt: skip


def without(text: bytes, added: bytes) -> bytes:
    assert text.count(added) == 1
    return text.replace(added, b"")


@pytest.mark.parametrize("above", ["first", "second", None])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_other_byte_is_as_it_was(layout: str, above: str | None) -> None:
    source = layout.encode()
    after = changed_policy(source, "p.yaml", Change("id", "p", "s", above, RULE), "because")
    wanted = plain_value(parse_policy(source, "p.yaml"))
    wanted["rules"].insert({"first": 0, "second": 1}.get(above or "", 2), RULE)
    wanted["version"] = "1.5"
    assert plain_value(parse_policy(after, "p.yaml")) == wanted
    assert compile_bundle(after, "p.yaml")["version"] == "1.5"
    left, added = after.replace(b"1.5'", b"1.4'"), len(after) - len(source)
    # What is left when one stretch is taken out is the policy as it was.
    assert any(left[:at] + left[at + added :] == source for at in range(len(source) + 1) if left[:at] == source[:at])
    assert (b"\r\n" in source) == (b"\r\n" in after) and after.count(b"\n") - after.count(b"\r\n") in (
        0,
        after.count(b"\n"),
    )


def test_the_comment_of_a_rule_stays_with_it() -> None:
    after = changed_policy(LAYOUTS["block"].encode(), "p.yaml", Change("id", "p", "s", "second", RULE), "because")
    text = after.decode()
    assert text.index("# because") < text.index("allow-x") < text.index("# why it is denied") < text.index("second")


def test_lines_that_end_with_a_bare_carriage_return_are_left_to_a_person() -> None:
    text = (HEAD + BLOCK).replace("\n", "\r").encode()
    compile_bundle(text, "p.yaml")
    with pytest.raises(InvalidPolicy, match="layout cannot be edited"):
        changed_policy(text, "p.yaml", Change("promote-1", "p", "", "second", RULE))


def test_json_stays_json() -> None:
    source = b"""{"policy_id": "p", "version": "9", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"},
 "selectors": {}, "rules": [
   {"rule_id": "first", "kind": "deny", "match": {}, "effect": {"action": "BLOCK"}}
 ]}"""
    for above in ("first", None):
        after = changed_policy(source, "p.json", Change("id", "p", "s", above, RULE))
        assert [rule["rule_id"] for rule in compile_bundle(after, "p.json")["rules"]] == (
            ["allow-x", "first"] if above else ["first", "allow-x"]
        )
        assert compile_bundle(after, "p.json")["version"] == "10"


def test_a_limit_is_raised_where_it_stands_and_nowhere_else() -> None:
    budget = "  - rule_id: %s\n    kind: budget\n    match: {}\n    effect: {budget: %s}  # ten\n"
    plain = "{scope: run, limit_calls: 10, on_exceed: BLOCK}"
    source = (HEAD + "rules:\n" + budget % ("one", plain) + budget % ("two", plain)).encode()
    after = changed_policy(source, "p.yaml", Change("id", "p", "s", "two", limits={"limit_calls": 20}))
    place = source.rindex(b"10")
    assert after == (source[:place] + b"20" + source[place + 2 :]).replace(b"'1.4'", b"'1.5'")
    shared = (HEAD + "rules:\n" + budget % ("one", "&b " + plain) + budget % ("two", "*b")).encode()
    for rule_id in ("one", "two"):
        with pytest.raises(InvalidPolicy, match=r"alias|anchors"):
            changed_policy(shared, "p.yaml", Change("id", "p", "s", rule_id, limits={"limit_calls": 20}))


def test_two_thousand_lines_are_left_alone() -> None:
    rules = "".join(
        f"  # rule {n}\n  - rule_id: r{n}\n    kind: deny\n    match: {{tool_name: {{glob: [t{n}]}}}}\n"
        f"    effect: {{action: BLOCK}}\n"
        for n in range(400)
    )
    source = (HEAD + "rules:\n" + rules).encode()
    assert source.count(b"\n") > 2_000
    after = changed_policy(source, "p.yaml", Change("id", "p", "s", "r200", RULE), "because")
    start = after.index(b"  # because\n")
    end = after.index(b"  # rule 200\n")
    assert (after[:start] + after[end:]).replace(b"'1.5'", b"'1.4'") == source


@pytest.mark.parametrize(
    ("version", "following"),
    [("1", "2"), ("1.4", "1.5"), ("1.9", "1.10"), ("2026-01", "2026-02"), ("09", "10"), ("v3-beta", "v4-beta"),
     ("draft", "draft-1")],
)  # fmt: skip
def test_a_version_is_counted_up(version: str, following: str) -> None:
    assert next_version(version) == following


@pytest.mark.parametrize(
    "tests", ["tests: []\n", "tests:\n  - name: one\n    calls: [{server_name: s, tool_name: t, expect: ALLOW}]\n"]
)
def test_a_test_is_added_as_the_last(tests: str) -> None:
    case = {
        "name": "two: it's",
        "calls": [{"server_name": "s", "tool_name": "t", "args": {"a": [1]}, "expect": "ALLOW"}],
    }
    source = f"# tests\npolicy: p.yaml\n{tests}".encode()
    after = with_test(source, "p.test.yaml", case)
    assert plain_value(parse_policy(after, "p.test.yaml"))["tests"][-1] == case
    assert after.startswith(b"# tests\npolicy: p.yaml\ntests:")

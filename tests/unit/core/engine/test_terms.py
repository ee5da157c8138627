"""A deny without words of its own tells the refused agent its terms."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine import FlatPlaces, Run, compiled, rule
from subluminal.core.engine.hints import MAX_SUMMARY_CHARS


def refused(match: dict[str, Any], args: dict[str, Any], unless: dict[str, Any] | None = None, **effect: Any) -> Any:
    spec = rule("the-rule", "deny", match, **effect)
    if unless is not None:
        spec["unless"] = unless
    decision = Run(compiled(spec), places=FlatPlaces()).call("tool", args).decision
    assert decision.action != "ALLOW"
    return decision


@pytest.mark.parametrize(
    ("asked", "args", "clause"),
    [
        ({"command": {"line": {"programs": ["rm", "curl"]}}}, {"line": "rm x"}, "where `line` runs rm or curl."),
        ({"host_in": {"url": "private"}}, {"url": "http://10.1.1.1/"}, "where the host of `url` is private."),
        ({"path_within": {"path": "/etc"}}, {"path": "/etc/x"}, "where `path` lies in /etc."),
        ({"numeric_range": {"n": {"min": 101}}}, {"n": 200}, "where `n` is at least 101."),
        ({"numeric_range": {"n": {"min": 1, "max": 9}}}, {"n": 2}, "where `n` is 1 to 9."),
        ({"bytes": {"min": 10}}, {"a": "0123456789"}, "where the size of the arguments is at least 10 bytes."),
        ({"has_keys": ["force"]}, {"force": 1}, "where `force` is given."),
        ({"missing_keys": ["dry_run"]}, {}, "where `dry_run` is not given."),
        ({"key_contains": {"text": "codename"}}, {"text": "codename"}, "where `text` has one of its values."),
    ],
)
def test_what_a_deny_asks_for_is_told(asked: dict[str, Any], args: dict[str, Any], clause: str) -> None:
    decision = refused({"args": asked}, args)
    assert f"policy refuses it {clause}" in decision.summary
    assert "codename" not in decision.summary


def test_an_exception_is_told_as_well() -> None:
    decision = refused({}, {"path": "/etc/x"}, {"args": {"path_within": {"path": [".", "/tmp/scratch"]}}})
    assert "except where `path` lies in the repository or working directory or /tmp/scratch." in decision.summary
    assert "Write the path out" not in decision.summary


def test_alternatives_are_told_where_all_can_be() -> None:
    asked = [{"args": {"has_keys": ["a"]}}, {"args": {"has_keys": ["b"]}}]
    assert "where `a` is given or `b` is given." in refused({"any_of": asked}, {"a": 1}).summary
    named = [{"tool_name": {"glob": ["tool"]}}, {"args": {"has_keys": ["b"]}}]
    assert "policy does not permit this call." in refused({"any_of": named}, {}).summary


@pytest.mark.parametrize("message", ["", "Only in Downloads"])
@pytest.mark.parametrize("path", ["~/Downloads/a.zip", "$HOME/Downloads/a.zip"])
def test_a_path_that_servers_may_take_literally_is_to_be_written_out(path: str, message: str) -> None:
    unless = {"args": {"path_within": {"path": "~/Downloads"}}}
    decision = refused({}, {"path": path}, unless, message=message)
    assert "Write the path out in full, without ~ or a variable" in decision.summary
    assert path not in decision.summary
    hint = refused({}, {"path": path}, unless, message=message, action="REJECT_WITH_HINT").hint
    assert "Write the path out in full" in hint.hint_text


def test_a_rule_with_words_of_its_own_keeps_them() -> None:
    decision = refused({"args": {"has_keys": ["a"]}}, {"a": 1}, message="Not like this")
    assert decision.summary.endswith(": Not like this. Do not retry the same call.")


def test_long_terms_are_bounded() -> None:
    hosts = [f"{'x' * 60}{number}.example" for number in range(200)]
    decision = refused({"args": {"host_in": {"url": hosts}}}, {"url": f"http://{hosts[0]}/"})
    assert len(decision.summary) <= MAX_SUMMARY_CHARS
    assert "195 more" in decision.summary

"""Spellings of a value before a real server that coerces them, and policies made to be dear, through a real shim."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness.engine import rule
from harness.fake_server import fake_server
from harness.shim import Shim

# With the Python SDK, as its users write it.
SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("typed")
@server.tool()
def push(force: bool = False, count: int = 0) -> str:
    return f"{force!r} {count!r}"
server.run()
"""

# As they stand in the message, and what the server runs with.
SPELLINGS = [
    ('{"force":true}', "True 0"),
    ('{"force":"true"}', "True 0"),
    ('{"force":1}', "True 0"),
    ('{"force":"yes"}', "True 0"),
    ('{"count":"42"}', "False 42"),
    ('{"count":42.0}', "False 42"),
    ('{"count":"1_000"}', "False 1000"),
    ('{"count":100.99999999999999999999}', "False 101"),
]
STRICTER = [
    rule("no-force", "deny", {"args": {"key_equals": {"force": True}}}),
    rule("not-42", "deny", {"args": {"key_in": {"count": [42, 1000]}}}),
    rule("small", "deny", {"args": {"numeric_range": {"count": {"min": 101}}}}),
]


def bundle(*rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy_id": "p",
        "version": "1",
        "mode": "guardrails",
        "defaults": {"decision_on_error": "BLOCK"},
        "selectors": {},
        "rules": list(rules),
    }


def replies(tmp_path: Path, *rules: dict[str, Any]) -> list[Any]:
    """One for each spelling: what the server ran with, or the rule that refused the call."""
    setup = Shim(tmp_path, "typed", [sys.executable, "-c", SERVER], policy=bundle(*rules))
    found: list[Any] = []
    with setup.start(timeout=60) as agent:
        agent.initialize()
        for number, (arguments, _) in enumerate(SPELLINGS, 100):
            call = f'"method":"tools/call","params":{{"name":"push","arguments":{arguments}}}'
            agent.send_raw(f'{{"jsonrpc":"2.0","id":{number},{call}}}\n'.encode())
            reply = agent.reply(number)
            refused = "error" in reply
            found.append(
                reply["error"]["data"]["subluminal"]["rule_id"] if refused else reply["result"]["content"][0]["text"]
            )
    return found


def test_a_server_with_the_python_sdk_runs_every_spelling_as_the_value(tmp_path: Path) -> None:
    assert replies(tmp_path) == [ran for _, ran in SPELLINGS]


def test_no_spelling_that_the_server_would_run_as_the_value_passes_a_deny(tmp_path: Path) -> None:
    assert replies(tmp_path, *STRICTER) == ["no-force"] * 4 + ["not-42"] * 3 + ["small"]


def test_an_allow_lets_only_the_exact_values_through(tmp_path: Path) -> None:
    allowed = [{**one, "kind": "allow", "effect": {"action": "ALLOW"}} for one in STRICTER]
    ran = [answer for answer in replies(tmp_path, *allowed, rule("nothing-else", "deny")) if answer != "nothing-else"]
    assert ran == ["True 0", "False 42"], "true, and 42.0, which is the number 42"


# -- regexes made to be dear --------------------------------------------------------------------------------------

MAX_GROWTH_KIB = 24 * 1024  # the memory that a set of regexes may use, and what RE2 itself takes


def named(regexes: list[str]) -> dict[str, Any]:
    return rule("dear", "deny", {"tool_name": {"regex": regexes}})


def after_names(tmp_path: Path, *rules: dict[str, Any]) -> tuple[int, list[Any]]:
    """The shim's high-water mark after calls by names that were never seen before, and what became of them."""
    tmp_path.mkdir()
    setup = Shim(tmp_path, "echo", fake_server(tools={"a": {}}), policy=bundle(*rules))
    with setup.start(timeout=60) as agent:
        agent.initialize()
        names = ["a" + bin(number)[2:].replace("0", "b").replace("1", "a") * 12 for number in range(10_000, 10_030)]
        refused = [agent.call(name).get("error", {}).get("data", {}).get("subluminal") for name in names]
        return agent.memory_kib("VmHWM"), refused


def test_the_dearest_legal_regexes_leave_a_shim_small(tmp_path: Path) -> None:
    plain, _ = after_names(tmp_path / "plain", named(["^x$"]))
    dear, refused = after_names(tmp_path / "dear", named([f"(a|b)*a.{{10}}c{number}" for number in range(500)]))
    assert refused == [None] * 30
    assert dear - plain < MAX_GROWTH_KIB


def test_regexes_that_are_too_large_together_are_a_policy_that_does_not_load(tmp_path: Path) -> None:
    plain, _ = after_names(tmp_path / "plain", named(["^x$"]))
    dear, refused = after_names(tmp_path / "dear", named([rf"\pL{{1,8}}{number}" for number in range(2_000)]))
    assert {answer["reason_code"] for answer in refused} == {"POLICY_INVALID"}
    assert dear - plain < MAX_GROWTH_KIB

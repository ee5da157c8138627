"""The story of a run as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from subluminal.agents import claude_code, codex
from subluminal.agents.base import EventBuilder
from subluminal.cli.agents.narrative import Narrative
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent

BUILD = EventBuilder("claude_code")


def told(*groups: list[AgentEvent], verbose: bool = False, status: Any = "SUCCEEDED") -> tuple[str, str]:
    """What went to stdout and to stderr."""
    narrative = Narrative(verbose)
    pieces = [piece for group in groups for event in group for piece in narrative.tell(event)]
    pieces += narrative.end(AgentCompletion("claude_code", status, 0, message=None if status == "SUCCEEDED" else "why"))
    return "".join(p.text for p in pieces if p.is_words), "".join(p.text for p in pieces if not p.is_words)


def test_whole_texts_stand_on_lines_of_their_own() -> None:
    assert told(BUILD.text("one"), BUILD.text("two\n"), BUILD.text("three"))[0] == "one\ntwo\nthree\n"


def test_pieces_of_one_text_are_joined() -> None:
    out, _ = told(BUILD.text("He", delta=True), BUILD.text("llo", delta=True), BUILD.tool_call({"phase": "start"}))
    assert out == "Hello\n"


def test_a_long_text_in_chunks_is_joined() -> None:
    long = "é" * 100_000
    assert told(BUILD.text(long), BUILD.text("next"))[0] == long + "\nnext\n"


def test_tool_calls_are_short_lines_beside_the_words() -> None:
    mcp = {"server_name": "fs", "tool_name": "read", "name": "mcp__fs__read"}
    out, err = told(
        BUILD.text("Reading.", delta=True),
        BUILD.tool_call({"phase": "start", **mcp}),
        BUILD.tool_call({"phase": "delta", **mcp}),
        BUILD.tool_result({"phase": "complete", **mcp, "status": "completed", "bytes_out": 12}),
        BUILD.tool_result({"phase": "fail", "name": "Bash", "status": "failed"}),
    )
    assert out == "Reading.\n"
    assert err == "> fs/read\n< fs/read completed (12 bytes)\n< Bash failed\n"


def test_errors_are_shown_and_status_only_when_asked_for() -> None:
    events = BUILD.status("system init") + BUILD.error("no credit") + BUILD.unknown("x", 1)
    assert told(events)[1] == "! no credit\n"
    assert told(events, verbose=True)[1] == "- system init\n! no credit\n"


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "TIMEOUT"])
def test_an_end_that_is_no_success_is_told_with_its_reason(status: str) -> None:
    assert told(status=status)[1] == f"claude_code {status.lower()}: why\n"


def test_control_sequences_are_shown_and_never_obeyed() -> None:
    assert told(BUILD.text("a\x1b[2Jb\rc\n\td\u202e\n"))[0] == "a\\x1b[2Jb\\rc\n\td\\u202e\n"
    out, err = told(BUILD.text("\x1b]0;title\x07"), BUILD.tool_call({"phase": "start", "name": "\x1b[31m"}))
    assert "\x1b" not in out + err


def test_the_two_mappers_tell_the_same_story() -> None:
    claude = claude_code.Mapper().feed(
        b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"hi"}]}}\n'
    )
    other = codex.Mapper().feed(b'{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"hi"}}\n')
    assert told(claude)[0] == told(other)[0] == "hi\n"

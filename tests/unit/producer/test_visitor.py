"""What a visitor says of itself in headers: taken, left aside, or refused with a sentence."""

from __future__ import annotations

import pytest

from subluminal.producer.visitor import (
    CLIENT_SESSION_HEADERS,
    IDENTITY_HEADERS,
    MAX_ID_CHARS,
    VisitorRefused,
    visitor_of,
)


def test_headers_name_the_run_and_the_agent_in_whatever_case_they_are_written() -> None:
    headers = [(b"Subluminal-Run-Id", b" run-1\t"), (b"SUBLUMINAL-AGENT-ID", b"my agent"), (b"Host", b"x")]
    who = visitor_of(headers, "s1", client="codex")
    assert (who.run_id, who.agent_id, who.client, who.session) == ("run-1", "my agent", "codex", "s1")


def test_a_variable_that_the_client_found_empty_names_nobody() -> None:
    who = visitor_of([(b"Subluminal-Run-Id", b""), (b"Subluminal-Agent-Id", b"  ")], "s")
    assert (who.run_id, who.agent_id, who.client_session) == (None, None, None)


@pytest.mark.parametrize("header", IDENTITY_HEADERS)
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([b"x" * (MAX_ID_CHARS + 1)], "longer than 256 characters"),
        ([b"run\x001"], "printable ASCII"),
        ([b"run\n1"], "printable ASCII"),
        ([b"run\t1"], "printable ASCII"),
        (["run-\u00fc".encode()], "printable ASCII"),
        ([b"\xff\xfe"], "printable ASCII"),
        ([b"a\x7f"], "printable ASCII"),
        ([b"a", b"a"], "more than once"),
        ([b"", b"a"], "more than once"),
    ],
)
def test_hostile_words_are_refused_with_a_sentence_that_does_not_repeat_them(
    header: bytes, values: list[bytes], why: str
) -> None:
    with pytest.raises(VisitorRefused, match=why) as refused:
        visitor_of([(header.upper(), value) for value in values], "s")
    assert header.decode() in refused.value.why.lower()
    assert not any(value and value.decode("latin-1") in refused.value.why for value in values if len(value) > 1)


def test_the_longest_id_is_taken() -> None:
    assert visitor_of([(b"subluminal-run-id", b"x" * MAX_ID_CHARS)], "s").run_id == "x" * MAX_ID_CHARS


def test_a_clients_own_session_says_also_which_client_it_is() -> None:
    who = visitor_of([(b"X-Claude-Code-Session-Id", b"abc"), (b"session-id", b"other")], "s")
    assert (who.client_session, who.client) == ("claude:abc", "claude")
    assert visitor_of([(b"thread-id", b"abc")], "s", client="custom").client == "custom"


@pytest.mark.parametrize("values", [[b"x" * 5000], [b"\xff"], [b"a", b"b"]])
@pytest.mark.parametrize("header", CLIENT_SESSION_HEADERS)
def test_a_clients_own_header_that_cannot_be_used_stops_nothing(header: bytes, values: list[bytes]) -> None:
    assert visitor_of([(header, value) for value in values], "s").client_session is None

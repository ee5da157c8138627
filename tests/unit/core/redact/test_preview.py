"""Previews: masked first, cut afterwards, always readable."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from harness.secret_corpus import TEXT_ENCODINGS, encodings
from subluminal.core.redact.preview import MAX_ERROR_LINE, error_line, preview, previewer
from subluminal.core.redact.redactor import INJECTED, Redactor

SECRET = "ghp_Ab3dEf6hIjKl9nOpQrStUvWxYz0123456789"


@pytest.mark.contract("SEC-001")
def test_a_short_message_is_shown_whole_and_masked() -> None:
    text, truncated, flags = preview(f'{{"t":"{SECRET}"}}'.encode(), 16_384, Redactor([SECRET]))
    assert (text, truncated, flags) == ('{"t":"[REDACTED:injected_secret]"}', False, (INJECTED,))


@pytest.mark.parametrize("name", sorted(TEXT_ENCODINGS))
def test_no_cut_shows_the_head_of_a_secret(name: str) -> None:
    secret = 'Zq"7\\x<9&Kv/WmÜ-' + SECRET
    encoded = TEXT_ENCODINGS[name](secret).encode()
    redactor = Redactor([secret])
    for before in range(60):
        raw = b"." * before + encoded + b"," * 2000
        text, truncated, _ = preview(raw, 40, redactor)
        assert truncated
        assert len(text.encode()) <= 40
        assert text.lstrip(".")[:3] in ("", "[RE", ",,,"), (before, text)


def test_a_secret_that_the_window_cuts_is_masked_to_its_first_character() -> None:
    redactor = Redactor([SECRET])
    for shown in range(1, len(SECRET)):
        raw = b"," * (1024 + 512 - shown) + SECRET.encode() + b"." * 4000
        masked, _ = redactor.mask_window(raw[: 1024 + 512])
        assert masked.startswith(b"," * 900)
        assert masked.rstrip(b",").endswith((b"]", b",")) or masked.endswith(b","), shown
        assert b"gh" not in masked


def test_flags_tell_only_of_what_the_preview_covers() -> None:
    raw = b"," * 100 + SECRET.encode() + b"," * 3000
    assert preview(raw, 101, Redactor([SECRET]))[2] == (INJECTED,)
    assert preview(raw, 100, Redactor([SECRET]))[2] == ()
    edge = b"," * (100 + 511) + b"g" + b"," * 500
    assert preview(edge, 100, Redactor([SECRET])) == ("," * 100, True, ())


def test_masks_longer_than_their_secret_still_respect_the_limit() -> None:
    text, truncated, flags = preview(b"abcd " * 100, 500, Redactor(["abcd"]))
    assert len(text) <= 500
    assert truncated
    assert flags == (INJECTED,)
    assert text.endswith(("] ", "]"))


@pytest.mark.parametrize("limit", range(40))
def test_a_cut_never_parts_a_character_or_an_escape(limit: int) -> None:
    value = 'a"\\\n/é🙂日x\\"'
    for encoded in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        text, truncated, _ = preview(encoded.encode(), limit, Redactor())
        assert len(text.encode()) <= limit
        assert truncated == (limit < len(encoded.encode()))
        assert encoded.startswith(text)
        if truncated and text:
            inner = json.loads(text + '"')
            assert not any(0xD800 <= ord(c) < 0xE000 for c in inner)
            assert value.startswith(inner)


def test_invalid_utf8_is_shown_with_replacements_within_the_limit() -> None:
    text, truncated, _ = preview(b"\xff" * 100, 50, Redactor())
    assert truncated
    assert set(text) == {"\ufffd"}
    assert len(text.encode()) <= 50
    assert preview(b"a\x80b", 50, Redactor()) == ("a\ufffdb", False, ())


def test_random_cuts_of_random_encodings_leak_nothing() -> None:
    rng = random.Random(20261115)
    redactor = Redactor([SECRET])
    for _ in range(40):
        for name, encoded, parts in encodings(SECRET, rng):
            limit = rng.randrange(1, 200)
            raw = b"~" * rng.randrange(0, 250) + encoded + b"~" * rng.randrange(0, 2000)
            text, _, _ = preview(raw, limit, redactor)
            body = text.encode()
            for part in parts:
                assert part[:8] not in body, (name, limit)


def test_an_error_is_one_line_and_a_stack_trace_its_last() -> None:
    redactor = Redactor()
    assert error_line("  first\nsecond", redactor) == "first"
    assert error_line("Traceback (most recent call last):\n  File x\nValueError: no", redactor) == "ValueError: no"
    assert error_line(" \n ", redactor) == ""


def test_an_error_line_is_masked_before_it_is_split_and_cut() -> None:
    multi_line = "first-part\nsecond-part-of-the-secret"
    assert error_line(f"bad key {multi_line}!", Redactor([multi_line])) == "bad key [REDACTED:injected_secret]!"
    for before in range(MAX_ERROR_LINE - 60, MAX_ERROR_LINE + 1):
        line = error_line("." * before + SECRET, Redactor([SECRET]))
        assert len(line) <= MAX_ERROR_LINE
        assert line.lstrip(".") in ("", "[REDACTED:injected_secret]")


def test_a_very_long_error_shows_no_part_of_a_secret_at_its_seams() -> None:
    redactor = Redactor([SECRET])
    for shift in range(0, 45, 3):
        head = "Traceback\n" + "." * (16_384 - 10 - shift)
        tail = "." * (16_384 - len("\nValueError: no") - 20 + shift) + "\nValueError: no"
        assert error_line(head + SECRET + tail, redactor) == "ValueError: no"
        line = error_line("." * 300 + SECRET * 2000, redactor)
        assert SECRET[:6] not in line


def test_what_a_producer_shows_is_the_same_preview_as_json_whatever_its_redactor_looks_for() -> None:
    texts = [
        b'{"a":"b\\n"}',
        b"",
        None,
        b"x" * 99,
        b"x" * 101,
        "é".encode(),
        b"\xff",
        b"my-own-word here",
        SECRET.encode(),
    ]
    for redactor in (Redactor(), Redactor(["my-own-word"]), Redactor(patterns=[("own", "my-own")])):
        show = previewer(100, redactor)
        for text in texts:
            shown, truncated, flags = preview(text, 100, redactor)
            quoted = None if shown is None else msgspec.json.encode(shown).decode()
            assert show(text) == (quoted, truncated, flags)


def test_a_token_that_comes_up_later_is_not_shown_from_then_on() -> None:
    redactor = Redactor()
    show = previewer(100, redactor)
    assert show(b"renewed-0123456789") == ('"renewed-0123456789"', False, ())
    redactor.learn("renewed-0123456789")
    assert show(b"renewed-0123456789") == ('"[REDACTED:injected_secret]"', False, ("injected_secret",))

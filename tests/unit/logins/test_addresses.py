"""URLs that are talked to, shown and opened: one spelling, and nothing that hides in another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subluminal.logins.addresses import Address, AddressError, covers, read
from subluminal.logins.challenge import bearer
from subluminal.logins.scopes import MAX_ALL_CHARS, readable
from subluminal.logins.wording import login_words, said

HOSTILE = st.text(alphabet=st.sampled_from("aB1:/?#[]@!\"'\\%.-_~ \t\r\n\x00\x1b\x7f\xa0é€=&,;"), max_size=60)


@pytest.mark.parametrize(
    ("url", "origin", "target", "resource"),
    [
        ("https://h", "https://h", "/", "https://h"),
        ("HTTPS://H:443/", "https://h", "/", "https://h"),
        ("https://h:8443/a/b/?x=%20", "https://h:8443", "/a/b/?x=%20", "https://h:8443/a/b"),
        ("http://[::1]:80/A", "http://[::1]", "/A", "http://[::1]/A"),
        ("http://localhost:1/a%2Fb", "http://localhost:1", "/a%2Fb", "http://localhost:1/a%2Fb"),
    ],
)
def test_parts_of_a_url(url: str, origin: str, target: str, resource: str) -> None:
    address = read(url)
    assert (address.origin, address.target, address.resource) == (origin, target, resource)


@given(HOSTILE | HOSTILE.map(lambda text: "https://" + text) | HOSTILE.map(lambda text: "http://127.0.0.1" + text))
def test_whatever_is_read_can_be_printed_and_is_read_the_same_again(url: str) -> None:
    try:
        address = read(url)
    except AddressError as error:
        assert str(error).isprintable()
        return
    again = address.origin + address.target
    assert again.isascii() and again.isprintable() and " " not in again
    assert read(again) == address._replace(path=address.path or "/")
    assert address.scheme == "https" or address.is_loopback


@pytest.mark.parametrize(
    ("resource", "server", "fits"),
    [
        ("https://h", "https://h/a/b", True),
        ("https://h/a", "https://h/a/b", True),
        ("https://h/a/", "https://h/a", True),
        ("https://h/a/b", "https://h/a", False),
        ("https://h/a", "https://h/ab", False),
        ("https://h/A", "https://h/a", False),
        ("https://h:444", "https://h/a", False),
        ("https://hh", "https://h/a", False),
        ("http://localhost", "https://localhost/a", False),
    ],
)
def test_what_a_resource_covers(resource: str, server: str, fits: bool) -> None:
    assert covers(read(resource), read(server)) is fits


@given(st.lists(HOSTILE))
def test_any_challenge_is_read_without_an_error(headers: list[str]) -> None:
    found = bearer(["Bearer " + header for header in headers])
    assert (found is None) == (not headers)


@given(st.one_of(st.text(), st.lists(st.one_of(st.text(), st.integers(), st.none())), st.integers()))
def test_scopes_are_bounded_words(words: object) -> None:
    found = readable(words)
    assert all(word.isascii() and word.isprintable() and " " not in word for word in found)
    assert len(" ".join(found)) <= MAX_ALL_CHARS


def test_scopes_beyond_all_bounds_are_left_out() -> None:
    assert len(" ".join(readable([f"{n:0200}" for n in range(1000)]))) <= MAX_ALL_CHARS
    assert len(readable(" ".join(str(n) for n in range(1000)))) <= 101


@given(st.text())
def test_what_a_server_says_is_short_and_printable(text: str) -> None:
    assert said(text).isprintable() and "secret-of-ours" not in said(text + "secret-of-ours", ["secret-of-ours"])


def test_a_command_can_be_typed() -> None:
    assert login_words("my server; rm", "https://h/a?b=c&d") == "sub login 'my server; rm' --url 'https://h/a?b=c&d'"
    assert "\x1b" not in login_words("\x1b[31m", "https://h")


def test_an_address_is_a_value() -> None:
    assert read("https://h/a") == Address("https", "h", 443, "/a", "")

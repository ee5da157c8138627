"""`args.host_in`: the patterns, the readings of a URL, the directions, and what cannot be judged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import calls_made
from subluminal.core.engine.addresses import dotted, ipv4
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.hosts import HostIn, hosts_of, pattern_fault, read_hosts
from subluminal.core.engine.where import MAX_ELEMENTS


def names(url: str) -> list[str]:
    return [host.name for host in read_hosts(url).hosts]


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://Example.COM./p", ["example.com"]),
        ("https://user:pw@example.com:8443/p?q#f", ["example.com"]),
        ("https://good.com@evil.com/", ["evil.com"]),
        ("https://good.com\\@evil.com/", ["evil.com", "good.com"]),
        ("https:evil.com", ["evil.com"]),
        ("https:/\\evil.com", ["evil.com"]),
        ("//evil.com/p", ["evil.com"]),
        ("example.com/p", ["example.com"]),
        ("localhost:8080/p", ["localhost"]),
        ("git@github.com:org/repo", ["github.com"]),
        ("https://ex\tam\nple.com/", ["example.com", "ex"]),
        ("https://ex%61mple.com/", ["ex%61mple.com", "example.com"]),
        ("https://bücher.de/", ["xn--bcher-kva.de"]),
        ("https://BÜCHER。de", ["xn--bcher-kva.de"]),
        ("https://faß.de/", ["fass.de", "xn--fa-hia.de"]),
        ("https://exam\u00adple.com/", ["example.com"]),
        ("http://0x7f.1", ["127.0.0.1"]),
        ("http://010.0.0.1", ["8.0.0.1", "10.0.0.1"]),
        ("http://[::ffff:7f00:1]/", ["127.0.0.1"]),
        ("http://[fe80::1%25eth0]:80/", ["fe80::1"]),
        ("::1", ["::1"]),
        ("view-source:https://evil.com/", ["view-source", "evil.com"]),
        ("/path", []),
        ("", []),
        ("file:///etc/passwd", []),
    ],
)
def test_the_hosts_of_a_url_are_all_that_parsers_find_in_it(url: str, hosts: list[str]) -> None:
    assert names(url) == hosts


def test_a_star_stands_for_any_labels_and_never_for_none() -> None:
    match = HostIn(["*.example.com"], False)
    assert match("https://a.example.com") and match("https://a.b.example.com")
    assert (
        not match("https://example.com")
        and not match("https://notexample.com")
        and not match("https://a.example.com.evil.com")
    )
    assert HostIn(["api-?.example.com"], False)("https://api-1.example.com")


def test_patterns_are_compared_as_hosts_are() -> None:
    for pattern in ("Example.COM", "example.com.", "EXAMPLE.com"):
        assert HostIn([pattern], False)("https://example.com")
    assert HostIn(["*.bücher.de"], False)("https://a.xn--bcher-kva.de/")


@pytest.mark.parametrize(
    ("word", "urls"),
    [
        (
            "loopback",
            [
                "http://127.0.0.1",
                "http://127.8.8.8",
                "http://[::1]",
                "http://localhost",
                "http://a.localhost",
                "http://0",
                "http://[::]",
                "http://2130706433",
                "http://[::ffff:127.0.0.1]",
            ],
        ),
        (
            "private",
            [
                "http://10.1.2.3",
                "http://172.31.0.1",
                "http://192.168.0.1",
                "http://169.254.169.254",
                "http://100.64.0.1",
                "http://[fd00::1]",
                "http://[fe80::1]",
                "http://0xa9fea9fe",
                "http://[::ffff:10.0.0.1]",
            ],
        ),
        ("10.0.0.0/8", ["http://10.255.0.1", "http://0xa.1"]),
        ("1.2.3.4", ["http://1.2.3.4/", "http://[::ffff:1.2.3.4]"]),
        ("2001:db8::/32", ["http://[2001:db8::1]"]),
        ("::1", ["http://[::1]", "http://[0:0:0:0:0:0:0:1]"]),
    ],
)
def test_words_and_networks_hold_addresses_in_every_spelling(word: str, urls: list[str]) -> None:
    for url in urls:
        assert HostIn([word], False)(url) and HostIn([word], True)(url), url
        assert not HostIn(["8.8.8.8", "8.0.0.0/8", "2600::/16"], True)(url), url


@pytest.mark.parametrize("word", ["loopback", "private"])
@pytest.mark.parametrize(
    "url",
    ["http://8.8.8.8", "http://[2600::1]", "http://127.0.0.1.evil.com", "http://10.evil.com", "http://172.32.0.1"],
)
def test_words_hold_nothing_else(word: str, url: str) -> None:
    assert not HostIn([word], True)(url)


def test_an_address_that_may_lead_to_another_is_stopped_by_both() -> None:
    for word, url in (("loopback", "http://[64:ff9b::7f00:1]/"), ("private", "http://[2002:a00:1::]/")):
        assert HostIn([word], True)(url) and not HostIn([word], False)(url)


def test_a_name_of_ones_own_network_is_private_to_a_deny_only() -> None:
    for url in ("http://metadata.google.internal/", "http://printer.local", "http://nas.home.arpa"):
        assert HostIn(["private"], True)(url) and not HostIn(["private"], False)(url)


def test_what_stops_takes_any_reading_and_what_lets_through_takes_all() -> None:
    for url in ("https://good.com\\@evil.com", "https://good.com\n.evil.com"):
        assert HostIn(["good.com"], True)(url) and not HostIn(["good.com"], False)(url)
    assert HostIn(["10.0.0.0/8"], True)("http://010.0.0.1") and not HostIn(["10.0.0.0/8"], False)("http://010.0.0.1")


@pytest.mark.parametrize(
    "url",
    [
        "http://{good,evil}.com",
        "http://256.1.1.1",
        "http://good.com%2f.evil.com",
        "http://[v1.x]",
        "http://a b.com",
        "http://" + "a" * 2000,
    ],
)
def test_a_host_that_is_not_plain_cannot_be_judged(url: str) -> None:
    for generous in (True, False):
        with pytest.raises(Unavailable) as raised:
            HostIn(["*" if not generous else "nothing.test"], generous)(url)
        assert "host" in raised.value.why


@pytest.mark.parametrize("value", ["/path", "", " ", "?q", "file:///x", {}, [], {"url": "http://good.com"}])
def test_what_has_no_host_matches_nothing(value: Any) -> None:
    assert not HostIn(["*"], True)(value) and not HostIn(["*"], False)(value)


def test_a_number_is_an_address_to_what_stops() -> None:
    assert HostIn(["loopback"], True)(2130706433) and not HostIn(["loopback"], False)(2130706433)


def test_what_a_value_was_read_as_is_told() -> None:
    assert (
        HostIn(["x"], True).reading("https://good.com\\@evil.com")
        == "https://good.com\\@evil.com goes to evil.com or good.com"
    )
    assert HostIn(["x"], True).reading("/p") == "/p names no host"
    assert "not written plainly" in HostIn(["x"], True).reading("http://{a}")


@pytest.mark.parametrize(
    "pattern",
    ["example.com", "*.example.com", "private", "loopback", "10.0.0.0/8", "::1", "fd00::/8", "bücher.de", "*"],
)
def test_patterns_that_are_hosts_have_no_fault(pattern: str) -> None:
    assert pattern_fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    ["https://example.com", "example.com/p", "example.com:80", "u@example.com", "a b", "10.0.0.0/99", "x" * 600],
)
def test_patterns_that_are_none_have_one(pattern: str) -> None:
    assert pattern_fault(pattern)


PIECES = st.sampled_from(
    [
        "http",
        "https:",
        "//",
        "/",
        "\\",
        "@",
        ":",
        "good.com",
        "evil.com",
        ".",
        "..",
        "[",
        "]",
        "::1",
        "127.1",
        "0x7f",
        "%2e",
        "%40",
        "%",
        "#",
        "?",
        "\t",
        "\n",
        " ",
        "。",
        "ß",
        "\u00ad",
        "é",
        "\ud800",
        "\0",
        "{",
        "}",
        "file:",
        "xn--",
        "1",
        "<",
        '"',
        "URL:",
    ]
)


@given(st.lists(PIECES, max_size=10).map("".join))
def test_nothing_but_an_answer_or_a_reason_comes_of_a_text(url: str) -> None:
    answers = []
    for generous in (True, False):
        try:
            answers.append(HostIn(["good.com", "private", "loopback"], generous)(url))
        except Unavailable as unavailable:
            assert unavailable.why
            answers.append(None)
    assert answers != [False, True]
    assert HostIn(["*"], True).reading(url).isprintable()


@given(st.integers(0, 2**32 - 1))
def test_an_address_is_one_number_in_every_spelling(number: int) -> None:
    parts = [number >> shift & 255 for shift in (24, 16, 8, 0)]
    spelled = [dotted(number), str(number), hex(number), ".".join(map(hex, parts)), f"{parts[0]}.{number & 0xFFFFFF}"]
    assert all(ipv4(text) == ({number}, True) for text in spelled)
    assert number in ipv4(".".join(f"0{part:o}" for part in parts))[0]


def test_a_list_of_hosts_is_read_once_however_many_rules_ask() -> None:
    urls = [f"http://h\u00e9{number}\u00df.org/" for number in range(MAX_ELEMENTS)]
    first, *others = [HostIn([f"h{number}.com"], True) for number in range(10)]
    reading = calls_made(lambda: [first(url) for url in urls])
    assert calls_made(lambda: [host_in(url) for host_in in others for url in urls]) < reading


def test_a_long_name_in_other_letters_is_not_read() -> None:
    long, longest = ("http://" + "\u00e9." * dots + "com/" for dots in (100, 500))
    assert HostIn(["*.com"], True)(long) is True
    with pytest.raises(Unavailable):
        HostIn(["*.com"], True)(longest)
    with pytest.raises(Unavailable):
        HostIn(["*.com"], False)(longest)
    hosts_of.cache_clear()
    assert calls_made(lambda: hosts_of(longest)) < calls_made(lambda: hosts_of(long))

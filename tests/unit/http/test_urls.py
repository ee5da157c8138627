"""URLs of servers: strict, kept as they were written, and never quoted back."""

from __future__ import annotations

import pytest

from subluminal.contracts.errors import SubluminalError
from subluminal.http.urls import Origin, read_url


@pytest.mark.parametrize(
    ("text", "origin", "target", "authority"),
    [
        ("http://h", ("http", "h", 80), "/", b"h"),
        ("https://H.Test/mcp", ("https", "h.test", 443), "/mcp", b"h.test"),
        ("https://h:8443/a%2Fb/../c?x=%6d&y", ("https", "h", 8443), "/a%2Fb/../c?x=%6d&y", b"h:8443"),
        ("http://h:80?q", ("http", "h", 80), "/?q", b"h"),
        ("http://[::1]:4000/mcp", ("http", "::1", 4000), "/mcp", b"[::1]:4000"),
        ("https://[2001:DB8::1]/", ("https", "2001:db8::1", 443), "/", b"[2001:db8::1]"),
    ],
)
def test_a_url(text: str, origin: tuple[str, str, int], target: str, authority: bytes) -> None:
    url = read_url(text)
    assert (url.origin, url.target) == (Origin(*origin), target)
    assert url.origin.authority == authority
    assert url.path == target.partition("?")[0]
    assert read_url(str(url)) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h/mcp",
        "ftp://secret/",
        "http:///secret",
        "http://user:secret@h/",
        "http://secret@h/",
        "http://h/#secret",
        "http://h/secret space",
        "http://h/secr\u00e9t",
        "http://h/secret\r\nX: 1",
        "http://h/secret\n",
        "http://h:secret/",
        "http://h:0/secret",
        "http://h:65536/secret",
        "http://h:123456/secret",
        "http://[::1/secret",
        "http://h\\secret/",
        " http://h/secret",
    ],
)
def test_anything_else_is_a_sentence_without_it(text: str) -> None:
    with pytest.raises(SubluminalError) as caught:
        read_url(text)
    assert "secr" not in f"{caught.value} {caught.value.hint}"

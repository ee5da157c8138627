"""Random secrets, random texts around them, and every encoding a tool may apply: the same for each seed."""

from __future__ import annotations

import base64
import html
import json
import random
import string
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

ALPHABETS = (
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "_-",
    string.ascii_letters + string.digits + "+/=",
    string.printable[:95],
    string.printable[:95] + "\n\t\"\\<>&'",
    string.ascii_letters + "äöüßéñ日本語🙂\u2028 ",
    "\"\\/<>&'%+\n ;=u0x",
)
PREFIXES = ("", "", "ghp_", "sk-ant-api03-", "xoxb-", "AKIA", "-----BEGIN KEY-----\n")


def random_secret(rng: random.Random) -> str:
    length = rng.choice((4, 6, 8, 12, 20, 32, 40, 64, 100, 300))
    alphabet = rng.choice(ALPHABETS)
    return (rng.choice(PREFIXES) + "".join(rng.choice(alphabet) for _ in range(length)))[: max(length, 4)]


def filler(rng: random.Random) -> str:
    """No letters that could continue a base64 or hex run are needed: real texts have any neighbour."""
    words = ("path", "/usr/lib", '{"a": 1}', "line\n", "x=1&y=2", "ü", "\\", "%20", "AAAA", "9", "")
    return "".join(rng.choice(words) for _ in range(rng.randrange(6)))


def json_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def json_utf8(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def json_slash(text: str) -> str:
    return json_ascii(text).replace("/", "\\/")


def json_html_safe(text: str) -> str:
    """As encoders do whose output goes into a page."""
    out = json_ascii(text)
    for c in "<>&'":
        out = out.replace(c, f"\\u{ord(c):04X}")
    return out


def unicode_escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def percent_lower(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else quote(c, safe="").lower() for c in text)


def percent_all(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def html_numeric(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"&#{ord(c)};" for c in text)


TEXT_ENCODINGS = {
    "raw": str,
    "json": json_ascii,
    "json utf-8": json_utf8,
    "json slash": json_slash,
    "json for html": json_html_safe,
    "json in json": lambda s: json_ascii(json_ascii(s)),
    "json in json in json": lambda s: json_ascii(json_ascii(json_ascii(s))),
    "unicode escapes": unicode_escaped,
    "unicode escapes in json": lambda s: json_ascii(unicode_escaped(s)),
    "percent": lambda s: quote(s, safe=""),
    "percent, slash kept": quote,
    "percent, as encodeURIComponent": lambda s: quote(s, safe="!'()*~"),
    "percent lower": percent_lower,
    "percent all": percent_all,
    "percent twice": lambda s: quote(quote(s, safe=""), safe=""),
    "form": quote_plus,
    "html": html.escape,
    "html without quotes": lambda s: html.escape(s, quote=False),
    "html numeric": html_numeric,
    "html in json": lambda s: json_ascii(html.escape(s)),
    "json in html": lambda s: html.escape(json_ascii(s)),
    "json in form": lambda s: quote_plus(json_ascii(s)),
}


def encodings(secret: str, rng: random.Random) -> Iterator[tuple[str, bytes, list[bytes]]]:
    """(name, the encoded text, parts of it that must not survive)."""
    for name, encode in TEXT_ENCODINGS.items():
        text = encode(secret).encode("utf-8", "surrogatepass")
        yield name, text, [text]
    value = secret.encode()
    yield "hex", value.hex().encode(), [value.hex().encode()]
    yield "HEX", value.hex().upper().encode(), [value.hex().upper().encode()]
    yield from _rows(secret, value, rng)
    for offset in range(3):
        before = bytes(rng.randrange(256) for _ in range(offset + 3))
        after = bytes(rng.randrange(256) for _ in range(rng.randrange(5)))
        for alphabet, encode in (("base64", base64.b64encode), ("base64url", base64.urlsafe_b64encode)):
            whole = encode(before + value + after)
            first = 8 * len(before) // 6 + (8 * len(before) % 6 > 0)
            inner = whole[first : 8 * (len(before) + len(value)) // 6]
            yield f"{alphabet} at {offset}", whole, [inner]
            yield f"{alphabet} at {offset}, in json", whole.replace(b"/", b"\\/"), [inner.replace(b"/", b"\\/")]
        # Wrapped into lines, the run is split anywhere: what must not survive is any longer piece of a line of it.
        lead = bytes(rng.randrange(256) for _ in range(rng.randrange(60) // 3 * 3 + offset))
        unwrapped = base64.b64encode(lead + value)
        first = -(-8 * len(lead) // 6)
        inner = unwrapped[first : 8 * (len(lead) + len(value)) // 6]
        lines = base64.encodebytes(lead + value).replace(b"\n", b"\\n")
        yield f"base64 at {offset}, wrapped", lines, [inner[:6], inner[-6:]] if len(inner) >= 12 else [inner]


def _rows(secret: str, value: bytes, rng: random.Random) -> Iterator[tuple[str, bytes, list[bytes]]]:
    """Encodings that are masked as a whole row."""
    for separator in ":- .":
        for name, digits in (("hex", value.hex(separator)), ("HEX", value.hex(separator).upper())):
            yield f"{name} parted by {separator!r}", digits.encode(), [digits.encode()]
    for name, numbers in (
        ("C array", ", ".join(f"0x{byte:02x}" for byte in value)),
        ("escapes", "".join(f"\\x{byte:02x}" for byte in value)),
        ("JSON array", "[" + ",".join(map(str, value)) + "]"),
        ("indented JSON array", json.dumps(list(value), indent=2)),
    ):
        yield name, numbers.encode(), [numbers.strip("[]").encode()]
    for offset in range(5):
        before = bytes(rng.randrange(256) for _ in range(offset + 5))
        whole = base64.b32encode(before + value + b"after")
        inner = whole[-(-8 * len(before) // 5) : 8 * (len(before) + len(value)) // 5]
        yield f"base32 at {offset}", whole, [inner]
        yield f"base32 at {offset}, in small letters", whole.lower(), [inner.lower()]
    for offset in range(9):
        inner = base64.b64encode(b"abc"[: offset % 3] + value + b"z" * rng.randrange(3))
        twice = base64.b64encode(b"abc"[: offset // 3] + inner)
        yield f"base64 twice at {offset}", twice, [twice]
        yield f"base64 twice at {offset}, in json", base64.encodebytes(inner).replace(b"\n", b"\\n"), []
    thrice = base64.urlsafe_b64encode(base64.urlsafe_b64encode(base64.urlsafe_b64encode(value)))
    yield "base64 three times", thrice, [thrice]
    for code in ("utf-16-le", "utf-16-be", *(["utf-32-le"] if secret.isascii() else [])):
        wide = secret.encode(code)
        for mark in ("", "\ufeff"):
            marked = mark.encode(code) + wide
            as_text = marked.decode("latin-1")
            yield f"{code} in json", json_ascii(as_text).encode(), [json_ascii(wide.decode("latin-1")).encode()]
            yield f"{code} in percent", quote(marked, safe="").encode(), [quote(wide, safe="").encode()]
            yield f"{code} in hex", marked.hex().encode(), [wide.hex().encode()]
            for offset in range(3):
                whole = base64.b64encode(b"abc"[:offset] + marked)
                yield f"{code} in base64 at {offset}", whole, [whole[6:-2]]

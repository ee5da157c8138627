r"""Whether a text may hold anything that `token_shapes` matches: "no" is certain, "yes" is for RE2 to decide.

Every shape needs a word, and something near it that ordinary text with the same word lacks:

    keys        `token`, `password` ...: digits and white space, then a quote, `=`, `:` or a backslash (a shape's own
                sign, or the escape before it); white space alone only behind an option, `--token x`
    tokens      `ghp_`, `AKIA` ...: not inside a word, and as many characters of a token as the shape has at least
    addresses   `@`: back to the slash before the name, a colon or at least twenty characters

Each condition is one that the shape's own pattern cannot match without, never more: tests compare both over generated
texts. This is the specification of `may_hold_credential` in native/credentials.c, which is what makes it worth asking
of long texts: here it costs more than RE2 does above some hundred bytes.
"""

from __future__ import annotations

_WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME = _WORD | frozenset(b"-.")
_TOKEN = _NAME | frozenset(b"+/=%\\")
_DIGITS = frozenset(b"0123456789")
_BLANK = frozenset(b" \t\n\f\r")  # as RE2 reads `\s`
_BEHIND_KEY = frozenset(b"\"'\\=:")
# What the name and password of an address cannot hold.
_NOT_IN_ADDRESS = _BLANK | frozenset(b"?#@\"'<>")
_LONG_NAME = 20

_KEYS = (
    b"password", b"passwd", b"passphrase", b"passcode", b"pwd", b"secret", b"credential", b"credentials", b"token",
)  # fmt: skip
_OWNERS = (b"api", b"access", b"private", b"account", b"encryption", b"signing", b"auth", b"master", b"secret")
# How a token begins, and how many characters of one follow at least.
_BEGINNINGS = (
    (b"AKIA", 16), (b"ASIA", 16), (b"AIza", 35), (b"ya29.", 20), (b"GOCSPX-", 20), (b"ghp_", 30), (b"gho_", 30),
    (b"ghu_", 30), (b"ghs_", 30), (b"ghr_", 30), (b"github_pat_", 40), (b"xox", 12), (b"xapp-", 12), (b"sk-", 20),
    (b"sk_live_", 10), (b"sk_test_", 10), (b"rk_live_", 10), (b"rk_test_", 10), (b"whsec_", 20), (b"npm_", 36),
    (b"pypi-", 40), (b"hf_", 30), (b"SG.", 33), (b"doo_v1_", 40), (b"dop_v1_", 40), (b"dor_v1_", 40), (b"eyJ", 10),
)  # fmt: skip
# The same without a look at what stands before.
_ANYWHERE = ((b"-----BEGIN ", 0), (b"hooks.slack.com", 20), (b"sig=", 20))

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def may_hold_credential(data: bytes) -> bool:
    lowered = data.lower()
    return (
        any(_is_in_address(data, at) for at in _places(data, b"@"))
        or any(_is_key(data, at, at + len(word)) for word in _KEYS for at in _places(lowered, word))
        or any(_is_pin(data, lowered, at) for at in _places(lowered, b"pin"))
        or any(_is_owned_key(data, lowered, at) for at in _places(lowered, b"key"))
        or any(_is_authorization(data, at) for at in _places(lowered, b"authorization"))
        or any(_is_bearer(data, at) for at in _places(lowered, b"bearer"))
        or any(
            _stands_alone(data, at) and _has_run(data, at + len(word), run)
            for word, run in _BEGINNINGS
            for at in _places(data, word)
        )
        or any(_has_run(data, at + len(word), run) for word, run in _ANYWHERE for at in _places(data, word))
        or any(_is_gitlab_token(data, at) for at in _places(data, b"gl"))
    )


def _places(data: bytes, word: bytes) -> Iterator[int]:
    at = data.find(word)
    while at >= 0:
        yield at
        at = data.find(word, at + 1)


def _run_end(data: bytes, at: int, of: frozenset[int]) -> int:
    while at < len(data) and data[at] in of:
        at += 1
    return at


def _is_key(data: bytes, begin: int, end: int) -> bool:
    """Whether what stands from `begin` to `end` is the last word of a key: what follows it decides."""
    digits = _run_end(data, end, _DIGITS)
    blank = _run_end(data, digits, _BLANK)
    if blank < len(data) and data[blank] in _BEHIND_KEY:
        return True
    if blank == digits:
        return False
    first = begin
    while first > 0 and data[first - 1] in _NAME:
        first -= 1
    return b"--" in data[first:begin]


def _is_pin(data: bytes, lowered: bytes, at: int) -> bool:
    """Only with a quote right behind it: this word is part of many others."""
    return lowered[at + 3 : at + 4] in (b'"', b"\\") and _is_key(data, at, at + 3)


def _is_owned_key(data: bytes, lowered: bytes, at: int) -> bool:
    owner_end = at - 1 if data[at - 1 : at] in (b"_", b"-") else at
    if not any(lowered.endswith(owner, 0, owner_end) for owner in _OWNERS):
        return False
    return _is_key(data, at, at + 3) or (lowered.startswith(b"_id", at + 3) and _is_key(data, at, at + 6))


def _is_authorization(data: bytes, at: int) -> bool:
    """`Authorization: Basic ...` may have any signs between the two."""
    behind = at + len(b"authorization")
    if behind == len(data):
        return False
    return data[behind] == 0x5F or data[behind] not in _WORD or _is_key(data, at, behind)


def _is_bearer(data: bytes, at: int) -> bool:
    behind = data[at + 6 : at + 7]
    return _stands_alone(data, at) and behind != b"" and (behind in b"%+" or behind[0] in _BLANK)


def _stands_alone(data: bytes, at: int) -> bool:
    return at == 0 or data[at - 1] not in _WORD


def _has_run(data: bytes, at: int, length: int) -> bool:
    return len(data) - at >= length and all(byte in _TOKEN for byte in data[at : at + length])


def _is_gitlab_token(data: bytes, at: int) -> bool:
    """`glpat-` and a dozen others: two to five small letters, then a hyphen."""
    kind, hyphen, _ = data[at + 2 : at + 8].partition(b"-")
    if not hyphen or not 2 <= len(kind) <= 5 or not all(0x61 <= byte <= 0x7A for byte in kind):
        return False
    return kind[0] in b"pdrscfiao" and _stands_alone(data, at) and _has_run(data, at + 3 + len(kind), 20)


def _is_in_address(data: bytes, at: int) -> bool:
    p = at
    while p > 0 and data[p - 1] not in _NOT_IN_ADDRESS:
        if data[p - 1] == 0x2F:
            return b":" in data[p:at] or at - p >= _LONG_NAME
        p -= 1
    return False

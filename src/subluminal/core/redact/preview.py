r"""A bounded, masked, readable view of a message's arguments or result (contract A, §1.10).

Mask first, cut afterwards: a secret across the edge must not leave its head. The text is masked on a window a little
longer than the limit, so that a value beginning before the edge is recognised whole or by its head.

The cut never falls inside a UTF-8 character, a JSON escape (`\u00e9`, `\"`, a pair of surrogates) or a mask.
"""

from __future__ import annotations

import msgspec

from subluminal.contracts.vocabulary import TRUNCATED
from subluminal.core.redact.redactor import MARGIN, Redactor
from subluminal.native.chosen import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # The text as JSON (None: there is nothing to show), whether it was cut, and the kinds of secret masked in it.
    Preview = tuple[str | None, bool, tuple[str, ...]]

_MASK = b"[REDACTED:"
# The longest name a mask can carry, for looking back from the edge.
_LONGEST_MASK = 96
MAX_ERROR_LINE = 500
_NOTHING: tuple[None, bool, tuple[str, ...]] = (None, False, ())
_TOO_LARGE: tuple[str, bool, tuple[str, ...]] = (TRUNCATED, True, ())
_ERROR_WINDOW = 16_384


def preview(raw: bytes | None, limit: int, redactor: Redactor) -> tuple[str | None, bool, tuple[str, ...]]:
    """The text (at most `limit` bytes of UTF-8), whether anything was cut off, and the kinds of what was masked.

    None goes in for what was too large to hold, and comes out where there is nothing to show.
    """
    if not raw:
        return _NOTHING if raw is not None else _TOO_LARGE
    if len(raw) <= limit:
        masked, flags = redactor.mask(raw)
        truncated = False
    elif len(raw) <= limit + MARGIN:
        masked, flags = redactor.mask(raw)
        truncated = True
    else:
        masked, flags = redactor.mask_window(raw[: limit + MARGIN])
        truncated = True
    if len(masked) > limit:
        # What was masked only beyond the limit is not part of this preview.
        flags = tuple(flag for flag in flags if 0 <= masked.find(b"[REDACTED:%b]" % flag.encode()) < limit)
        masked = masked[: _cut(masked, limit)]
        truncated = True
    if masked.isascii():
        return masked.decode("ascii"), truncated, flags
    return _readable(masked, limit, truncated, flags)


_encode = msgspec.json.Encoder().encode  # two to six times as fast as `json` on long text


def _quote_any(text: str) -> str:
    return _encode(text).decode()


_quote: Callable[[str], str] = _quote_any if core is None else core.bound("quote", _quote_any)


def previewer(limit: int, redactor: Redactor) -> Callable[[bytes | None], Preview]:
    """`preview` with this limit and this redactor, its text as JSON. C takes what is shown as it stands."""

    def twin(raw: bytes | None) -> Preview:
        text, truncated, flags = preview(raw, limit, redactor)
        return None if text is None else _quote(text), truncated, flags

    bound: Callable[[bytes | None], Preview] = (
        twin if core is None else core.bound("preview", twin, limit, redactor, "only_shapes")
    )
    return bound


def _readable(masked: bytes, limit: int, truncated: bool, flags: tuple[str, ...]) -> tuple[str, bool, tuple[str, ...]]:
    text = masked.decode("utf-8", "replace")
    encoded = text.encode("utf-8")
    if len(encoded) > limit:
        # A replacement character takes three bytes where one stood.
        text = encoded[: _cut(encoded, limit)].decode("utf-8", "ignore")
        truncated = True
    return text, truncated, flags


def _cut(data: bytes, limit: int) -> int:
    """The largest place up to `limit` where `data` may end."""
    end = _before_mask(data, max(0, limit))
    # A continuation byte belongs to the character before it. Four steps: invalid text may hold any number of them.
    for _ in range(4):
        if 0 < end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
    # Twice: before the escape that is cut, and then before the high surrogate this parts from its low one.
    return _before_escape(data, _before_escape(data, end))


def _before_mask(data: bytes, end: int) -> int:
    start = data.rfind(_MASK, max(0, end - _LONGEST_MASK), end + len(_MASK) - 1)
    if start < 0 or start >= end:
        return end
    close = data.find(b"]", start)
    return start if close >= end else end


def _before_escape(data: bytes, end: int) -> int:
    """Move before an escape that `end` would cut, and before a high surrogate parted from its low one."""
    for back in range(1, 7):
        at = end - back
        if at < 0 or data[at] != 0x5C:
            continue
        run = at
        while run > 0 and data[run - 1] == 0x5C:
            run -= 1
        if (at - run) % 2:
            return end
        is_unicode = data[at + 1 : at + 2] == b"u"
        if back < (6 if is_unicode else 2):
            return at
        parted = is_unicode and data[at + 2 : at + 4].lower() in (b"d8", b"d9", b"da", b"db")
        return at if parted else end
    return end


def error_line(text: str, redactor: Redactor) -> str:
    """One masked line that says what went wrong; of a stack trace that is the last one (EVT-008: no stack traces).

    Masked before lines are split and cut: a value may go over several lines, or over the edge.
    """
    lines = _masked_ends(text.strip(), redactor).strip().splitlines()
    if not lines:
        return ""
    line = lines[-1] if any("Traceback" in line for line in lines[:3]) else lines[0]
    data = line.strip().encode("utf-8", "surrogatepass")
    if len(data) > MAX_ERROR_LINE:
        data = data[: _cut(data, MAX_ERROR_LINE)]
    return data.decode("utf-8", "replace")


def _masked_ends(text: str, redactor: Redactor) -> str:
    """The whole text; of a very long one its beginning and the whole lines at its end."""
    if len(text) <= 2 * _ERROR_WINDOW:
        return redactor.mask_text(text)
    masked, _ = redactor.mask_window(text[:_ERROR_WINDOW].encode("utf-8", "surrogatepass"))
    # The tail may begin inside a value that could no longer be recognised: its first line is dropped.
    _, _, tail = text[-_ERROR_WINDOW:].partition("\n")
    return masked.decode("utf-8", "surrogatepass") + "\n" + redactor.mask_text(tail)

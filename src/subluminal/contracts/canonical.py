"""§1.9: the only canonical JSON in the project, and `args_hash` over it.

Canonical form: UTF-8, object keys sorted by code point, no white space, arrays in order, strings escaped only where
JSON demands it (`\\"`, `\\\\`, `\\b \\t \\n \\f \\r`, else `\\u00xx` in lower case), and every number in minimal
decimal form, computed from its decimal text and never through a binary float.

Numbers. A number is c * 10**e, where c has no trailing zero; zero has no sign. It is written plainly (`100`, `1.5`,
`0.0000001`) as long as that takes no more than MAX_ZEROS zeros of padding (every IEEE double qualifies), else as
`<c>e<e>` (`1e999999999`), so an exponent buys an attacker next to nothing. Exponents of MAX_EXPONENT_DIGITS digits or
more are refused. Parsed values are `int` where the number is integral and `Decimal` otherwise; integers beyond what
CPython converts from text (640 digits at its strictest setting) may be `Decimal` as well. Both compare exactly.

Speed. msgspec reads and writes; Python code runs only for what msgspec cannot decide:
- Canonical form is the shortest spelling of a value without fractions. So if encoding what was read gives as many
  bytes as were read, there was no white space, no needless escape and no duplicate key.
- Otherwise, as many colons after as before prove that no member was dropped, hence that no key stood twice.
- All else (and every error) goes to `json` with hooks: slower, exact, and the one place that words errors.
Where the C part is built, it reads what is canonical already but for the order of members, and leaves the rest.

Traps: `bytes` given to these functions are JSON text, `str` is a JSON string value. `CanonicalError.kind` is one of
KINDS; messages never quote the input, so that they can be shown anywhere.
"""

from __future__ import annotations

from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import CanonicalError
from subluminal.native.chosen import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Other parsers give up between 64 (.NET) and 10,000 (Go) levels; at 256, code that walks a value with two Python
# frames per level stays well inside CPython's limit of 1,000.
MAX_DEPTH = 256
# 1e400 and the smallest double (5e-324) are still written plainly; `1e400` is the worst amplification, 80-fold.
MAX_ZEROS = 400
MAX_EXPONENT_DIGITS = 16  # keeps exponents far inside what Decimal can hold (18 digits)
MAX_INT_DIGITS = 640  # CPython's int/str conversion limit cannot be set lower than this

KINDS = (
    "invalid_utf8", "lone_surrogate", "invalid_json", "trailing_bytes", "duplicate_key", "too_deep", "not_finite",
    "number_out_of_range", "invalid_value",
)  # fmt: skip

_FEW = 16
_SMALL_INT = 1 << 63
_SHORT = 24  # repr(float) gives at most this many characters
_TOO_MANY_ZEROS = b"0" * (MAX_ZEROS + 1)


class DuplicateKeyError(CanonicalError):
    """Two members of one object have the same key. `key` is the agent's text: do not put it into an event."""

    def __init__(self, key: str) -> None:
        super().__init__("The JSON has an object with the same key twice.", kind="duplicate_key")
        self.key = key


class _Spelled(Decimal):
    """A number whose canonical spelling is not what `str(Decimal)` prints."""

    __slots__ = ("spelling",)
    spelling: msgspec.Raw


def args_hash(value_or_bytes: Any) -> str:
    """SHA-256 of the canonical form, lower-case hex. `bytes` are JSON text, anything else is a value."""
    return digest(canonical_bytes(value_or_bytes))


def digest(canonical: bytes) -> str:
    """The `args_hash` of a form that `read_args` or `canonical_bytes` gave."""
    return sha256_hex(canonical)


def canonical_bytes(value_or_bytes: Any) -> bytes:
    if isinstance(value_or_bytes, (bytes, bytearray, memoryview)):
        return read_args(bytes(value_or_bytes))[1]
    return _encode_checked(_json_value(value_or_bytes, MAX_DEPTH))


def parse(raw: bytes) -> Any:
    """The value of one JSON text, with exact numbers. Raises CanonicalError for anything ambiguous."""
    return read_args(raw)[0]


def _read_args(raw: bytes) -> tuple[Any, bytes]:
    """The value and the canonical form of one JSON text, from one reading."""
    try:
        value = _decode_integers(raw)
        canonical = _encode(value)
    except msgspec.ValidationError:  # a number with a fraction or an exponent, or a very long integer
        return _read_numbers(raw)
    except (ValueError, RecursionError):
        return _read_exactly(raw)
    size = len(canonical)
    # This few bytes can hold neither MAX_DEPTH levels nor MAX_ZEROS + 1 zeros.
    if size == len(raw) and (size <= MAX_ZEROS or _is_flat(value)):
        return value, canonical
    if (size == len(raw) or _nothing_was_dropped(raw, canonical)) and _is_bounded(value, canonical):
        return value, canonical
    return _read_exactly(raw)


def _read_numbers(raw: bytes) -> tuple[Any, bytes]:
    try:
        value = _decode_numbers(raw)
        canonical = _encode(value)
    except (ValueError, RecursionError):
        return _read_exactly(raw)
    if _nothing_was_dropped(raw, canonical) and _is_bounded(value, canonical):
        return value, canonical
    return _read_exactly(raw)


def _read_exactly(raw: bytes) -> tuple[Any, bytes]:
    import json  # ten milliseconds that a well-behaved client never costs us

    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=_object_without_duplicates,
            parse_float=_number,
            parse_int=_integer,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        message = f"The JSON is not valid UTF-8 at byte {error.start}."
        raise CanonicalError(message, kind="invalid_utf8", hint="Encode it as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise _syntax_error(error.msg, len(error.doc[: error.pos].encode(errors="replace"))) from None
    except RecursionError:
        raise _too_deep() from None
    if _is_too_deep(value):
        raise _too_deep()
    return value, _encode_checked(value)


def _syntax_error(reason: str, position: int) -> CanonicalError:
    if reason == "Extra data":
        return CanonicalError(f"The JSON value ends before byte {position}, but more follows.", kind="trailing_bytes")
    return CanonicalError(f"This is not valid JSON: {reason} at byte {position}.", kind="invalid_json")


def _too_deep() -> CanonicalError:
    return CanonicalError(f"The JSON is nested more than {MAX_DEPTH} levels deep.", kind="too_deep")


def _refuse_constant(name: str) -> Any:
    raise CanonicalError(f"The JSON has {name}, which is not a JSON number.", kind="not_finite")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key)
            seen.add(key)
    return members


def _nothing_was_dropped(raw: bytes, canonical: bytes) -> bool:
    """True if no duplicate key was read over: each dropped member would have taken at least its colon with it.

    The canonical form has every colon of the text that was kept, plus one for each escaped colon that was kept; so it
    has as many as the text only if all of them were kept. (`\\\\u003a` is no escaped colon: then the counts differ, and
    the exact path decides.)
    """
    escaped = raw.count(b"\\u003a") + raw.count(b"\\u003A") if b"\\u003" in raw else 0
    return _count(canonical, b":") == _count(raw, b":") + escaped


def _is_bounded(value: Any, canonical: bytes) -> bool:
    if len(canonical) <= MAX_ZEROS:
        return True
    if _TOO_MANY_ZEROS in canonical:  # perhaps an integer that must be written with an exponent
        return False
    return _count(canonical, b"[") + _count(canonical, b"{") <= MAX_DEPTH or not _is_too_deep(value)


def _is_flat(value: Any) -> bool:
    """A few strings by name, as most tools take: nothing that could be too deep or too long a number."""
    if type(value) is not dict or len(value) > _FEW:
        return False
    for item in value.values():
        if type(item) is not str and (type(item) is not int or not -_SMALL_INT < item < _SMALL_INT):
            return False
    return True


def _count(text: bytes, byte: bytes) -> int:
    # bytes.replace looks with memchr, bytes.count does not: 0.1 us against 3.4 us for 10 KiB without a match.
    return len(text) - len(text.replace(byte, b""))


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [container for container in level if type(container) is dict or type(container) is list]
        if not level:
            return False
        level = [item for container in level for item in (container.values() if type(container) is dict else container)]
    return True


def _refuse_number(text: str) -> Any:
    raise ValueError


def _number(text: str) -> int | Decimal:
    """The value of a JSON number with a fraction or an exponent."""
    if "e" in text or "E" in text or text.startswith(("0.000000", "-0.000000")):
        return _short_number(text) if len(text) <= _SHORT else _spelled_number(text)
    text = text.rstrip("0")
    if text[-1] == ".":
        return _integer(text[:-1])
    return Decimal(text)  # prints as it was written


def _short_number(text: str) -> int | Decimal:
    """`_spelled_number` for numbers such as computers print, in two thirds of the time."""
    try:
        number = _Spelled(text)
    except ArithmeticError:  # an exponent that Decimal cannot hold
        return _spelled_number(text)
    if not -_SHORT < number.adjusted() < _SHORT:
        return _spelled_number(text)
    spelling = f"{number:f}"
    if "." in spelling:
        spelling = spelling.rstrip("0")
    if spelling[-1] == "." or "." not in spelling:
        return int(spelling.rstrip("."))
    number.spelling = msgspec.Raw(spelling.encode())
    return number


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= MAX_ZEROS else _spelled_number(text)


def _spelled_number(text: str) -> int | Decimal:
    """Any JSON number: its coefficient and exponent, from the text alone."""
    mantissa, _, exponent_text = text.replace("E", "e").partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa[len(sign) :].partition(".")
    digits = (whole + fraction).lstrip("0")
    coefficient = digits.rstrip("0")
    if not coefficient:
        return 0
    exponent = _exponent(exponent_text) - len(fraction) + len(digits) - len(coefficient)
    spelling = sign + _spell(coefficient, exponent)
    if 0 <= exponent <= MAX_ZEROS and len(spelling) <= MAX_INT_DIGITS:
        return int(spelling)
    number = _Spelled(spelling)
    number.spelling = msgspec.Raw(spelling.encode())
    return number


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) >= MAX_EXPONENT_DIGITS:
        message = f"The JSON has a number whose exponent has {MAX_EXPONENT_DIGITS} digits or more."
        raise CanonicalError(message, kind="number_out_of_range")
    exponent = int(digits or "0")  # without the leading zeros, of which int() would not take 4,300
    return -exponent if text[:1] == "-" else exponent


def _spell(coefficient: str, exponent: int) -> str:
    point = len(coefficient) + exponent  # where the decimal point stands, from the first digit
    if 0 <= exponent <= MAX_ZEROS:
        return coefficient + "0" * exponent
    if exponent < 0 < point:
        return f"{coefficient[:point]}.{coefficient[point:]}"
    if exponent < 0 and -point <= MAX_ZEROS:
        return f"0.{'0' * -point}{coefficient}"
    return f"{coefficient}e{exponent}"


def _json_value(value: Any, levels: int) -> Any:
    """A copy made of exactly the types the encoder writes canonically. Trap: msgspec writes NaN as null."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float, Decimal)):
        return _python_number(value)
    if not isinstance(value, (dict, list, tuple)):
        raise CanonicalError(f"A {type(value).__name__} is not a JSON value.", kind="invalid_value")
    if levels == 0:
        raise _too_deep()
    if not isinstance(value, dict):
        items = []
        for item in value:
            items.append(_json_value(item, levels - 1))  # a comprehension costs a second frame
        return items
    members = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise CanonicalError(f"An object key is a {type(key).__name__}, not a string.", kind="invalid_value")
        members[str.__str__(key)] = _json_value(item, levels - 1)
    return members


def _python_number(value: int | float | Decimal) -> int | Decimal:
    if isinstance(value, int):
        value = int(value)
        # str(Decimal) has no limit on digits, str(int) has.
        return value if value.bit_length() <= 1024 else _spelled_number(str(Decimal(value)))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise CanonicalError(f"{value} is not a JSON number.", kind="not_finite")
        return _spelled_number(str(Decimal(value)))
    text = float.__repr__(value)
    if text[-1] in "fn":
        raise CanonicalError(f"{text} is not a JSON number.", kind="not_finite")
    return _spelled_number(text)


def _encode_checked(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        message = "The JSON has half of a UTF-16 surrogate pair in a string."
        hint = "Write the character itself, or both halves."
        raise CanonicalError(message, kind="lone_surrogate", hint=hint) from None
    except RecursionError:
        raise _too_deep() from None


_encode = msgspec.json.Encoder(order="sorted", decimal_format="number", enc_hook=attrgetter("spelling")).encode
_decode_integers = msgspec.json.Decoder(float_hook=_refuse_number).decode
_decode_numbers = msgspec.json.Decoder(float_hook=_number).decode
read_args: Callable[[bytes], tuple[Any, bytes]] = _read_args if core is None else core.bound("read_args", _read_args)

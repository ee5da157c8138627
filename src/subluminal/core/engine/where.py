"""Where a predicate looks: a key of `match.args` as a path, and the values that a call has there.

`options.force` steps into an object, `files[].path` into every element of a list, `\\.` is a literal dot, `\\[` a
bracket and `\\\\` a backslash. A key with one of these is one top-level key as well, as it stands and as it was before
keys were paths; what has no path to it (`a..b`, `.a`, `a[]b`) is only that.

The Python SDK reads a top-level text as JSON where its tool wants an object or a list, and clients send such texts. So
a generous look takes the text both ways, and a strict one takes a list in a text for more values that must match.

The agent chooses the values: a look is a loop over at most so many elements, never a recursion.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Deeper keys are mistakes: real tools nest three or four levels.
MAX_SEGMENTS = 8
# Looked at for one predicate. A call that is meant to be judged has fewer; one with more cannot be judged.
MAX_ELEMENTS = 1_000

EACH = None  # the step into every element
_BLANKS = " \t\n\r"


def parse_path(key: str) -> list[str | None] | None:
    """The steps of a key: names, and EACH for `[]`. None: the key is no path."""
    steps: list[str | None] = []
    name: list[str] = []
    closed = False  # behind a `[]` only another one or a dot may follow
    at = 0
    while at < len(key):
        char, two = key[at], key[at : at + 2]
        if two in ("\\.", "\\[", "\\\\"):
            char, at = two[1], at + 1
        elif two == "[]":
            if not closed:
                if not name:
                    return None
                steps.append("".join(name))
            steps.append(EACH)
            name, closed = [], True
            at += 2
            continue
        elif char == ".":
            if not closed:
                if not name:
                    return None
                steps.append("".join(name))
            name, closed = [], False
            at += 1
            if at == len(key):
                return None
            continue
        if closed:
            return None
        name.append(char)
        at += 1
    if not closed:
        steps.append("".join(name))
    return steps


def segments(key: str) -> int:
    """How deep a key leads, for the bound."""
    return sum(step is not EACH for step in parse_path(key) or (key,))


class Found(Struct, eq=False, gc=False):
    """The values at a place. `complete`: none is left out for the bound.

    `lacking`: an element has nothing there, or strictly something else than a list where one is stepped into.
    """

    values: list[Any]
    complete: bool = True
    lacking: bool = False


class Where:
    """One key. `plain`: nothing but a top-level key."""

    __slots__ = ("_literal", "_steps", "_too_deep", "first", "key", "plain", "second")

    def __init__(self, key: str) -> None:
        self.key = key
        steps = parse_path(key)
        self._too_deep = segments(key) > MAX_SEGMENTS
        if steps is None:
            steps = [key]
        self.first: str = steps[0] or ""
        self._steps = steps[1:]
        self.plain = not self._steps
        self.second = self._steps[0] if self._steps else None  # None also where it steps into a list
        self._literal = None if key == self.first and self.plain else key

    def locate(self, args: dict[str, Any], *, generous: bool, listed: bool = True) -> Found:
        """`listed`: a list that stands as JSON in the text at the end of a path counts beside the text."""
        if self._too_deep:
            raise Unavailable(UNJUDGED_ARGS, f"the key {self.key[:80]} leads deeper than {MAX_SEGMENTS} levels")
        found = Found([])
        if self.first in args:
            value = args[self.first]
            found.values.append(value)
            if value.__class__ is str and (listed if self.plain else generous):
                held = held_in(value)
                if isinstance(held, list) or (held is not None and not self.plain):
                    found.values.append(held)
            if self._steps:
                _walk(found, self._steps, generous)
        if self._literal is not None and self._literal in args:
            value = args[self._literal]
            found.values.append(value)
            if listed and value.__class__ is str and isinstance(held := held_in(value), list):
                found.values.append(held)
        return found


def _walk(found: Found, steps: list[str | None], generous: bool) -> None:
    values = found.values
    room = MAX_ELEMENTS
    crossed = False
    for step in steps:
        if step is not EACH:
            reached = [value[step] for value in values if isinstance(value, dict) and step in value]
            if crossed and len(reached) < len(values):
                found.lacking = True
        else:
            crossed = True
            reached = []
            for value in values:
                if isinstance(value, list):
                    if len(value) > room:
                        found.complete = False
                        value = value[:room]
                    reached += value
                    room -= len(value)
                elif generous:
                    reached.append(value)
                else:
                    found.lacking = True
        values = reached
    found.values = values


# Texts and what they hold, for the rules that ask about one call. Arguments that are inspected have no more characters.
MAX_KEPT_CHARS = 1 << 20
_held: dict[str, Any] = {}


def held_in(text: str) -> Any:
    """The object or list that a text is as JSON, to a server that asks for one; None if it is no such text."""
    if text.lstrip(_BLANKS)[:1] not in ("[", "{"):
        return None
    held = _held.get(text, _held)
    if held is not _held:
        return held
    if sum(map(len, list(_held))) + len(text) > MAX_KEPT_CHARS or len(_held) >= MAX_ELEMENTS:
        _held.clear()  # threads may share it: nothing here relies on what was there a moment ago
    held = _held[text] = _loaded(text)
    return held


def _loaded(text: str) -> Any:
    from json import JSONDecodeError, loads  # what the SDK does: the last of two equal keys counts

    try:
        return loads(text)
    except JSONDecodeError:
        return None
    except ValueError:  # other versions of Python read it
        raise Unavailable(UNJUDGED_ARGS, "a text holds JSON with a number that is too long to be read") from None
    except RecursionError:
        raise Unavailable(UNJUDGED_ARGS, "a text holds JSON that nests too deep to be read") from None


def spread(values: list[Any], *, generous: bool, empty: bool = False) -> tuple[list[Any], bool]:
    """Each list as its elements, and whether those are all. Generously a list in a list is spread as well (`empty`:
    but for one without elements); strictly it stays one."""
    for value in values:
        if isinstance(value, list):
            break
    else:
        return values, True
    out: list[Any] = []
    stack = [iter(values)]
    looked = 0
    while stack:
        for value in stack[-1]:
            outer = len(stack) == 1
            if not outer:
                looked += 1
                if looked > MAX_ELEMENTS:
                    return out, False
            if isinstance(value, list) and (outer or (generous and (value or not empty))):
                stack.append(iter(value))
                break
            out.append(value)
        else:
            stack.pop()
    return out, True


def too_many(key: str = "") -> Unavailable:
    place = f"{key[:80]} has" if key else "a list has"
    return Unavailable(UNJUDGED_ARGS, f"{place} more than {MAX_ELEMENTS:,} elements")

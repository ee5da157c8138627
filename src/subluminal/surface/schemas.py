"""Whether arguments fit the input schema of a tool: the first error, or that it cannot be told. In bounded work.

A schema is its server's text, and may be made to cost: references in a circle, alternatives within alternatives,
patterns that backtrack, lists of ten thousand values. So every keyword that is asked pays for what it looks at, out of
a budget that is the same for every call, and whoever has none left is not judged: no clock, the same answer each time.
Patterns are RE2's. References to other documents are never followed. `format` says nothing: it is a note.

The library (`jsonschema`, extra `schemas`) is imported with the first schema that is to be checked. Numbers are exact:
schema and arguments are read as `contracts.canonical` reads them.
"""

from __future__ import annotations

from contextvars import ContextVar

from subluminal.contracts.canonical import canonical_bytes, parse
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.jsontext import to_json
from subluminal.surface.texts import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Keyword = Callable[[Any, Any, Any, Any], Iterator[Any]]

# One unit is about a microsecond: a hostile schema costs some tenth of a second at most, a usual one a hundred units.
BUDGET = 150_000
ASKED = 6  # a keyword
REFERRED = 24  # a reference, and half its length: each name in it is a step
FAILED = 8  # an error is an object with texts
CHARS_A_UNIT = 512  # of texts that an error repeats
STEPS_A_UNIT = 128  # of a pattern: a character is held against each of its instructions at worst
PATTERN_MEMORY = 1 << 20  # of one pattern, as RE2 counts it: some ten thousand instructions
COMPARED_A_UNIT = 64  # keys or items, each with each
MAX_WORDS = 300
MAX_SHOWN = 120
MAX_NAMES = 12
INSTALL = "the package jsonschema (the extra `schemas`) is not installed here"
TOO_MUCH = "to check them against the tool's input schema takes more work than is done for a call"
NOT_FETCHED = "the tool's input schema refers to what is not in it, and other documents are not fetched"
UNREADABLE = "the tool's input schema cannot be read"

_DIALECTS = {
    "": "Draft202012Validator",  # what MCP says holds where `$schema` says nothing
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-04/schema": "Draft4Validator",
}
# Where a schema that is plainly false repeats the whole value in its error, once for each.
_BRANCHES = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"))
_REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
_UNEVALUATED = frozenset(("unevaluatedProperties", "unevaluatedItems"))


class Unjudged(Exception):
    """A clause that says why."""


class _Spent(Exception):
    pass


class _Work:
    """What is left of the budget for one check, and what parts of the arguments weigh."""

    __slots__ = ("_weights", "left", "patterns")

    def __init__(self) -> None:
        self.left = BUDGET
        self.patterns: set[str] = set()  # paid for, whether they had to be compiled or were at hand
        self._weights: dict[int, int] = {}  # of values that live as long as the check

    def pay(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            raise _Spent

    def weight(self, value: Any) -> int:
        """What it costs to write it out."""
        if isinstance(value, str):
            return 1 + len(value) // CHARS_A_UNIT
        if not isinstance(value, (dict, list)):
            return 1
        known = self._weights.get(id(value))
        if known is None:
            self.pay(len(value))
            parts = value.values() if isinstance(value, dict) else value
            keys = sum(map(len, value)) // CHARS_A_UNIT if isinstance(value, dict) else 0
            known = self._weights[id(value)] = 1 + keys + sum(map(self.weight, parts))
        return known


_work: ContextVar[_Work] = ContextVar("work")


class Checker:
    """Of one input schema, as its JSON text. What is wrong with it is said when arguments are to be checked."""

    __slots__ = ("_fault", "_schema", "_validator")

    def __init__(self, text: bytes) -> None:
        self._fault: str | None = None
        self._schema: Any = True
        self._validator: Any = None
        try:
            self._schema = parse(text)
            self._validator = _validator(self._schema)
        except ImportError:
            self._fault = INSTALL
        except Unjudged as fault:
            self._fault = str(fault)
        except (CanonicalError, Exception):  # whatever the server wrote there
            self._fault = UNREADABLE

    def first_error(self, args: Any) -> str | None:
        """A clause that says what does not fit; None: everything does. Unjudged: it cannot be told."""
        if self._fault is not None:
            raise Unjudged(self._fault)
        token = _work.set(_Work())
        try:
            error = next(self._validator.iter_errors(args), None)
            return None if error is None else _worded(error)
        except (_Spent, RecursionError):
            raise Unjudged(TOO_MUCH) from None
        except Unjudged:
            raise
        except Exception as fault:
            raise Unjudged(NOT_FETCHED if _is_unresolved(fault) else UNREADABLE) from None
        finally:
            _work.reset(token)


def _is_unresolved(fault: BaseException) -> bool:
    from referencing.exceptions import Unresolvable

    return isinstance(fault, Unresolvable)


# -- the library, with every keyword at a price ---------------------------------------------------------------------

_classes: dict[str, Any] = {}


def make_ready() -> None:
    """Import the library while nobody waits for a call."""
    try:
        _priced(_DIALECTS[""])
    except ImportError:
        pass


def _validator(schema: Any) -> Any:
    from referencing import Registry

    if not isinstance(schema, (dict, bool)):
        raise Unjudged(UNREADABLE)
    named = schema.get("$schema", "") if isinstance(schema, dict) else ""
    dialect = _DIALECTS.get(str(named).partition("://")[2].rstrip("#") if named else "")
    if dialect is None:
        raise Unjudged("the tool's input schema is written in a dialect that is not known here")
    made = _priced(dialect)
    # How the library finds what was evaluated has no bound where it follows references, and takes patterns of `re`.
    if _has(schema, _UNEVALUATED) and _has(schema, _REFERENCES | {"patternProperties"}):
        raise Unjudged("the tool's input schema asks for what is unevaluated beside references or patterns of names")
    resource = made.resource_of(schema)
    registry: Any = Registry()
    # What it names within itself is found once, not at each reference.
    registry = registry.with_resource(resource.id() or "", resource).crawl()
    return made.validator(schema, registry=registry)


class _Made:
    __slots__ = ("resource_of", "validator")

    def __init__(self, validator: Any, resource_of: Callable[[Any], Any]) -> None:
        self.validator = validator
        self.resource_of = resource_of


def _priced(dialect: str) -> _Made:
    if dialect not in _classes:
        from jsonschema import validators
        from referencing.jsonschema import specification_with

        library: Any = getattr(validators, dialect)
        asked = {**library.VALIDATORS, **_own(library.VALIDATORS)}
        priced = {name: _pays(name, ask) for name, ask in asked.items()}
        specification = specification_with(library.META_SCHEMA.get("$id") or library.META_SCHEMA["id"])
        _classes[dialect] = _Made(validators.extend(library, priced), specification.create_resource)
    made: _Made = _classes[dialect]
    return made


def _pays(name: str, ask: Keyword) -> Keyword:
    branches, refers, unevaluated = name in _BRANCHES, name in _REFERENCES, name in _UNEVALUATED

    def asked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        work = _work.get()
        work.pay(ASKED + _length(value))
        if branches:
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
            closed = sum(part is False for part in parts) + (value is False)
            if closed:
                work.pay(closed * work.weight(instance))
        elif refers:
            if not isinstance(value, str):
                raise Unjudged(UNREADABLE)
            work.pay(REFERRED + len(value) // 2)
        elif unevaluated:
            each = len(instance) if isinstance(instance, (list, dict)) else 0
            work.pay(each * each * work.weight(schema) // COMPARED_A_UNIT)
        elif name in ("enum", "const"):
            work.pay(min(work.weight(value), work.weight(instance) * _count(value)))
        for error in ask(validator, value, instance, schema) or ():
            if not error.schema_path:  # made here, with the value and what is asked of it written out
                work.pay(FAILED + work.weight(instance) + work.weight(value))
            yield error

    return asked


def _length(value: Any) -> int:
    """With the lists of names in it (`dependentRequired`)."""
    if isinstance(value, dict):
        return len(value) + sum(len(part) for part in value.values() if isinstance(part, list))
    return len(value) if isinstance(value, list) else 0


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def _has(schema: Any, keywords: frozenset[str]) -> bool:
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not keywords.isdisjoint(value):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


# -- keywords that are asked otherwise than the library asks them ---------------------------------------------------


def _own(library: dict[str, Keyword]) -> dict[str, Keyword]:
    """Patterns by RE2; whether items are all different by their canonical form, not by comparing each with each."""
    from jsonschema.exceptions import ValidationError

    def pattern(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not _found(wanted, instance):
            yield ValidationError("")

    def pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for wanted, below in patterns.items():
            for name, value in instance.items():
                if _found(wanted, name):
                    yield from validator.descend(value, below, path=name, schema_path=wanted)

    def additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for name in _extras(instance, schema):
            if wanted is False:
                yield ValidationError("")
                return
            yield from validator.descend(instance[name], wanted, path=name)

    def unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if wanted is True and isinstance(instance, list):
            _work.get().pay(_work.get().weight(instance))
            if len({canonical_bytes(each) for each in instance}) < len(instance):
                yield ValidationError("")

    own: dict[str, Keyword] = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
        "uniqueItems": unique_items,
    }
    return {name: ask for name, ask in own.items() if name in library}


def _extras(instance: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    known, patterns = schema.get("properties") or {}, schema.get("patternProperties") or {}
    _work.get().pay(len(instance))
    for name in instance:
        if name not in known and not any(_found(wanted, name) for wanted in patterns):
            yield name


_patterns: dict[str, Any] = {}
# Patterns are short texts of servers; those of some hundred tools.
_MAX_PATTERNS = 1_024


def _found(pattern: Any, text: str) -> bool:
    work = _work.get()
    compiled = _patterns.get(pattern) if isinstance(pattern, str) else None
    if compiled is None:
        compiled = _compiled(pattern)
        if len(_patterns) >= _MAX_PATTERNS:
            _patterns.clear()
        _patterns[pattern] = compiled
    steps: int = compiled.programsize
    if pattern not in work.patterns:
        work.patterns.add(pattern)
        work.pay(len(pattern) + steps)
    work.pay(1 + len(text) * steps // STEPS_A_UNIT)
    return compiled.search(text) is not None


def _compiled(pattern: Any) -> Any:
    import re

    import re2

    if not isinstance(pattern, str):
        raise Unjudged(UNREADABLE)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    try:
        spelled = re.sub(r"(\\\\)|\\u([0-9a-fA-F]{4})", lambda found: found[1] or rf"\x{{{found[2]}}}", pattern)
        return re2.compile(spelled, options)
    except re2.error:
        raise Unjudged(f"the tool's input schema has a pattern that RE2 cannot read: {_clip(pattern)}") from None


# -- words ----------------------------------------------------------------------------------------------------------


def _worded(error: Any) -> str:
    """What the schema asks and where; no value of the arguments, which may hold anything."""
    where, keyword, wanted, instance = (
        _where(error.absolute_path),
        error.validator,
        error.validator_value,
        error.instance,
    )
    subject = f"`{where}`" if where else "the arguments"
    if keyword == "required":
        missing = next((name for name in wanted if name not in instance), "")
        said = f"`{_joined(where, str(missing))}` is missing"
    elif keyword == "additionalProperties" and wanted is False:
        names = [_joined(where, name) for name in _extras(instance, error.schema)]
        known = _names(error.schema.get("properties") or {})
        said = f"`{names[0] if names else where}` is not known here" + (f"; known: {known}" if known else "")
    elif keyword == "type":
        said = f"{subject} must be of type {' or '.join(map(str, wanted if isinstance(wanted, list) else [wanted]))}"
    elif keyword == "enum":
        said = f"{subject} must be one of {_names(map(to_json, wanted))}"
    elif keyword in ("anyOf", "oneOf"):
        first = f"; of the first: {_worded(error.context[0])}" if error.context else ""
        said = f"{subject} does not fit {'one' if keyword == 'anyOf' else 'exactly one'} of its alternatives{first}"
    elif keyword is None:
        said = f"{subject} must not be there" if where else "it takes no arguments at all"
    else:
        said = f"{subject} does not fit {keyword}: {_clip(to_json(wanted))}"
    return visible(said, "")[:MAX_WORDS]


def _where(path: Any) -> str:
    where = ""
    for step in path:
        where = f"{where}[{step}]" if isinstance(step, int) else _joined(where, step)
    return where


def _joined(where: str, name: str) -> str:
    return f"{where}.{_clip(name)}" if where else _clip(name)


def _names(names: Any) -> str:
    shown = [_clip(str(name)) for name in names]
    return ", ".join(shown[:MAX_NAMES]) + (", …" if len(shown) > MAX_NAMES else "")


def _clip(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"

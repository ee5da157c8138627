"""What a deny that has no words of its own tells the refused agent: the terms of its rule.

Only the policy speaks here, never the call. Texts and patterns that a rule looks for are not repeated, for a deny may
be there to keep them quiet; directories, hosts, programs, numbers and sizes are what an agent has to know to do better.
"""

from __future__ import annotations

from subluminal.core.engine.hints import clip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_ENTRIES = 5
MAX_ENTRY_CHARS = 60


def terms_of(match: dict[str, Any], unless: dict[str, Any] | None) -> str | None:
    """A clause for the summary, or None where the rule asks for nothing but names."""
    asked, excepted = _terms(match), _terms(unless or {})
    where = f" where {asked}" if asked else ""
    if excepted:
        return f"policy refuses it{where}{',' if where else ''} except where {excepted}"
    return f"policy refuses it{where}" if where else None


def is_shorthand(unless: dict[str, Any] | None, args: dict[str, Any]) -> bool:
    """Whether a path that an exception asks for begins with `~` or names a variable.

    All its readings must lie within, and to some servers `~` is a name like any other.
    """
    for spec in (unless or {}, *((unless or {}).get("any_of") or ())):
        for key in (spec.get("args") or {}).get("path_within") or ():
            value = args.get(key)
            if isinstance(value, str) and (value.startswith("~") or "$" in value):
                return True
    return False


def _terms(spec: dict[str, Any]) -> str:
    clauses = list(_clauses(spec))
    alternatives = [" and ".join(_clauses(each)) for each in spec.get("any_of") or ()]
    if alternatives and all(alternatives):
        clauses.append(" or ".join(dict.fromkeys(alternatives)))
    return " and ".join(clauses)


def _clauses(spec: dict[str, Any]) -> Iterator[str]:
    if "risk_class" in spec:
        yield f"the tool is {_listed(spec['risk_class'])}"
    hours = (spec.get("time") or {}).get("utc_hours")
    if hours:
        yield f"the hour in UTC is {_listed(hours)}"
    args = spec.get("args") or {}
    for key in args.get("has_keys") or ():
        yield f"{_name(key)} is given"
    for key in args.get("missing_keys") or ():
        yield f"{_name(key)} is not given"
    for key in dict.fromkeys(key for name in _VALUES for key in args.get(name) or ()):
        yield f"{_name(key)} has one of its values"
    for key, limits in (args.get("numeric_range") or {}).items():
        yield f"{_name(key)} is {_range(limits)}"
    for key, entries in (args.get("path_within") or {}).items():
        yield f"{_name(key)} lies in {_listed(map(_directory, entries))}"
    for key, entries in (args.get("host_in") or {}).items():
        yield f"the host of {_name(key)} is {_listed(entries)}"
    for key, wanted in (args.get("command") or {}).items():
        yield f"{_name(key)} runs {_listed(wanted['programs'])}"
    if args.get("bytes"):
        yield f"the size of the arguments is {_range(args['bytes'])} bytes"


_VALUES = ("key_equals", "key_in", "key_glob", "key_regex", "key_contains")


def _name(key: str) -> str:
    return f"`{clip(key, MAX_ENTRY_CHARS)}`"


def _directory(entry: str) -> str:
    return "the repository or working directory" if entry == "." else entry


def _range(limits: dict[str, Any]) -> str:
    least, most = limits.get("min"), limits.get("max")
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"{least} to {most}"


def _listed(entries: Any) -> str:
    words = [clip(str(entry), MAX_ENTRY_CHARS) for entry in entries]
    if len(words) > MAX_ENTRIES:
        words = [*words[:MAX_ENTRIES], f"{len(words) - MAX_ENTRIES} more"]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)

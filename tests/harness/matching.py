"""The language of matches in its plainest form, and random sentences of it: what tools that reason about policies are
held against.

`applies` says whether a rule applies to a call, by the words of the contract alone: no index, no plan, no cache, and
none of the cases that cannot be judged. It is short enough to be read as a definition.
"""

from __future__ import annotations

import json
import posixpath
import random
from collections.abc import Iterator
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

from subluminal.contracts.decision import Decision
from subluminal.contracts.globs import glob_test
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.contracts.vocabulary import UNINSPECTED_ARGS, UNJUDGED_ARGS
from subluminal.core.engine.matchers import exact
from subluminal.core.engine.readings import RangeReadings, Readings
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState

Match = dict[str, Any]
HOME, ROOT = "/home/me", "/work/repo"


class Called(NamedTuple):
    tool: str
    args: dict[str, Any]
    hour: int = 0
    server: str = "s"
    tags: frozenset[str] = frozenset()
    suspected: frozenset[str] = frozenset()


# -- the definition -----------------------------------------------------------------------------------------------


def applies(rule: dict[str, Any], call: Called) -> bool:
    stops = rule["kind"] != "allow"
    unless = rule.get("unless")
    return holds(rule["match"], call, generous=stops) and not (
        unless is not None and holds(unless, call, generous=not stops)
    )


def holds(match: Match, call: Called, *, generous: bool) -> bool:
    alternatives = match.get("any_of")
    if alternatives and not any(holds(alternative, call, generous=generous) for alternative in alternatives):
        return False
    for field, name in (("server_name", call.server), ("tool_name", call.tool)):
        if field in match and not any(glob_test(glob)(name) for glob in match[field]["glob"]):
            return False
    seen = call.tags | call.suspected if generous else call.tags
    if "risk_class" in match and seen.isdisjoint(match["risk_class"]):
        return False
    if "time" in match and call.hour not in match["time"]["utc_hours"]:
        return False
    return all(_predicate(*found, call.args, generous) for found in predicates_of(match.get("args", {})))


def predicates_of(args: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for field, wanted in args.items():
        if field == "bytes":
            yield field, "", wanted
        else:
            for key in wanted:
                yield field, key, None if isinstance(wanted, list) else wanted[key]


def _predicate(field: str, key: str, wanted: Any, args: dict[str, Any], generous: bool) -> bool:
    if field == "bytes":
        return _between(wanted, len(repr(args)))
    found = located(args, key, generous)
    if field == "has_keys":
        complete = not _lacking(args, key)
        return bool(found) and (generous or complete)
    if field == "missing_keys":
        seen = found or located(args, key, True)
        return not seen or (generous and (_lacking(args, key) or None in found))
    typed = field in ("key_equals", "key_in", "numeric_range")
    if generous or not typed:
        whole = found if typed else []
        found = [item for value in found for item in (value if isinstance(value, list) else [value])]
        found += [value for value in whole if isinstance(value, list)]
    results = [_value_matches(field, wanted, value, generous) for value in found]
    return any(results) if generous else bool(results) and all(results)


def located(args: dict[str, Any], key: str, generous: bool) -> list[Any]:
    """The values at a key, read as one key and as a path."""
    steps = key.replace("[]", ".[]").split(".")
    found = [args[key]] if key in args and len(steps) > 1 else []
    values: list[Any] = [args]
    for number, step in enumerate(steps):
        if number == 1 and generous:
            values += [json.loads(value) for value in values if isinstance(value, str) and value[:1] in ("[", "{")]
        if step != "[]":
            values = [value[step] for value in values if isinstance(value, dict) and step in value]
        else:
            values = [
                item
                for value in values
                if generous or isinstance(value, list)
                for item in (value if isinstance(value, list) else [value])
            ]
    return found + values


def _lacking(args: dict[str, Any], key: str) -> bool:
    """Whether an element of a list that the key steps into does not have it."""
    if "[]." not in key:
        return False
    head, _, tail = key.rpartition("[].")
    return any(not isinstance(item, dict) or tail not in item for item in located(args, f"{head}[]", True))


def _value_matches(field: str, wanted: Any, value: Any, generous: bool) -> bool:
    if field in ("key_equals", "key_in"):
        values = wanted if field == "key_in" else [wanted]
        scalar = not isinstance(value, list | dict)
        if scalar and exact(value) in {exact(choice) for choice in values}:
            return True
        return generous and bool(Readings(values)(value))
    if field == "numeric_range":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return (number and _between(wanted, value)) or (
            generous and bool(RangeReadings(wanted.get("min"), wanted.get("max"))(value))
        )
    if not isinstance(value, str):
        return False
    if field == "key_glob":
        return any(glob_test(glob)(value) for glob in wanted)
    if field == "key_contains":
        return any(part in value for part in wanted)
    if field == "key_regex":
        return any(regex.strip("^$") in value for regex in wanted)  # the generator writes plain words
    if field == "path_within":
        return any(_inside(_absolute(value), _absolute(entry)) for entry in wanted)
    if field == "host_in":
        return any(_host(value, pattern) for pattern in wanted)
    assert field == "command", field
    programs = [line.split()[0] for line in value.split(";") if line.split()]
    judged = [program in wanted["programs"] for program in programs]
    return any(judged) if generous else bool(judged) and all(judged)


def _between(limits: dict[str, Any], number: Any) -> bool:
    return limits.get("min", number) <= number <= limits.get("max", number)


def _absolute(path: str) -> str:
    path = HOME + path[1:] if path.startswith("~") else path
    return posixpath.normpath(posixpath.join(ROOT, path))


def _inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _host(host: str, pattern: str) -> bool:
    if pattern == "loopback":
        return host.startswith("127.")
    if pattern == "private":
        return host.startswith("10.")
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else pattern in ("*", host)


# -- sentences ----------------------------------------------------------------------------------------------------

KEYS = ("a", "b", "a.b", "c[].d", "c[]")
VALUES = [0, 1, 2, 3, True, False, "1", 1.5, "ab", "abc", "b"]
TEXTS = ["a", "ab", "abc", "b", "ba", "1", ""]
GLOBS = ["a*", "*b", "ab*", "*", "b", "*a*", "a?", "abc"]
PARTS = ["a", "b", "ab"]
DIRECTORIES = ["~", "~/work", "~/work/a", ".", "src", "src/../lib", "/", "/etc", "/etc/ssl", "/work/repo"]
PATHS = ["~/work/a/x", "~/x", "src/x", "/etc/ssl/cert", "/etc", "../y", "lib/z", "/work/repo/src/x"]
PATTERNS = ["*", "example.com", "*.example.com", "a.example.com", "*.a.example.com", "private", "loopback", "10.0.0.1"]
HOSTS = ["example.com", "a.example.com", "b.a.example.com", "other.org", "10.0.0.1", "127.0.0.1"]
PROGRAMS = ["rm", "git", "curl"]
LINES = ["rm x", "git status", "git add; rm y", "curl z; git a; rm b", "ls"]
SPELLINGS: list[Any] = [*VALUES, "true", "no", "01", " 2", None, "", [], [1], [1, 2], ["a", "b"], {}, 2**53 + 1]
SPELLINGS += [*TEXTS, *PATHS, *HOSTS, *LINES]
CLASSES = ["write", "read"]
TOOLS = ["get", "put", "git_add", "git_rm", "x"]
TOOL_GLOBS = ["*", "g*", "git_*", "get", "put", "git_rm", "*t"]


def some(rng: random.Random, choices: list[Any], most: int = 3) -> list[Any]:
    return rng.sample(choices, rng.randrange(1, most + 1))


def predicate(rng: random.Random, field: str, key: str | None = None) -> Any:
    key = key or rng.choice(KEYS)
    if field in ("has_keys", "missing_keys"):
        return [key]
    if field == "numeric_range":
        return {key: limits(rng, 4)}
    if field == "bytes":
        return limits(rng, 60)
    if field == "command":
        return {key: {"programs": some(rng, PROGRAMS, 2)}}
    if field == "key_equals":
        return {key: rng.choice(VALUES)}
    choices = {
        "key_in": VALUES,
        "key_glob": GLOBS,
        "key_regex": PARTS,
        "key_contains": PARTS,
        "path_within": DIRECTORIES,
        "host_in": PATTERNS,
    }
    return {key: some(rng, choices[field])}


FIELDS = ["has_keys", "missing_keys", "key_equals", "key_in", "key_glob", "key_regex", "key_contains", "numeric_range"]
FIELDS += ["path_within", "host_in", "command", "bytes"]


def limits(rng: random.Random, top: int) -> dict[str, int]:
    bounds = {"min": rng.randrange(top), "max": rng.randrange(top)}
    return dict(rng.sample(sorted(bounds.items()), rng.randrange(1, 3)))


def alternative(rng: random.Random, fields: list[str] = FIELDS) -> Match:
    match: Match = {}
    if rng.random() < 0.4:
        match["tool_name"] = {"glob": some(rng, TOOL_GLOBS, 2)}
    if rng.random() < 0.15:
        match["time"] = {"utc_hours": sorted(rng.sample(range(4), rng.randrange(1, 4)))}
    if rng.random() < 0.15:
        match["risk_class"] = some(rng, CLASSES, 2)
    if rng.random() < 0.6:
        match["args"] = {field: predicate(rng, field) for field in some(rng, fields, 2)}
    return match


def a_match(rng: random.Random, fields: list[str] = FIELDS) -> Match:
    match = alternative(rng, fields)
    if rng.random() < 0.25:
        match["any_of"] = [alternative(rng, fields) for _ in range(rng.randrange(1, 3))]
    return match


def on_one_key(rng: random.Random, key: str) -> Match:
    """One predicate, so that two of them are often comparable."""
    field = rng.choice(FIELDS)
    return {"args": {field: predicate(rng, field, key)}}


def related(rng: random.Random, match: Match, fields: list[str] = FIELDS) -> Match:
    """Something that has to do with it: two random matches are seldom comparable."""
    other = dict(match)
    for _ in range(rng.randrange(1, 3)):
        field = rng.choice(["tool_name", "time", "risk_class", "args", "args", "any_of"])
        fresh = a_match(rng, fields)
        if field in fresh and rng.random() < 0.6:
            other[field] = {**other.get("args", {}), **fresh["args"]} if field == "args" else fresh[field]
        elif field == "args" and other.get("args"):
            kept = dict(other["args"])
            if rng.random() < 0.5:
                kept.pop(rng.choice(sorted(kept)))
            other["args"] = {**kept, **{f: widened(rng, f, kept[f]) for f in kept}}
        else:
            other.pop(field, None)
    return other


def widened(rng: random.Random, field: str, wanted: Any) -> Any:
    """The same predicate with other words for the same key."""
    if not isinstance(wanted, dict) or field == "bytes" or rng.random() < 0.5:
        return wanted
    fresh = predicate(rng, field)
    return dict.fromkeys(wanted, next(iter(fresh.values())))


def a_call(rng: random.Random, match: Match | None = None) -> Called:
    """A call; half of them are aimed at a match."""
    args: dict[str, Any] = {}
    for key in rng.sample(["a", "b", "a.b", "c"], rng.randrange(4)):
        if key == "c":
            args[key] = rng.choice(
                [
                    [{"d": rng.choice(SPELLINGS)} for _ in range(rng.randrange(3))],
                    [{"d": rng.choice(SPELLINGS)}, {}],
                    {"d": rng.choice(SPELLINGS)},
                    [rng.choice(SPELLINGS) for _ in range(rng.randrange(3))],
                ]
            )
        elif key == "a" and rng.random() < 0.3:
            inner = {"b": rng.choice(SPELLINGS)}
            args[key] = rng.choice([inner, json.dumps(inner)])
        else:
            args[key] = rng.choice(SPELLINGS)
    if match is not None and rng.random() < 0.5:
        for field, key, wanted in predicates_of(match.get("args", {})):
            _aim(rng, args, key, _likely(rng, field, wanted))
    tags = frozenset(rng.sample(CLASSES, rng.randrange(3)))
    return Called(rng.choice(TOOLS), args, rng.randrange(4), tags=tags)


def _likely(rng: random.Random, field: str, wanted: Any) -> Any:
    if field == "key_equals":
        return wanted
    choices: list[Any] = {
        "key_in": wanted,
        "numeric_range": [0, 1, 2, 3, "2", 1.5],
        "path_within": PATHS,
        "host_in": HOSTS,
        "command": LINES,
    }.get(field, TEXTS)
    value = rng.choice(choices)
    return [value, rng.choice(choices)] if rng.random() < 0.2 else value


def _aim(rng: random.Random, args: dict[str, Any], key: str, value: Any) -> None:
    if key in ("a", "b"):
        args[key] = value
    elif key == "a.b":
        args.update({"a": {"b": value}} if rng.random() < 0.5 else {"a.b": value})
    elif key == "c[].d":
        args["c"] = [{"d": value} for _ in range(rng.randrange(1, 3))]
    elif key == "c[]":
        args["c"] = [value]


# -- the engine ---------------------------------------------------------------------------------------------------


class Here:
    """A machine without links, on which nothing exists yet."""

    home, root, working_dir = HOME, ROOT, ROOT
    starts, homes = (ROOT,), (HOME,)

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def home_of(self, user: str) -> str | None:
        return None

    def variable(self, name: str) -> str | None:
        return None

    def real(self, base: str, path: str = "") -> str:
        return posixpath.normpath(posixpath.join(base, path))

    def exists(self, path: str) -> bool:
        return False

    def same(self, path: str, other: str) -> bool:
        return path == other

    def ignores_case(self, path: str) -> bool:
        return False


def engine_applies(rule: dict[str, Any], call: Called) -> bool | None:
    """What the engine says, of an allow or a deny. None: it cannot judge the rule for this call."""
    everything = {"rule_id": "rest", "kind": "deny", "match": {}, "effect": {"action": "BLOCK"}}
    own = {"rule_id": "own", "effect": {"action": "ALLOW" if rule["kind"] == "allow" else "BLOCK"}, **rule}
    decision = _decision([own, everything] if rule["kind"] == "allow" else [own], call)
    return None if decision is None else decision.rule_id == "own"


def engine_refuses(rules: list[dict[str, Any]], call: Called) -> bool | None:
    decision = _decision(rules, call)
    return None if decision is None else decision.action != "ALLOW"


def _decision(rules: list[dict[str, Any]], call: Called) -> Decision | None:
    defaults = {"decision_on_error": "BLOCK"}
    snapshot = {"policy_id": "p", "version": "1", "mode": "guardrails", "defaults": defaults, "rules": rules}
    places: Any = {"places": Here()} if knows_exceptions() else {}
    stack = Stack([Engine(snapshot, Identity("run"), **places)])
    raw = json.dumps(call.args).encode()
    made = ToolCall(call.server, call.tool, raw, len(raw), risk_classes=call.tags)
    wall_ms = call.hour * 3_600_000
    decision = stack.judge(made, lambda: call.args, lambda: "h", LocalState(), wall_ms, 0).decision
    return None if decision.reason_code in (UNJUDGED_ARGS, UNINSPECTED_ARGS) else decision


@cache
def knows_exceptions() -> bool:
    """Whether this engine has the language of 0.2."""
    return "places" in signature(Engine).parameters

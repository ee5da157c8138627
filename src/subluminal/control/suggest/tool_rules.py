"""The rules of one tool: what each of its arguments may be.

An argument is a `deny` with an `unless`: the agent that is refused reads which argument it was and what it may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.draft import Draft
from subluminal.control.suggest.evidence import Tool, Values, escaped
from subluminal.control.suggest.limits import hosts, numbers, paths, programs, texts
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.rule_parts import About, Drafted, deny, glob, times, unique
from subluminal.control.suggest.tokens import is_copyable
from subluminal.core.engine.where import MAX_SEGMENTS, segments

Levels = dict[About, int]
# The texts of an argument that several tools of one server have.
Pools = dict[tuple[str, str], dict[str, list[Any]]]


class ToolRules:
    """The rules of one tool, an argument each."""

    def __init__(
        self, tool: Tool, levels: Levels, ids: set[str], made: Draft, pools: Pools, memo: dict[Any, Any]
    ) -> None:
        self.tool = tool
        self.rules: list[Drafted] = []
        self.lines: list[str] = []
        self.paths: list[str] = []
        self.statements: list[str] = []
        self.prose: list[str] = []
        self.usable = True
        self._ids, self._made, self._pools, self._memo = ids, made, pools, memo
        self._name = {
            "server_name": {"glob": [glob(tool.server_name)]},
            "tool_name": {"glob": [glob(tool.tool_name)]},
        }
        rare = [key for key, runs in tool.key_runs.items() if len(runs) < SUPPORT]
        for key in sorted(tool.keys):
            first = _first_step(key)
            if first in rare or segments(key) > MAX_SEGMENTS or not key.isprintable():
                continue
            self._limit(key, first, tool.keys[key], levels.get((tool.server_name, tool.tool_name, key), 0), rare)
        if rare:
            self._no_others([key for key in sorted(rare) if key and key.isprintable() and is_copyable(key)])

    def _limit(self, key: str, first: str, values: Values, level: int, rare: list[str]) -> None:
        about = (self.tool.server_name, self.tool.tool_name, key)
        found = self._fitted(key, values, level)
        if found is None:
            if len(values.runs) < SUPPORT and key != escaped(first):
                return  # a member that few runs used, below one that many did
            if self.tool.present.get(first, 0) == self.tool.calls and "[]" not in key and "." not in key:
                self.usable = False
                name = f"{self.tool.server_name}/{self.tool.tool_name}"
                self._made.left_out.append(f"{name}: no value of `{key}` was used in {SUPPORT} runs")
            elif key == escaped(first):
                rare.append(first)
            return
        self._made.limits[about] = found
        if not found.predicates and found.urls is None:
            self._made.unlimited.append(f"{self.tool.server_name}/{self.tool.tool_name} `{key}`: {found.words}")
            return
        self._rule(key, first, values, found, about)

    def _fitted(self, key: str, values: Values, level: int) -> Limit | None:
        """One limit for all the types that an argument had; each type by itself needs support."""
        parts: list[Limit] = []
        if values.texts:
            found = self._text_limit(key, values, level)
            if found is not None:
                parts.append(found)
        if values.numbers and (number := numbers.fit(values, level)) is not None:
            parts.append(number)
        truths = sorted(value for value, runs in values.truths.items() if len(runs) >= SUPPORT)
        if truths:
            parts.append(Limit("truth", [("key_in", truths)], " or ".join(map(str, truths)).lower(), widest=True))
        if len(values.nulls) >= SUPPORT:
            return Limit("null", [], "null was given, which no rule can ask for", widest=True)
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        both = Limit(parts[0].kind, [p for part in parts for p in part.predicates], " or ".join(p.words for p in parts))
        both.examples, both.urls = parts[0].examples, parts[0].urls
        if any(not part.predicates for part in parts) or any(p[0] == "but" for p in both.predicates):
            both.predicates = []
        return both

    def _text_limit(self, key: str, values: Values, level: int) -> Limit | None:
        if len({run for _, runs in values.texts.values() for run in runs}) < SUPPORT:
            return None
        if programs.is_line_key(self.tool.tool_name, key) and not _is_patch(values):
            self.lines.append(key)
            return self._once(key, level, lambda: programs.fit(values, level))
        urls = sum(map(hosts.is_url, values.texts))
        if urls >= 0.9 * len(values.texts):
            return self._once(key, level, lambda: hosts.fit(values, level))
        if paths.is_path_key(key, values):
            self.paths.append(key)
            return self._once(key, level, lambda: paths.fit(values, level))
        pool = self._pools.get((self.tool.server_name, key))
        found = self._once(key, level, lambda: texts.fit(values, level, pool))
        if found is not None and found.kind == "sql":
            self.statements.append(key)
        elif found is not None and found.kind == "text" and texts.is_prose(found):
            self.prose.append(key)
        return found

    def _once(self, key: str, level: int, fit: Callable[[], Limit | None]) -> Limit | None:
        """A fit depends on the evidence and the level alone."""
        name = (self.tool.server_name, self.tool.tool_name, key, level)
        if name not in self._memo:
            self._memo[name] = fit()
        found: Limit | None = self._memo[name]
        return found

    def _rule(self, key: str, first: str, values: Values, found: Limit, about: About) -> None:
        always = key == escaped(first) and self.tool.present[first] == self.tool.calls
        match = self._name if always else {**self._name, "args": {"has_keys": [key]}}
        evidence = f"{times(values.calls, 'call')} in {times(len(values.runs), 'run')}: {found.words}"
        comments = [evidence + (f", such as {'; '.join(found.examples)}" if found.examples else "")]
        message = f"`{key}` {found.message}"[:300] if found.message else ""
        but = [what for name, what in found.predicates if name == "but"]
        if but:
            refused = {**self._name, "args": {"command": {key: {"programs": but[0]}}}}
            self._add(key, deny("", refused, message=message), comments, about, found)
        elif found.predicates:
            alternatives = [{"args": {name: {key: what}}} for name, what in found.predicates]
            unless = alternatives[0] if len(alternatives) == 1 else {"any_of": alternatives}
            self._add(key, deny("", match, unless, message), comments, about, found)
        if found.urls is not None:
            known = f"only {', '.join(found.urls[:6])}" if found.urls else "none"
            refused = {**self._name, "args": {"key_contains": {key: ["://"]}}}
            known_hosts = {"args": {"key_regex": {key: [hosts.only_these(found.urls)]}}} if found.urls else None
            words = f"`{key}` has URLs of known hosts alone" if found.urls else f"`{key}` has no URLs"
            self._add(
                f"{key}-urls", deny("", refused, known_hosts, words), [f"Hosts of URLs in it: {known}."], about, found
            )

        for name, regex, words in found.never:
            refused = {**self._name, "args": {"key_regex": {key: [regex]}}}
            said = [f"Fewer than {SUPPORT} runs had one."]
            self._add(f"{key}-{name}", deny("", refused, None, f"`{key}` {words}"), said, about, found)

    def _no_others(self, rare: list[str]) -> None:
        keys = [escaped(key) for key in rare]
        if keys:
            words = f"Arguments that fewer than {SUPPORT} runs gave."
            rule = deny(
                "", self._name, {"args": {"missing_keys": keys}}, "Leave out " + ", ".join(f"`{k}`" for k in keys[:8])
            )
            self._add("others", rule, [words], None, None)

    def _add(
        self, what: str, rule: dict[str, Any], comments: list[str], about: About | None, limit: Limit | None
    ) -> None:
        rule["rule_id"] = unique(f"{self.tool.server_name}-{self.tool.tool_name}-{what}", self._ids)
        self.rules.append(Drafted(rule, comments, about, limit))


def _is_patch(values: Values) -> bool:
    return sum("*** Begin Patch" in text for text in values.texts) >= 0.5 * len(values.texts)


def _first_step(key: str) -> str:
    found = re.match(r"(?:\\.|[^.\[\\])*", key)
    return re.sub(r"\\(.)", r"\1", found[0]) if found else key

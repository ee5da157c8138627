"""Names of servers and tools: globs, regexes, and finding the rules for a name without trying them all.

Globs are those of `contracts.globs`. A regex is found anywhere in the name unless anchored, is linear time (RE2), and
`re2` is imported only when a pattern is not one of the simple shapes that need no engine.

Tool names are chosen by the agent, so finding the rules for a name never seen before must not try every rule:
`NameIndex` finds them by exact name and by literal prefix, and runs all remaining regexes as one RE2 set.
"""

from __future__ import annotations

from subluminal.contracts.globs import glob_test, literal_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    NameTest = Callable[[str], bool]

# Position of the empty pattern in an RE2 set; and what a set and one pattern may use before they give up or do without
# a cache. Both names and policies may be hostile: at RE2's default of 8 MiB, many patterns could fill a machine.
_SENTINEL = 0
_SET_MEMORY = 16 << 20
PATTERN_MEMORY = 1 << 18
# Answers that a matcher keeps: names come from outside, so neither their number nor their length may grow.
MAX_KNOWN, MAX_KNOWN_CHARS = 64, 200

_LITERAL_PUNCTUATION = frozenset("_-/:@ ~,;=!#%&'\"<>")
_ESCAPABLE = frozenset(".-/_:+*?()[]{}|^$\\@ ")


class Pattern:
    """One glob or regex. `exact`, `prefix` or `suffix` serves the index; `test` is the whole truth."""

    __slots__ = ("exact", "prefix", "regex", "suffix", "test")

    def __init__(
        self, test: NameTest, *, exact: str | None = None, prefix: str = "", suffix: str = "", regex: str | None = None
    ) -> None:
        self.test = test
        self.suffix = suffix
        self.exact = exact
        self.prefix = prefix
        self.regex = regex  # set when only an engine can decide


def glob_pattern(glob: str) -> Pattern:
    head = literal_head(glob)
    if head == glob:
        return Pattern(glob.__eq__, exact=glob)
    has_sets = "?" in glob or "[" in glob
    return Pattern(glob_test(glob), prefix=head, suffix="" if has_sets else glob.rpartition("*")[2])


def regex_patterns(regex: str) -> list[Pattern]:
    """A regex as simple tests where it is one (`^name$`, `^(a|b)$`, `^prefix.*`), else as one pattern for RE2."""
    anchored = regex.startswith("^")
    body = regex[1:] if anchored else regex
    if anchored and body.endswith(")$") and body.startswith(("(?:", "(")):
        inner = body[3 if body.startswith("(?:") else 1 : -2]
        names = [_unescape(part) for part in inner.split("|")]
        if all(name is not None for name in names):
            return [Pattern(name.__eq__, exact=name) for name in names if name is not None]
    at_end = body.endswith("$") and not body.endswith("\\$")
    core = body[:-1] if at_end else body
    literal = _unescape(core)
    if literal is not None:
        return [_literal_pattern(literal, anchored, at_end)]
    if anchored and core.endswith(".*") and (head := _unescape(core[:-2])) is not None:
        return [_prefix_pattern(head, to_the_end=at_end)]
    return [Pattern(_Re2Test(regex), prefix=_regex_prefix(body) if anchored else "", regex=regex)]


def _literal_pattern(literal: str, at_start: bool, at_end: bool) -> Pattern:
    if at_start and at_end:
        return Pattern(literal.__eq__, exact=literal)
    if at_start:
        return _prefix_pattern(literal, to_the_end=False)
    if at_end:
        return Pattern(lambda name: name.endswith(literal), suffix=literal)
    return Pattern(lambda name: literal in name)


def _prefix_pattern(head: str, *, to_the_end: bool) -> Pattern:
    if not to_the_end:
        return Pattern(lambda name: name.startswith(head), prefix=head)
    # `.` does not match a newline, so `$` is out of reach behind one.
    return Pattern(lambda name: name.startswith(head) and "\n" not in name[len(head) :], prefix=head)


def _unescape(text: str) -> str | None:
    """The literal that a piece of regex stands for, or None if it is more than a literal."""
    out = []
    chars = iter(text)
    for char in chars:
        if char == "\\":
            char = next(chars, "")
            if char not in _ESCAPABLE:
                return None
        elif not (char.isalnum() or char in _LITERAL_PUNCTUATION):
            return None
        out.append(char)
    return "".join(out)


def _regex_prefix(body: str) -> str:
    """A literal that every match of `^body` must start with; empty when in doubt."""
    if "|" in body:
        return ""
    end = 0
    while end < len(body) and (body[end].isalnum() or body[end] in _LITERAL_PUNCTUATION):
        end += 1
    # A quantifier makes the last character optional or repeated.
    return body[: end - 1] if end < len(body) and body[end] in "*?{+" else body[:end]


class _Re2Test:
    """A regex compiled at its first use: `re2` costs its import only when a pattern needs it."""

    __slots__ = ("_search", "regex")

    def __init__(self, regex: str) -> None:
        self.regex = regex
        self._search: Any = None

    def __call__(self, name: str) -> bool:
        if self._search is None:
            import re2

            self._search = re2.compile(self.regex, re2_options(PATTERN_MEMORY)).search
        return self._search(name.encode("utf-8", "replace").decode()) is not None


def re2_options(memory: int) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return options


class NameMatch:
    """`server_name` or `tool_name` of a rule: any of the globs or regexes. An agent calls few tools, many times."""

    __slots__ = ("_known", "patterns")

    def __init__(self, globs: Iterable[str], regexes: Iterable[str]) -> None:
        self._known: dict[str, bool] = {}
        self.patterns = [glob_pattern(glob) for glob in globs]
        for regex in regexes:
            self.patterns += regex_patterns(regex)

    def __call__(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = any(pattern.test(name) for pattern in self.patterns)
            if len(self._known) < MAX_KNOWN and len(name) <= MAX_KNOWN_CHARS:
                self._known[name] = known
        return known


def name_match(spec: dict[str, Any] | None) -> NameMatch | None:
    """None: every name. A matcher without any pattern matches no name."""
    if spec is None:
        return None
    globs, regexes = spec.get("glob") or (), spec.get("regex") or ()
    if "*" in globs:
        return None
    return NameMatch(globs, regexes)


class NameIndex:
    """Which of many numbered rules a name matches, without trying them all."""

    __slots__ = (
        "_always", "_exact", "_head_lengths", "_heads", "_numbers", "_regexes", "_set", "_slow", "_tail_lengths",
        "_tails",
    )  # fmt: skip

    def __init__(self, rules: Iterable[tuple[int, NameMatch | None]]) -> None:
        self._always: list[int] = []
        self._exact: dict[str, list[int]] = {}
        self._heads: dict[str, list[tuple[int, NameTest]]] = {}
        self._tails: dict[str, list[tuple[int, NameTest]]] = {}
        self._slow: list[tuple[int, NameTest]] = []
        self._regexes: list[tuple[int, Pattern]] = []
        self._set: Any = None
        self._numbers: dict[int, list[int]] = {}
        for number, match in rules:
            if match is None:
                self._always.append(number)
                continue
            for pattern in match.patterns:
                if pattern.exact is not None:
                    self._exact.setdefault(pattern.exact, []).append(number)
                elif pattern.prefix:
                    self._heads.setdefault(pattern.prefix, []).append((number, pattern.test))
                elif pattern.suffix:
                    self._tails.setdefault(pattern.suffix, []).append((number, pattern.test))
                elif pattern.regex is not None:
                    self._regexes.append((number, pattern))
                else:
                    self._slow.append((number, pattern.test))
        self._head_lengths = sorted({len(head) for head in self._heads})
        self._tail_lengths = sorted({len(tail) for tail in self._tails})

    def find(self, name: str) -> list[int]:
        """Numbers of the rules that match, in order."""
        found = set(self._exact.get(name, ()))
        for length in self._head_lengths:
            found.update(number for number, test in self._heads.get(name[:length], ()) if test(name))
        for length in self._tail_lengths:
            found.update(number for number, test in self._tails.get(name[-length:], ()) if test(name))
        found.update(number for number, test in self._slow if test(name))
        if self._regexes:
            found.update(self._find_regexes(name))
        if not found:
            return self._always
        found.update(self._always)
        return sorted(found)

    def _find_regexes(self, name: str) -> list[int]:
        if len(self._regexes) == 1:
            number, pattern = self._regexes[0]
            return [number] if pattern.test(name) else []
        if self._set is None:
            self._set = self._compile_set()
        found = self._set.Match(name.encode("utf-8", "replace").decode()) if self._set else None
        # The empty pattern matches every name. Without it in the answer the set gave up (RE2 says "no match" when it
        # runs out of memory), and a rule must not be lost by that.
        if not found or _SENTINEL not in found:
            return [number for number, pattern in self._regexes if pattern.test(name)]
        return [number for position in found for number in self._numbers[position]]

    def _compile_set(self) -> Any:
        """All remaining regexes as one set, or False where RE2 cannot hold them in one."""
        import re2

        patterns = re2.Set.SearchSet(re2_options(_SET_MEMORY))
        patterns.Add("")
        self._numbers[_SENTINEL] = []
        positions: dict[str, int] = {}
        for number, pattern in self._regexes:
            regex = pattern.regex or ""
            if regex not in positions:
                positions[regex] = patterns.Add(regex)
            self._numbers.setdefault(positions[regex], []).append(number)
        try:
            patterns.Compile()
        except Exception:
            return False
        return patterns

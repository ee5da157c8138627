"""Path templates: which paths an operation has, and whether two operations could have one in common.

    /repos/{owner}/issues/{number:int}       a parameter is a whole segment; `int`: digits only, and a number
    /repos/{owner}/contents/{path...}        the rest of the path, at the end only

Literal segments are compared byte for byte: a server that folds their case, or decodes them first, would find an
operation where we find none, so such a spelling is found by `nearly` and has two readings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import normalize

from subluminal.adapters.http_api.paths import WHOLE_NUMBER

if TYPE_CHECKING:
    from subluminal.adapters.http_api.paths import Path

MAX_SEGMENTS = 32
TEXT, INT, REST = "text", "int", "rest"
_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,=:@-]+\Z")
_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]{0,63})(:int|\.\.\.)?\}\Z")
_KINDS = {None: TEXT, ":int": INT, "...": REST}


class BadTemplate(Exception):
    """`fix` says what to write instead."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


class Parameter(NamedTuple):
    name: str
    kind: str


Segment = str | Parameter


class Template:
    """`slash`: it ends with one, as some servers demand."""

    __slots__ = ("parameters", "segments", "slash", "text")

    def __init__(self, text: str, segments: tuple[Segment, ...], slash: bool) -> None:
        self.text = text
        self.segments = segments
        self.slash = slash
        self.parameters = tuple(segment.name for segment in segments if isinstance(segment, Parameter))

    @property
    def takes_rest(self) -> bool:
        last = self.segments[-1] if self.segments else ""
        return isinstance(last, Parameter) and last.kind == REST

    def match(self, path: Path) -> dict[str, str | int] | None:
        """The parameters of a path that has one reading; None if it is not of this template."""
        if path.slash != self.slash or not self._has_length(len(path.raw)):
            return None
        found: dict[str, str | int] = {}
        for segment, raw, value in zip(self.segments, path.raw, path.values, strict=False):
            if isinstance(segment, str):
                if segment != raw:
                    return None
            elif segment.kind == INT:
                if not WHOLE_NUMBER.match(raw):
                    return None
                found[segment.name] = int(raw)
            elif segment.kind == TEXT:
                found[segment.name] = value
            else:
                found[segment.name] = "/".join(path.values[len(self.segments) - 1 :])
        return found

    def nearly(self, segments: list[str]) -> bool:
        """Whether a server that is generous in what it reads could take these, decoded and folded, for its own."""
        if not self._has_length(len(segments)):
            return False
        for segment, value in zip(self.segments, segments, strict=False):
            if isinstance(segment, str):
                if segment.casefold() not in _spellings(value):
                    return False
            elif segment.kind == INT and not _could_be_number(value):
                return False
        return True

    def _has_length(self, count: int) -> bool:
        return count >= len(self.segments) if self.takes_rest else count == len(self.segments)

    def meets(self, other: Template) -> bool:
        """Whether one path could be of both."""
        mine, theirs = len(self.segments), len(other.segments)
        if not (mine == theirs or (self.takes_rest and theirs > mine) or (other.takes_rest and mine > theirs)):
            return False
        return all(map(_meet, self.segments, other.segments))  # the rest of the longer one meets what takes it


def _meet(one: Segment, other: Segment) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.casefold() == other.casefold()
    if isinstance(one, Parameter) and isinstance(other, Parameter):
        return True
    literal, parameter = (one, other) if isinstance(one, str) else (other, one)
    assert isinstance(literal, str) and isinstance(parameter, Parameter)
    return parameter.kind != INT or literal.isdigit()


def _spellings(value: str) -> tuple[str, str]:
    """As a server may find it that folds case and compatible characters, and takes a suffix for a format (`.json`)."""
    folded = normalize("NFKC", value).casefold()
    return folded, folded.rpartition(".")[0]


def _could_be_number(text: str) -> bool:
    """What servers take for a whole number: signs, zeros, spaces, digits of other scripts, letters behind them."""
    return text.strip().lstrip("+-")[:1].isdigit()


def read_template(text: str) -> Template:
    """Raises BadTemplate."""
    if not text.startswith("/"):
        raise BadTemplate("a path begins with a slash", f"write /{text}")
    parts = text[1:].split("/")
    slash = parts[-1] == ""
    if slash:
        parts.pop()
    if len(parts) > MAX_SEGMENTS:
        raise BadTemplate(f"a path has at most {MAX_SEGMENTS} segments", "map a shorter one")
    segments = tuple(map(_segment, parts))
    template = Template(text, segments, slash)
    if len(set(template.parameters)) < len(template.parameters):
        raise BadTemplate("a parameter stands twice in the path", "give each parameter a name of its own")
    if any(isinstance(segment, Parameter) and segment.kind == REST for segment in segments[:-1]) or (
        template.takes_rest and slash
    ):
        raise BadTemplate("{name...} is the rest of a path", "put it at the end")
    return template


def _segment(part: str) -> Segment:
    if not part:
        raise BadTemplate("a path has no empty segments", "write one slash between two segments")
    found = _PARAMETER.match(part)
    if found is not None:
        return Parameter(found.group(1), _KINDS[found.group(2)])
    if "{" in part or "}" in part:
        raise BadTemplate("a parameter is a whole segment", "write {name}, {name:int} or {name...} between two slashes")
    if "?" in part:
        raise BadTemplate("a path has no query", "name the parameters of the query under `query`")
    if not _LITERAL.match(part) or part.endswith("."):
        raise BadTemplate(
            "a segment that servers could read in more than one way",
            "use letters, digits and -._~!$&'()*+,=:@ as they are, without % and without a dot at the end",
        )
    return part

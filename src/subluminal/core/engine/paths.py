"""`args.path_within`: whether what the server would open lies in one of these directories.

The value is read in every way that servers read paths (`spellings`), from every place where its relative paths may
start, and led through the links of this machine. `a/link/../b` has two readings: Node shortens the text before it opens
it, the system call goes up from where the link has led. What stops a call asks whether any reading lies within, what
lets it through whether all do.

An entry is led through its links once, when the engine is built, and what it led to stands: who can make a link later
must not move an allow. A deny also counts where an entry leads that did not exist then.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import UNJUDGED_ARGS, UNREAD_PATH
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.spellings import MAX_CHARS, printable, spellings
from subluminal.core.engine.where import held_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from subluminal.core.engine.places import Places

_OPENS_OBJECT = frozenset("{ \t\n\r")
MAX_SHOWN = 4
MAX_SHOWN_CHARS = 200


class Read:
    """Where a value may lead. `doubt`: a clause, where that is not all; `openable`: as it stands, by any server."""

    __slots__ = ("doubt", "openable", "paths")

    def __init__(self, paths: list[str], doubt: str, openable: bool) -> None:
        self.paths = [(path, case_folded(path)) for path in paths]
        self.doubt = doubt
        self.openable = openable


class _Entry:
    """A directory with all below it."""

    __slots__ = ("_below", "_folded", "_names", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._below = path if path == "/" else path + "/"
        self._folded = case_folded(path)
        self._names = 0 if path == "/" else path.count("/")

    def holds(self, path: str, folded: str, places: Places) -> bool:
        if path == self.path or path.startswith(self._below):
            return True
        # Where the file system ignores case, or how a letter is composed, another spelling is the same directory.
        if not folded.startswith(self._folded):
            return False
        head = "/".join(path.split("/", self._names + 1)[: self._names + 1])
        return head != self.path and case_folded(head) == self._folded and places.same(head, self.path)


class PathWithin:
    """One predicate. `places` is None where nothing is known of the machine: then it cannot be judged."""

    __slots__ = ("_doubt", "_entries", "_generous", "_later", "_places")

    def __init__(self, entries: list[str], generous: bool, places: Places | None) -> None:
        self._generous = generous
        self._places = places
        self._entries: list[_Entry] = []
        self._later: list[str] = []  # of a deny: not there yet
        self._doubt = "" if places is not None else "it is not known here where paths lead"
        if places is not None:
            for entry in entries:
                self._add(entry_path(entry, places), places)

    def _add(self, path: str, places: Places) -> None:
        try:
            self._entries.append(_Entry(places.real("/", path)))
        except Unavailable as unavailable:
            self._doubt = unavailable.why
            return
        if self._generous and not places.exists(path):
            self._later.append(path)

    @property
    def settled(self) -> bool:
        """Whether its directories are those it has now, whatever happens to the machine."""
        return not self._doubt and not self._later

    @property
    def directories(self) -> list[str]:
        return [entry.path for entry in self._entries]

    def read(self, value: str) -> Read:
        """Where a text may lead, found out once for a call."""
        places = self._places
        if places is None:
            raise Unavailable(UNJUDGED_ARGS, self._doubt)
        read: Read | None = places.seen.get(value)
        if read is None:
            read = places.seen[value] = read_path(value, places)
        return read

    def __call__(self, value: Any) -> bool:
        places = self._places
        if places is None:
            raise Unavailable(UNJUDGED_ARGS, self._doubt)
        if value.__class__ is not str:
            return self._generous and self._as_text(value)
        if self._generous:
            return self._any(self.read(value), places)
        return self._all(self.read(value), places)

    def _any(self, read: Read, places: Places) -> bool:
        entries, doubt = self._entries, read.doubt or self._doubt
        for later in self._later:  # asked anew each time: what was not there may be a link by now
            try:
                entries = [*entries, _Entry(places.real("/", later))]
            except Unavailable as unavailable:
                doubt = doubt or unavailable.why
        for path, folded in read.paths:
            for entry in entries:
                if entry.holds(path, folded, places):
                    return True
        if doubt:
            raise Unavailable(UNJUDGED_ARGS, doubt)
        return False

    def _all(self, read: Read, places: Places) -> bool:
        if not read.openable:
            return False
        for path, folded in read.paths:
            for entry in self._entries:
                if entry.holds(path, folded, places):
                    break
            else:
                if self._doubt:
                    raise Unavailable(UNJUDGED_ARGS, self._doubt)
                return False
        if read.doubt:
            raise Unavailable(UNJUDGED_ARGS, read.doubt)
        return True

    def _as_text(self, value: Any) -> bool:
        """A number is a path to a server that asks for text."""
        if isinstance(value, (list, dict)):
            return False
        from subluminal.core.engine.readings import texts

        return any(self(text) for text in texts(value, MAX_CHARS) if text is not None)

    def reading(self, value: Any) -> str:
        """What the value was read as, for `explain`."""
        places = self._places
        if places is None or value.__class__ is not str:
            return ""
        read = read_path(value, places)
        text = printable(value[:MAX_SHOWN_CHARS])
        shown = " or ".join(printable(path) for path, _ in read.paths[:MAX_SHOWN])
        words = f"{text} is {shown}" if shown else f"{text} is no path"
        if len(read.paths) > MAX_SHOWN:
            words += " or others"
        return f"{words}, but {read.doubt}" if read.doubt else words


def entry_path(entry: str, places: Places) -> str:
    """An entry as an absolute path, links and all."""
    if entry == "~" or entry.startswith("~/"):
        return places.home + entry[1:]
    return entry if entry.startswith("/") else f"{places.root}/{entry}"


def entry_fault(entry: str) -> str | None:
    """Why an entry names no directory; for the linter."""
    if "\0" in entry or not entry.isprintable():
        return "has a control character"
    if len(entry) > MAX_CHARS:
        return f"has {len(entry):,} characters; no path has more than {MAX_CHARS:,}"
    if entry.startswith("~") and not entry.startswith("~/") and entry != "~":
        return "names the home of another user; write the directory itself"
    if "://" in entry or entry.lower().startswith("file:"):
        return "is a URL; write the directory itself"
    if "*" in entry or "?" in entry:
        return "looks like a pattern; an entry is one directory with all below it"
    return None


def read_path(value: str, places: Places) -> Read:
    """Where a value may lead. Nothing opens a NUL unless the text is shortened; lone surrogates have no one name."""
    if value == UNREAD_PATH:
        return Read([], "the paths in it could not be read", True)
    doubt = ""
    if len(value) > MAX_CHARS:  # the system opens none, but Node shortens it first
        doubt, value = "the path is too long", _squeezed(value)
        if len(value) > MAX_CHARS:
            return Read([], doubt, True)
    openable = "\0" not in value and not (value[:1] in _OPENS_OBJECT and _is_object(value))
    text = value
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)  # as Node does
        openable = False
    texts, unclear = spellings(text, places.variable)
    doubt = doubt or unclear
    found: dict[str, None] = {}
    for one in texts:
        for start, path in _starts(one, places):
            for base, way in _ways(start, path):
                try:
                    found[places.real(base, way)] = None
                except Unavailable as unavailable:
                    doubt = doubt or unavailable.why
    return Read(list(found), doubt, openable)


def _is_object(text: str) -> bool:
    """An object in a text is one to servers that take either: who knows what they open then."""
    try:
        return held_in(text) is not None
    except Unavailable:
        return True


def _starts(text: str, places: Places) -> Iterator[tuple[str, str]]:
    if text.startswith("/"):
        yield "/", text
        return
    for start in places.starts:
        yield start, text
    if text.startswith("~"):
        user, _, below = text[1:].partition("/")
        homes = places.homes if not user else (places.home_of(user),)
        for home in homes:
            if home is not None:
                yield "/", f"{home}/{below}"


def _ways(base: str, path: str) -> Iterator[tuple[str, str]]:
    """Physically, and as those see it who shorten the text first. Where one leads nowhere, the other may lead."""
    if ".." in path:
        short = shortened(path if base == "/" else f"{base}/{path}")
        if "\0" not in short:
            yield "/", short
    if "\0" not in path:
        yield base, path


def _squeezed(path: str) -> str:
    """Shortened by its text, but not above where it starts."""
    kept: list[str] = []
    for name in path.split("/"):
        if name == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif name and name != ".":
            kept.append(name)
    return ("/" if path.startswith("/") else "") + "/".join(kept)


def shortened(path: str) -> str:
    """An absolute path without `..`, by its text alone."""
    kept: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del kept[-1:]
        elif name and name != ".":
            kept.append(name)
    return "/" + "/".join(kept)


def case_folded(path: str) -> str:
    if path.isascii():
        return path.lower()
    from unicodedata import normalize

    return normalize("NFC", normalize("NFC", path).casefold())

"""This machine as `path_within` sees it: where paths start, and where links lead.

`ThisMachine` costs nothing until a policy asks. The root of a run is one fact for all its shims: the first that asks
writes down where the run began (`host.run.root`), so that neither a later `cd` nor a server with a directory of its own
moves it. A policy's `~` is the home of whoever starts the client, for an entry of a configuration could set another.
"""

from __future__ import annotations

import os
from errno import ENOENT, ENOTDIR
from stat import S_ISLNK

from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.host.identity import client_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# As many as Linux follows.
MAX_LINKS = 40
# Of one path, all its links together; the longest that a system call takes has half as many.
MAX_STEPS = 4_096
# Characters of all that is looked up, again or anew, for the paths of one judgement or of one policy's entries. The
# system takes some 15 ns for each. An agent may build trees and links in which every path is long, and give a list of
# them; a repository may name them as entries.
MAX_WALKED = 20_000_000
# More directories than a server is given; each is another place where a relative path could start.
MAX_STARTS = 17


class ThisMachine:
    """The places of one producer. `command` is the server's: it may name directories where its paths start.

    `client_dir`: where the run's client works, if not in `working_dir`, which is the server's.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        working_dir: str,
        *,
        run_id: str | None = None,
        command: Sequence[str] = (),
        of_entry: bool = False,
        client_dir: str | None = None,
    ) -> None:
        self.seen: dict[str | None, Any] = {}
        self._environ = environ
        self._working_dir = self._start_dir = working_dir
        self._run_id = run_id
        self._command = tuple(command)
        self._of_entry = of_entry
        self._client_dir = client_dir or working_dir
        self._found: dict[str, Any] = {}

    # -- where paths start ------------------------------------------------------------------------------------

    def start_from(self, directory: str | None) -> None:
        """Relative paths of the next calls start here; None: where we are. For a client whose directory changes."""
        directory = directory or self._working_dir
        if directory != self._start_dir:
            self._start_dir = directory
            self._found.pop("starts", None)

    @property
    def home(self) -> str:
        return str(self._once("home", self._find_home))

    @property
    def root(self) -> str:
        return str(self._once("root", self._find_root))

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(self._once("starts", self._find_starts))

    @property
    def homes(self) -> tuple[str, ...]:
        return tuple(self._once("homes", lambda: dict.fromkeys((self._environ.get("HOME") or self.home, self.home))))

    def _once(self, name: str, find: Any) -> Any:
        if name not in self._found:
            self._found[name] = find()
        return self._found[name]

    def _find_home(self) -> str:
        environ = client_environment() if self._of_entry else self._environ
        home = environ.get("HOME") or ""
        return home if home.startswith("/") else self.home_of("") or "/"

    def _find_root(self) -> str:
        from subluminal.host.run.root import root_of, settle_root

        directory = self._client_dir
        return root_of(directory) if self._run_id is None else settle_root(self._run_id, directory)

    def _find_starts(self) -> list[str]:
        """The server's working directory is ours; the directories that it is told are where some of them begin."""
        starts = {os.path.realpath(self._start_dir): None}
        for word in self._command[1:]:
            for name in (word, word.partition("=")[2]):
                path = os.path.join(self._working_dir, name)
                if name and len(starts) < MAX_STARTS and os.path.isdir(path):
                    starts[os.path.realpath(path)] = None
        return list(starts)

    def home_of(self, user: str) -> str | None:
        """By the system's own list. Without a name: ours."""
        import pwd  # only where it is asked for

        try:
            return (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir
        except (KeyError, ValueError, OSError):
            return None

    def variable(self, name: str) -> str | None:
        return self._environ.get(name)

    # -- where they lead --------------------------------------------------------------------------------------

    def real(self, base: str, path: str) -> str:
        """See `Places.real`. Step by step, because what `os.path.realpath` cannot resolve it takes for plain names."""
        links = self.seen.get(None)
        if links is None:
            links = self.seen[None] = _Links()
        if links.walked > MAX_WALKED:
            raise Unavailable(UNJUDGED_ARGS, "it takes too long to follow the paths")
        if path.startswith("/"):
            base = "/"
        at = "" if base == "/" else base
        rest = path.split("/")[::-1]
        missing = followed = steps = walked = 0  # how many of the last names are not there
        try:
            while rest:
                name = rest.pop()
                if not name or name == ".":
                    continue
                steps += 1
                if name == "..":
                    at = at[: max(at.rfind("/"), 0)]
                    missing = max(missing - 1, 0)
                    continue
                here = f"{at}/{name}"
                walked += len(here)
                if missing:
                    missing += 1
                elif (target := links[here]) is None:
                    missing = 1
                elif target:
                    followed += 1
                    rest += target.split("/")[::-1]
                    if target.startswith("/"):
                        at = ""
                    if followed > MAX_LINKS or len(rest) > MAX_STEPS:
                        raise Unavailable(UNJUDGED_ARGS, "the path leads through too many links")
                    continue
                at = here
                if steps > MAX_STEPS:
                    raise Unavailable(UNJUDGED_ARGS, "the path is too long")
        finally:
            links.walked += walked
        return at or "/"

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (OSError, ValueError):
            return False
        return True

    def same(self, path: str, other: str) -> bool:
        try:
            return os.path.samefile(path, other)
        except (OSError, ValueError):
            return False


class _Links(dict[str, str | None]):
    """Where each path points: "" for what is no link, None for what is not there. Each is looked up once."""

    walked = 0

    def __missing__(self, path: str) -> str | None:
        target = self[path] = _link(path)
        return target


def _link(path: str) -> str | None:
    try:
        if not S_ISLNK(os.lstat(path).st_mode):
            return ""
        if _of_one_process(path):
            raise Unavailable(UNJUDGED_ARGS, "the path leads through what belongs to one process")
        return os.readlink(path)
    except OSError as error:
        if error.errno not in (ENOENT, ENOTDIR):
            raise Unavailable(UNJUDGED_ARGS, f"the path cannot be followed ({error.strerror})") from None
        if _of_one_process(path):  # the server may have open what we have not
            raise Unavailable(UNJUDGED_ARGS, "the path leads through what belongs to one process") from None
        return None
    except ValueError:
        raise Unavailable(UNJUDGED_ARGS, "the path is no name of a file") from None


def _of_one_process(path: str) -> bool:
    return path.startswith("/proc/") and path[6:7].isdigit()

"""Where a policy that fails closed is in force, left on disk for a hook command that can ask nobody.

One file for each place in `SUB_HOME/closed/`, holding a directory with a slash behind it (a shell compares it with the
beginning of its own): in it and below it, a hook that fails refuses. The file `everywhere` holds `/` and stands for the
organisation's, the fleet's and the user's policy; a repository's policy, or one that was named for a run, for the
repository. Each is written and removed on its own, so that nobody overwrites what another has found. A policy that
cannot be loaded fails closed, as everywhere. Selectors are not asked: a policy that is meant for other agents closes
this place too while nobody can be asked.
"""

from __future__ import annotations

import os

from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import PolicyError
from subluminal.contracts.vocabulary import ALLOW
from subluminal.host import home
from subluminal.host.files import replace_file
from subluminal.host.run.root import root_of
from subluminal.policy.sources import ABOVE_THE_USER, NAMING_VARIABLES, find_policies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from subluminal.policy.sources import PolicySource

EVERYWHERE = "everywhere"
_WIDE = (*ABOVE_THE_USER, "user")


def keep_markers(environ: Mapping[str, str], cwd: str) -> None:
    """Bring them up to date with the policies of this directory. A home that cannot be written keeps what it has."""
    sub_home = home.sub_home(environ)
    named = [name for name in NAMING_VARIABLES if name != "SUB_HOME"]
    unnamed = {name: value for name, value in environ.items() if name not in named}
    wide = [source for source in find_policies(unnamed, cwd) if source.origin in _WIDE]
    here = [source for source in find_policies(environ, cwd) if source.origin not in (*_WIDE, "builtin")]
    directory = _one_line(root_of(cwd))
    try:
        _mark(sub_home, EVERYWHERE, "/", any(map(_fails_closed, wide)))
        _mark(sub_home, sha256_hex(os.fsencode(directory))[:32], directory, any(map(_fails_closed, here)))
    except OSError:
        pass


def fails_closed(snapshot: dict[str, Any]) -> bool:
    """Whether a compiled policy refuses what it cannot judge."""
    return snapshot["mode"] != "observe" and (snapshot.get("defaults") or {}).get("decision_on_error") != ALLOW


def _fails_closed(source: PolicySource) -> bool:
    try:
        return fails_closed(source.load())
    except PolicyError:
        return True


def _mark(sub_home: str, name: str, directory: str, closed: bool) -> None:
    where = home.closed_dir(sub_home)
    path = os.path.join(where, name)
    if closed:
        home.ensure_private_dir(where, sub_home)
        replace_file(path, os.fsencode(os.path.join(directory, "")) + b"\n")
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _one_line(directory: str) -> str:
    """What a shell reads as one line: a directory whose name has several is marked by the one above."""
    while "\n" in directory:
        directory = os.path.dirname(directory)
    return directory

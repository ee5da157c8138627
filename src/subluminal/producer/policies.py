"""The policies in force for one producer, and their hot reload: what the shim and in-process adapters hold.

A policy that does not load is never "no policy": the last good stack stays, or (`ever_loaded` false) everything is
refused until one loads.
"""

from __future__ import annotations

import os

from subluminal.contracts.errors import PolicyError
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.host.identity import client_environment, without_entry
from subluminal.policy.sources import BUILTIN_OBSERVE, NAMING_VARIABLES, find_for_entry, find_policies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from subluminal.contracts.identity import Identity
    from subluminal.core.engine.places import Places
    from subluminal.policy.sources import PolicySource

_Stamp = tuple[int, int, int]


class PolicyWatch:
    """`of_entry`: the process was started by an entry of a client's configuration, which may add policies only."""

    def __init__(
        self,
        environ: Mapping[str, str],
        cwd: str,
        explicit: str | None,
        identity: Identity,
        *,
        of_entry: bool = False,
        places: Places | None = None,
    ) -> None:
        self._environ = dict(environ)
        self._cwd = cwd
        self._explicit = explicit
        self._of_entry = of_entry
        names_one = explicit or any(environ.get(name) for name in NAMING_VARIABLES)
        self._client = client_environment() if of_entry and names_one else None
        self._identity = identity
        self._places = places
        self.error: str | None = None
        self.origin = ""
        self.ever_loaded = False
        self.stack = Stack([Engine(BUILTIN_OBSERVE, identity)])
        self._stamps: dict[str, _Stamp | None] = {}
        self.reload()

    def changed(self) -> bool:
        """A file was edited, or one came or went. Some `stat` calls: cheap enough for twice a second."""
        return _stamps(self._find()) != self._stamps

    def _find(self) -> list[PolicySource]:
        if self._client is not None:
            return find_for_entry(self._environ, self._cwd, self._explicit, self._client)
        return find_policies(self._environ, self._cwd, self._explicit)

    def reload(self) -> None:
        sources = self._find()
        self.origin = ", ".join(source.path or source.origin for source in sources)
        self._stamps = _stamps(sources)
        try:
            engines = [Engine(source.load(), self._identity, self._places) for source in sources]
        except PolicyError as fault:
            self.error = str(fault)
            return
        self.error = None
        self.ever_loaded = True
        if self._of_entry and not all(engine.applies for engine in engines):
            self._apply_without_entry(engines)
        self.stack = Stack(engines)

    def _apply_without_entry(self, engines: list[Engine]) -> None:
        """Whoever writes an entry may say who acts, and so come under more policies, but not under fewer."""
        others = without_entry(self._identity)
        for engine in engines:
            engine.applies = engine.applies or any(map(engine.selects, others))


def _stamps(sources: list[PolicySource]) -> dict[str, _Stamp | None]:
    return {source.path: _stamp(source.path) for source in sources if source.path is not None}


def _stamp(path: str) -> _Stamp | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino

"""The policies in force for one producer, and their hot reload: what the shim and in-process adapters hold.

A policy that does not load is never "no policy": the last good stack stays, or (`ever_loaded` false) everything is
refused until one loads. What a fleet lays comes into force all the same: a broken file of a repository must not keep a
stop away.
"""

from __future__ import annotations

import os

from subluminal.contracts.errors import PolicyError
from subluminal.core.engine.bundle import Engine
from subluminal.core.engine.stack import Stack
from subluminal.host.identity import client_environment, without_entry
from subluminal.host.run.files import promotes_path
from subluminal.policy.sources import BUILTIN_OBSERVE, NAMING_VARIABLES, find_for_entry, find_policies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from subluminal.contracts.identity import Identity
    from subluminal.core.engine.places import Places
    from subluminal.policy.sources import PolicySource

_Stamp = tuple[int, ...]


class PolicyWatch:
    """`of_entry`: the process was started by an entry of a client's configuration, which may add policies only.

    `find` looks for the policies in another way; `others`: who acts without what was said by somebody who may come
    under more policies by it, but not under fewer.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        cwd: str,
        explicit: str | None,
        identity: Identity,
        *,
        of_entry: bool = False,
        places: Places | None = None,
        find: Callable[[], list[PolicySource]] | None = None,
        others: Callable[[], list[Identity]] | None = None,
    ) -> None:
        self._environ = dict(environ)
        self._cwd = cwd
        self._explicit = explicit
        self._apart = of_entry  # a shim: one process for each server, which must stay small
        self._look = find
        self._others = (lambda: without_entry(identity)) if of_entry else others
        names_one = explicit or any(environ.get(name) for name in NAMING_VARIABLES)
        self._client = client_environment() if of_entry and names_one else None
        self._identity = identity
        self._places = places
        self.error: str | None = None
        self.origin = ""
        self.ever_loaded = False
        self.stack = Stack([Engine(BUILTIN_OBSERVE, identity)])
        self._stamps: dict[str, _Stamp | None] = {}
        self._good: list[tuple[PolicySource, dict[str, Any]]] = []
        self._promotes = promotes_path(identity.run_id)
        self.reload()

    def changed(self) -> bool:
        """A file was edited, or one came or went. Some `stat` calls: cheap enough for twice a second."""
        return self._now(self._find()) != self._stamps

    def _now(self, sources: list[PolicySource]) -> dict[str, _Stamp | None]:
        return {self._promotes: _stamp(self._promotes), **_stamps(sources)}

    def _find(self) -> list[PolicySource]:
        if self._look is not None:
            return self._look()
        if self._client is not None:
            return find_for_entry(self._environ, self._cwd, self._explicit, self._client)
        return find_policies(self._environ, self._cwd, self._explicit)

    def reload(self) -> None:
        sources = self._find()
        self.origin = ", ".join(source.path or source.origin for source in sources)
        self._stamps = self._now(sources)
        try:
            found = [(source, source.load(apart=self._apart)) for source in sources]
            self.error = None
            self.ever_loaded = True
        except PolicyError as fault:
            self.error = str(fault)
            if not self.ever_loaded or not any(map(_is_laid, [*sources, *(source for source, _ in self._good)])):
                return
            found = self._last_good(sources)
        self._good = found
        snapshots = [snapshot for _, snapshot in found]
        if self._stamps[self._promotes] is not None:
            snapshots = self._with_promotes([source for source, _ in found], snapshots)
        engines = [
            Engine(snapshot, self._identity, self._places, of_repository=source.origin == "repository")
            for (source, _), snapshot in zip(found, snapshots, strict=True)
        ]
        if self._others is not None and not all(engine.applies for engine in engines):
            others = self._others()
            for engine in engines:
                engine.applies = engine.applies or any(map(engine.selects, others))
        self.stack = Stack(engines)

    def _last_good(self, sources: list[PolicySource]) -> list[tuple[PolicySource, dict[str, Any]]]:
        """What a fleet has laid, as it is now, and beside it the last that was good."""
        laid = [source for source in sources if _is_laid(source)]
        try:
            now = [(source, source.load()) for source in laid]
        except PolicyError:
            return self._good
        first = [pair for pair in self._good if pair[0].origin == "organisation"]
        return first + now + [pair for pair in self._good if pair[0].origin != "organisation" and not _is_laid(pair[0])]

    def _with_promotes(self, sources: list[PolicySource], snapshots: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What a person has changed for this run alone."""
        from subluminal.host.run.promotes import read_promotes
        from subluminal.policy.edit.changes import with_promotes

        origins = [source.origin for source in sources]
        return with_promotes(list(zip(origins, snapshots, strict=True)), read_promotes(self._identity.run_id))


def _stamps(sources: list[PolicySource]) -> dict[str, _Stamp | None]:
    stamps = {source.path: _stamp(source.path) for source in sources if source.path is not None}
    for source in sources:
        if source.overdue is not None:  # from that moment on it is judged in another way
            stamps[source.path or ""] = (*(stamps[source.path or ""] or ()), 1)
    return stamps


def _is_laid(source: PolicySource) -> bool:
    return source.origin in ("fleet", "stop")


def _stamp(path: str) -> _Stamp | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino

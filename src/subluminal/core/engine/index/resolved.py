"""Groups by what a value leads to: the directories a path lies in, the hosts of a URL, the programs of a line.

A value whose readings are in doubt may mean any rule of the group: each has to say that it cannot judge it.
"""

from __future__ import annotations

from subluminal.contracts.globs import is_glob
from subluminal.core.engine.commands import read_command
from subluminal.core.engine.hosts import glob_of_name, hosts_in
from subluminal.core.engine.index.groups import Group
from subluminal.core.engine.index.patterns import glob_patterns, text_index
from subluminal.core.engine.paths import case_folded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.core.engine.names import NameIndex, Pattern
    from subluminal.core.engine.paths import PathWithin


class Directories(Group):
    """`path_within`, where all entries are known. A path lies in the directories that its own text begins with, in
    whatever case."""

    __slots__ = ("_by_name", "_within")

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._by_name: dict[str, list[int]] = {}
        self._within: PathWithin | None = None

    def add(self, position: int, *wanted: Any) -> None:
        super().add(position)
        self._within = wanted[0]
        for directory in wanted[0].directories:
            self._by_name.setdefault(case_folded(directory), []).append(position)

    def find_value(self, value: Any, found: set[int]) -> None:
        if value.__class__ is not str or self._within is None:
            found.update(self._all if value.__class__ is not dict else ())
            return
        read = self._within.read(value)
        if read.doubt:
            found.update(self._all)
            return
        for path, _ in read.paths:
            at = len(path)
            while at > 0:
                found.update(self._by_name.get(case_folded(path[:at]), ()))
                at = path.rfind("/", 0, at)
            found.update(self._by_name.get("/", ()))


class HostNames(Group):
    """`host_in`: names and globs are looked up; networks are asked whenever there is a host."""

    __slots__ = ("_index", "_networks", "_patterns")

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._patterns: list[tuple[int, list[Pattern]]] = []
        self._networks: list[int] = []
        self._index: NameIndex

    def add(self, position: int, *wanted: Any) -> None:
        super().add(position)
        globs = [glob_of_name(pattern) for pattern in wanted[0]]
        if None in globs:
            self._networks.append(position)
        else:
            self._patterns.append((position, glob_patterns([glob for glob in globs if glob is not None])))

    def close(self) -> None:
        self._index = text_index(self._patterns)

    def find_value(self, value: Any, found: set[int]) -> None:
        if value.__class__ is not str:
            found.update(self._all if value.__class__ is not dict else ())
            return
        read = hosts_in(value)
        if read.doubt:
            found.update(self._all)
            return
        for host in read.hosts:
            found.update(self._index.find(host.name))
        if read.hosts:
            found.update(self._networks)


class Programs(Group):
    """`command` of rules that stop a call."""

    __slots__ = ("_by_name", "_globs")
    takes_lists = True

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._by_name: dict[str, list[int]] = {}
        self._globs: list[int] = []

    def add(self, position: int, *wanted: Any) -> None:
        super().add(position)
        for pattern in wanted[0]:
            if is_glob(pattern):
                self._globs.append(position)
            else:
                for name in {pattern, pattern.lower()}:
                    self._by_name.setdefault(name, []).append(position)

    def find_value(self, value: Any, found: set[int]) -> None:
        read = read_command(value)
        if read is None:
            return
        if read.doubt:
            found.update(self._all)
            return
        for name in (*read.names, *read.paths):
            found.update(self._by_name.get(name, ()))
        if read.names or read.paths:
            found.update(self._globs)

"""What `path_within` and `host_in` must know of whatever was opened: for the tables and for live programs.

What is let through strictly was not opened elsewhere; what was opened inside is stopped generously or cannot be judged.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from harness.openers import Tree
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.hosts import HostIn
from subluminal.core.engine.paths import PathWithin
from subluminal.host.places import ThisMachine

DIRECTORIES = ("repo", "outside", "repo/sub")
PATTERNS = ("good.test", "*.good.test", "evil.test", "loopback", "private")
# The directories that a server is told in its command; all others are told none.
TOLD = {"filesystem": ("repo", "."), "filesystem of base": (".",)}
_PRIVATE = [
    ip_network(network)
    for network in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "0.0.0.0/8"),
        *("192.0.0.0/24", "198.18.0.0/15", "fc00::/7", "fe80::/10", "fec0::/10"),
    )
]


def judged(predicate: Any, value: Any) -> bool | None:
    """None: it cannot be judged."""
    try:
        return bool(predicate(value))
    except Unavailable:
        return None


class PathJudge:
    """The predicates of one server in a tree."""

    def __init__(self, tree: Tree, who: str) -> None:
        self._tree = tree
        command = ["server", *(str(tree.base / name) for name in TOLD.get(who, ()))]
        self.places = ThisMachine(tree.environ, str(tree.repo), command=command)
        self._asked = [
            (name, *(PathWithin([str(tree.base / name)], generous, self.places) for generous in (False, True)))
            for name in DIRECTORIES
        ]

    def faults(self, path: str, opened: str | None) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        if opened is None:
            return found
        self.places.seen.clear()
        for name, allow, deny in self._asked:
            inside = f"{opened}/".startswith(f"{name}/")
            if not inside and judged(allow, path):
                found.append((f"let through to {name}", path, opened))
            if inside and judged(deny, path) is False:
                found.append((f"not kept from {name}", path, opened))
        return found


_HOSTS = [(pattern, HostIn([pattern], False), HostIn([pattern], True)) for pattern in PATTERNS]


def host_faults(url: str, host: str | None) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    if host is None:
        return found
    for pattern, allow, deny in _HOSTS:
        meant = is_meant(pattern, host)
        if not meant and judged(allow, url):
            found.append((f"let through to {pattern}", url, host))
        if meant and judged(deny, url) is False:
            found.append((f"not kept from {pattern}", url, host))
    return found


def is_meant(pattern: str, host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        if pattern == "loopback":
            return host == "localhost" or host.endswith(".localhost")
        return host.endswith(pattern[1:]) if pattern.startswith("*") else host == pattern
    if pattern == "loopback":
        return address.is_loopback or address.is_unspecified
    return pattern == "private" and any(address in network for network in _PRIVATE)

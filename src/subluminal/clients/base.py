"""What a client is to us: where its files lie, which tables in them hold MCP servers, and what one entry looks like.

Adding a client is a `Client`, in `plain.py` or in a small file of its own, and its name in `registry.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from subluminal.clients.document import Document
from subluminal.clients.spans import Member, Node


class Place:
    """Where the user stands: working directory, environment, platform. Passed in, so that tests can move it."""

    def __init__(
        self, cwd: str | None = None, environ: Mapping[str, str] | None = None, platform: str = sys.platform
    ) -> None:
        self.cwd = os.path.abspath(cwd or os.getcwd())
        self.environ = os.environ if environ is None else environ
        self.home = self.environ.get("HOME") or os.path.expanduser("~")
        self.platform = platform

    def at_home(self, *parts: str) -> str:
        return os.path.join(self.home, *parts)

    def in_config(self, *parts: str) -> str:
        """Below `~/.config`, or where XDG_CONFIG_HOME says."""
        return os.path.join(self.environ.get("XDG_CONFIG_HOME") or self.at_home(".config"), *parts)

    def in_app_data(self, *parts: str) -> str:
        """Where desktop programs keep their settings."""
        if self.platform == "darwin":
            return self.at_home("Library", "Application Support", *parts)
        return self.in_config(*parts)

    def project_directories(self) -> list[str]:
        """From the working directory up to the root of its repository; outside of one, up to the home directory."""
        found = []
        home = os.path.realpath(self.home)
        directory = self.cwd
        while True:
            found.append(directory)
            parent = os.path.dirname(directory)
            if os.path.exists(os.path.join(directory, ".git")) or os.path.realpath(directory) == home:
                return found
            if os.path.realpath(parent) == home or os.path.dirname(parent) == parent:
                return found
            directory = parent

    def in_project(self, *parts: str) -> list[str]:
        return [os.path.join(directory, *parts) for directory in self.project_directories()]


class ConfigFile(NamedTuple):
    """A file that may exist. `default` is False for files changed only when asked for by scope."""

    path: str
    scope: str
    default: bool = True


class Servers(NamedTuple):
    """One table of servers in a document: the scope it belongs to and the keys that lead to it."""

    scope: str
    location: tuple[str, ...]
    table: Node


class Entry:
    """One server. `holder` is the table in which `command` and `args` stand (Zed nests them in older files)."""

    def __init__(self, member: Member, servers: Servers, occurrence: int, env_key: str) -> None:
        self.member = member
        self.name = member.key
        self.scope = servers.scope
        self.location = servers.location
        self.occurrence = occurrence
        command = member.node.member("command")
        nested = command is not None and command.node.kind == "table"
        self.holder = command.node if command and nested else member.node
        self.command = self.holder.member("path") if nested else command
        self.args = self.holder.member("args")
        self.env = self.holder.get(env_key)

    @property
    def node(self) -> Node:
        return self.member.node

    @property
    def key(self) -> tuple[tuple[str, ...], str, int]:
        """The same entry in another version of the file."""
        return (self.location, self.name, self.occurrence)


def below(*keys: str) -> Callable[[Document, str], Iterator[Servers]]:
    """The servers of a client that keeps one table of them, reached by `keys`."""

    def tables(document: Document, scope: str) -> Iterator[Servers]:
        for table in reach(document.root, keys):
            yield Servers(scope, keys, table)

    return tables


def reach(node: Node, keys: tuple[str, ...]) -> Iterator[Node]:
    """Every table at the end of a path of keys: a key written twice leads to two."""
    if not keys:
        if node.kind == "table":
            yield node
        return
    for member in node.all(keys[0]):
        yield from reach(member.node, keys[1:])


class HttpFields(NamedTuple):
    """Where an entry for a server behind a URL says what. `urls` are keys with the transport that each stands for.

    `env_headers` is a table of headers to names of variables, `bearer` the name of the variable of a token; `logins`
    are settings of a login that the client does itself.
    """

    urls: tuple[tuple[str, str], ...] = (("url", "auto"),)
    headers: str = "headers"
    env_headers: str | None = None
    bearer: str | None = None
    logins: tuple[str, ...] = ("oauth", "auth")

    @property
    def all_keys(self) -> tuple[str, ...]:
        optional = (key for key in (self.env_headers, self.bearer) if key is not None)
        return (*(key for key, _ in self.urls), self.headers, *optional)


class Client(NamedTuple):
    """`paths` lead to its tables of servers ("*": any key), `tables` finds them where the first path is not enough.

    `word` is its word in events (Contract A). `passed_variables` must be listed in an entry for its server to see them.
    `stdio` is what its `type` says of a server that is a command. `http` is None where a file holds no other servers.
    `holds` is "hooks" for files of the same client that have no servers.
    """

    name: str
    title: str
    files: Callable[[Place], list[ConfigFile]]
    paths: tuple[tuple[str, ...], ...]
    tables: Callable[[Document, str], Iterator[Servers]] | None = None
    word: str = "custom"
    dialect: str = "jsonc"
    env_key: str = "env"
    array_command: bool = False
    passed_variables: tuple[str, ...] = ()
    stdio: str = "stdio"
    http: HttpFields | None = HttpFields()
    holds: str = "servers"

    def read(self, text: str) -> Document:
        return Document(text, self.dialect, self.paths)

    def find(self, place: Place) -> list[ConfigFile]:
        """Its files, each path once: in the home directory a project's file can be the user's own."""
        seen: dict[str, ConfigFile] = {}
        for file in self.files(place):
            seen.setdefault(file.path, file)
        return list(seen.values())

    def entries(self, document: Document, scope: str) -> list[Entry]:
        found = []
        counts: dict[tuple[tuple[str, ...], str], int] = {}
        for servers in (self.tables or below(*self.paths[0]))(document, scope):
            for member in servers.table.members:
                occurrence = counts.get((servers.location, member.key), 0)
                counts[servers.location, member.key] = occurrence + 1
                found.append(Entry(member, servers, occurrence, self.env_key))
        return found

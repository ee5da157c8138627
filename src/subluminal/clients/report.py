"""What an import or a restore did, as plain data: the same for people, for `--json` and for tests."""

from __future__ import annotations

import msgspec

# Of a server: wrapped | updated | corrected | already | http | login | skipped | restored | kept
# Of a hook: added | updated | already | trusted | removed
# Of a file: changed | unchanged | restored | refused | gone


class ServerReport(msgspec.Struct):
    name: str
    scope: str
    status: str
    detail: str | None = None
    project: str | None = None


class Literal(msgspec.Struct):
    """A secret written out in a file: where, never what."""

    server: str
    variable: str


class HookReport(msgspec.Struct):
    """Our hook on one event of the client."""

    event: str
    status: str


class FileReport(msgspec.Struct):
    client: str
    path: str
    scope: str
    status: str
    servers: list[ServerReport] = []
    literals: list[Literal] = []
    warnings: list[str] = []
    exact: bool | None = None
    backup: str | None = None
    error: str | None = None
    hint: str | None = None
    line: int | None = None
    diff: str | None = None
    hooks: list[HookReport] = []

    def count(self, *statuses: str) -> int:
        return sum(server.status in statuses for server in self.servers)

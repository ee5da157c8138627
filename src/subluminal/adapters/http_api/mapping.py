"""The mapping: which requests of an HTTP API are which tools. `files` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from subluminal.adapters.http_api.shape import BodyKind, Method, Unmapped

if TYPE_CHECKING:
    from subluminal.adapters.http_api.paths import Path
    from subluminal.adapters.http_api.templates import Template

METHODS: tuple[str, ...] = get_args(Method)
SAFE = ("GET", "HEAD")
JSON, NONE = "json", "none"
BODIES: tuple[str, ...] = get_args(BodyKind)
REFUSE, PASS = "refuse", "pass"
UNMAPPED: tuple[str, ...] = get_args(Unmapped)
_WITH_BODY = ("POST", "PUT", "PATCH")


class Operation:
    """One tool of the API. `query`: the names that its query may have; None: any."""

    __slots__ = ("body", "method", "query", "risk_class", "template", "tool")

    def __init__(
        self,
        tool: str,
        method: str,
        template: Template,
        *,
        query: frozenset[str] | None = None,
        body: str | None = None,
        risk_class: frozenset[str] | None = None,
    ) -> None:
        self.tool = tool
        self.method = method
        self.template = template
        self.query = query
        self.body = body or (JSON if method in _WITH_BODY else NONE)
        self.risk_class = frozenset((default_class(method),)) if risk_class is None else risk_class


def default_class(method: str) -> str:
    return "read_like" if method in ("GET", "OPTIONS") else "write_like"


class Mapping:
    """`server`: the name that policies and events have for it. `unmapped`: what becomes of other requests."""

    __slots__ = ("_by_method", "operations", "server", "unmapped", "upstream")

    def __init__(self, server: str, upstream: str, operations: list[Operation], unmapped: str = REFUSE) -> None:
        self.server = server
        self.upstream = upstream
        self.operations = operations
        self.unmapped = unmapped
        self._by_method: dict[str, list[Operation]] = {}
        for operation in operations:
            self._by_method.setdefault(operation.method, []).append(operation)

    def find(self, method: str, path: Path) -> tuple[Operation, dict[str, str | int]] | None:
        """The operation of a path that has one reading, and what the path says. At most one has it (`files`)."""
        for operation in self._of(method):
            found = operation.template.match(path)
            if found is not None:
                return operation, found
        return None

    def nearly(self, method: str, path: Path) -> Operation | None:
        """The operation that a server generous in what it reads could find there."""
        segments = path.generously()
        return next((each for each in self._of(method) if each.template.nearly(segments)), None)

    def _of(self, method: str) -> list[Operation]:
        """HEAD is GET without the content."""
        return self._by_method.get("GET" if method == "HEAD" else method, [])

"""The file that a mapping is read from: YAML, JSON or TOML. What is wrong with it is told with its place and a fix.

server: tracker
upstream: https://tracker.example/api/v3
operations:
  - {tool: get_issue, method: GET, path: "/repos/{owner}/{repo}/issues/{number:int}"}
"""

from __future__ import annotations

from typing import Any

from subluminal.adapters.http_api.mapping import BODIES, METHODS, REFUSE, UNMAPPED, Mapping, Operation
from subluminal.adapters.http_api.queries import QUERY_NAME
from subluminal.adapters.http_api.shape import MAX_OPERATIONS, MappingShape, OperationShape
from subluminal.adapters.http_api.templates import BadTemplate, Template, read_template
from subluminal.contracts.errors import ConfigError, SubluminalError
from subluminal.host.proxied import check_name
from subluminal.http.urls import read_url
from subluminal.policy.compile.snapshot import MAX_SOURCE_BYTES
from subluminal.policy.document import tree
from subluminal.policy.lint.findings import ERROR, MAX_FINDINGS, Finding, nearest, one_of, shown

MAX_TOOL_CHARS = 256
KEYS = MappingShape.__struct_fields__
OPERATION_KEYS = OperationShape.__struct_fields__
_EXAMPLE = 'for example {tool: get_issue, method: GET, path: "/issues/{number:int}"}'


class InvalidMapping(ConfigError):
    """`findings` holds all that is wrong; the message shows the first."""

    def __init__(self, findings: list[Finding]) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(findings[0].text() + more, hint=f"Fix: {findings[0].fix}")
        self.findings = findings


def load_mapping(path: str) -> Mapping:
    """Raises InvalidMapping."""
    try:
        with open(path, "rb") as file:
            source = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "its name is not one"
        message = f"cannot read the mapping: {why}"
        raise InvalidMapping([Finding(ERROR, "unreadable", message, "check the path", path, 1, 1)]) from None
    return read_mapping(source, path)


def read_mapping(source: bytes, name: str) -> Mapping:
    """`name` tells the syntax: `.toml`, `.json`, anything else YAML."""
    reader = _Reader(name)
    try:
        root = _parse(source, name)
    except tree.DocumentError as error:
        message, fix = _reworded(error)
        raise InvalidMapping(
            [Finding(ERROR, error.code, message, fix, reader.name, error.line, error.column)]
        ) from None
    mapping = reader.mapping(root)
    if reader.findings or mapping is None:
        raise InvalidMapping(reader.findings)
    return mapping


def _parse(source: bytes, name: str) -> tree.Node:
    if name.lower().endswith(".toml"):
        from subluminal.adapters.http_api.toml_tree import parse_toml

        return parse_toml(source)
    return tree.parse_document(source, name)


def _reworded(error: tree.DocumentError) -> tuple[str, str]:
    """The reader of documents speaks of policies."""
    if error.code == "empty":
        return "the file holds no mapping", "give server, upstream and operations"
    if error.code == "file-too-large":
        return f"the file is larger than {MAX_SOURCE_BYTES:,} bytes", "check that this is the mapping"
    return str(error).replace("policy", "mapping"), error.fix.replace("policy", "mapping")


class _Reader:
    """Goes on after a fault, so that all of them are told at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.findings: list[Finding] = []

    def mapping(self, root: tree.Node) -> Mapping | None:
        if not isinstance(root, tree.Mapping):
            self._wrong(root, "not-a-mapping", "the file is not a mapping of keys", f"give {', '.join(KEYS)}")
            return None
        self._check_keys(root, KEYS)
        server = self._server(root)
        upstream = self._upstream(root)
        unmapped = self._word(root, "unmapped", UNMAPPED) or REFUSE
        operations = self._operations(root)
        return Mapping(server, upstream, operations, unmapped)

    # -- the top ----------------------------------------------------------------------------------------------

    def _server(self, root: tree.Mapping) -> str:
        name = self._text(root, "server")
        if name:
            try:
                check_name(name, "server")
            except ConfigError as error:
                self._wrong(root.get("server"), "bad-name", str(error), "use letters, digits and dashes")
        return name

    def _upstream(self, root: tree.Mapping) -> str:
        url = self._text(root, "upstream")
        if url:
            try:
                read_url(url)
            except SubluminalError as error:
                self._wrong(root.get("upstream"), "bad-url", str(error), error.hint or "write it as https://host/path")
            if "?" in url:
                fix = "give scheme, host and path only"
                self._wrong(root.get("upstream"), "bad-url", "the server's URL has a query", fix)
        return url

    def _operations(self, root: tree.Mapping) -> list[Operation]:
        node = root.get("operations")
        if node is None:
            self._wrong(root, "missing-key", "there is no `operations`", f"list them, {_EXAMPLE}")
            return []
        if not isinstance(node, tree.Sequence) or not node.items:
            self._wrong(node, "bad-operations", "`operations` is not a list of operations", f"list them, {_EXAMPLE}")
            return []
        if len(node.items) > MAX_OPERATIONS:
            message = f"{len(node.items):,} operations; there may be {MAX_OPERATIONS:,}"
            self._wrong(node, "too-many-operations", message, "split the mapping, and start a proxy for each")
            return []
        known: list[tuple[Operation, tree.Node]] = []
        for item in node.items:
            operation = self._operation(item)
            if operation is not None:
                self._check_alone(operation, item, known)
                known.append((operation, item))
        return [operation for operation, _ in known]

    def _check_alone(self, operation: Operation, item: tree.Node, known: list[tuple[Operation, tree.Node]]) -> None:
        """One path, one tool: which of two a server takes is its own affair."""
        for other, place in known:
            if other.method == operation.method and other.template.meets(operation.template):
                message = f"{operation.template.text} and {other.template.text} (line {place.line}) match the same path"
                fix = "map one of them (a policy can ask for the parameter), or narrow a parameter: {name:int}"
                self._wrong(item, "overlapping-paths", f"{operation.method} {message}", fix)
                return

    # -- one operation ----------------------------------------------------------------------------------------

    def _operation(self, item: tree.Node) -> Operation | None:
        if not isinstance(item, tree.Mapping):
            self._wrong(item, "bad-operation", "an operation is a mapping of keys", _EXAMPLE)
            return None
        before = len(self.findings)
        self._check_keys(item, OPERATION_KEYS)
        tool = self._tool(item)
        method = self._word(item, "method", METHODS, required=True) or ""
        template = self._template(item)
        query = self._names(item, "query")
        for name in query or ():
            if not QUERY_NAME.match(name) or (template is not None and name in template.parameters):
                message = f"{shown(name)} cannot be a parameter of the query"
                fix = "use letters, digits and _-.~, and no name that the path has"
                self._wrong(item.get("query"), "bad-query", message, fix)
        body = self._word(item, "body", BODIES)
        risk_class = self._names(item, "risk_class")
        if template is None or len(self.findings) > before:
            return None
        return Operation(tool, method, template, query=query, body=body, risk_class=risk_class)

    def _tool(self, item: tree.Mapping) -> str:
        tool = self._text(item, "tool")
        if tool and (not tool.isprintable() or tool[0] in "( " or len(tool) > MAX_TOOL_CHARS):
            message = f"{shown(tool)} cannot be the name of a tool"
            self._wrong(item.get("tool"), "bad-name", message, "use a word such as create_issue")
        return tool

    def _template(self, item: tree.Mapping) -> Template | None:
        text = self._text(item, "path")
        try:
            return read_template(text) if text else None
        except BadTemplate as error:
            self._wrong(item.get("path"), "bad-path", f"{shown(text)}: {error}", error.fix)
            return None

    # -- values -----------------------------------------------------------------------------------------------

    def _text(self, owner: tree.Mapping, key: str) -> str:
        node = owner.get(key)
        if node is None:
            self._wrong(owner, "missing-key", f"there is no `{key}`", f"add `{key}`")
            return ""
        if not isinstance(node, tree.Scalar) or not isinstance(node.value, str) or not node.value:
            self._wrong(node, "not-text", f"`{key}` is not a text", "write it in quotes")
            return ""
        return node.value

    def _word(self, owner: tree.Mapping, key: str, words: tuple[str, ...], required: bool = False) -> str | None:
        if owner.get(key) is None and not required:
            return None
        word = self._text(owner, key)
        if word and word not in words:
            near = nearest(word, words)
            fix = f"did you mean {shown(near)}?" if near else f"use {one_of(words)}"
            self._wrong(owner.get(key), "unknown-word", f"`{key}` cannot be {shown(word)}", fix)
        return word

    def _names(self, owner: tree.Mapping, key: str) -> frozenset[str] | None:
        """A list of texts, or one."""
        node = owner.get(key)
        if node is None:
            return None
        value: Any = tree.plain_value(node)
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            self._wrong(node, "not-a-list", f"`{key}` is not a list of names", f"write {key}: [one, another]")
            return None
        return frozenset(names)

    def _check_keys(self, owner: tree.Mapping, known: tuple[str, ...]) -> None:
        for key, (place, _) in owner.items.items():
            if key not in known:
                near = nearest(str(key), known)
                fix = f"did you mean {shown(near)}?" if near else f"use {one_of(known)}"
                self._wrong(place, "unknown-key", f"unknown key {shown(key)}", fix)

    def _wrong(self, node: tree.Node | None, code: str, message: str, fix: str) -> None:
        line, column = (1, 1) if node is None else (node.line, node.column)
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(ERROR, code, message, fix, self.name, line, column))

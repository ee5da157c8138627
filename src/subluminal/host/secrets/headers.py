"""Headers for a server that is reached over HTTP: from variables of its entry, and from secret bindings.

Values come from variables that are named on the command line (`--header-env`, `--bearer-env`), and from bindings with
`inject_as = "header:NAME"`, which win. A variable that steers Subluminal, or that holds another server's secret, is not
to be had. Imported for such servers only.
"""

from __future__ import annotations

import re

from subluminal.contracts.errors import SecretError
from subluminal.host.secrets.bindings import PLACEHOLDER, Resolved, resolve, visible_environ
from subluminal.host.secrets.credential_names import is_credential_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from subluminal.host.config import ServerConfig
    from subluminal.host.secrets.bindings import Binding

# Servers of the common frameworks take about a hundred, of 8 to 16 KiB.
MAX_HEADERS = 100
MAX_VALUE_BYTES = 16_384
# Frames and routes the message: whoever chooses these chooses what is read as the next message.
_CONNECTION = frozenset((
    "connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
))  # fmt: skip
# People copy these into their files; the transport writes its own.
TRANSPORT_HEADERS = frozenset((
    "accept", "accept-encoding", "content-type", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version",
    "mcp-session-id",
))  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|apikey|digest) +(\S.*)")
# Shorter ones are words such as `true` and `prod`, unless their header's name says otherwise.
_SURELY_A_SECRET = 8


class RemoteHeaders:
    """What is sent with every request, what is masked, and why something is missing. `repr` shows names only."""

    __slots__ = ("errors", "headers", "injections", "left_out", "secrets")

    def __init__(self, resolved: Resolved) -> None:
        self.headers: dict[str, str] = {}
        self.secrets = resolved.secrets
        self.injections = resolved.injections
        self.errors = resolved.errors
        self.left_out: list[str] = []  # sentences about headers that are not sent

    def __repr__(self) -> str:
        return f"RemoteHeaders({list(self.headers)!r})"

    def put(self, name: str, value: str) -> None:
        """The later one counts, however its name is spelled."""
        for known in [known for known in self.headers if known.lower() == name.lower()]:
            del self.headers[known]
        self.headers[name] = value


def resolve_headers(
    environ: Mapping[str, str],
    server: ServerConfig,
    header_envs: Iterable[tuple[str, str]] = (),
    bearer_env: str | None = None,
    other_bindings: Iterable[Binding] = (),
    withheld: Collection[Binding] = (),
) -> RemoteHeaders:
    """`errors` stand for what the server cannot be reached without, as with `spawn_environ`."""
    seen = visible_environ(environ, [*other_bindings, *withheld])
    resolved = resolve(server.secret_bindings, environ, seen, withheld)
    found = RemoteHeaders(resolved)
    for name, variable in header_envs:
        value = _value(found, name, variable, resolved.child_environ)
        if value:
            _take(found, name, value, variable)
    bound = {name.lower() for name in resolved.headers}
    if bearer_env is not None and "authorization" not in bound:
        token = _value(found, "Authorization", bearer_env, resolved.child_environ)
        if token:
            _take(found, "Authorization", f"Bearer {token}", bearer_env)
        else:
            hint = "Set it in the client's environment, or bind a secret: docs/secrets.md."
            found.errors.append(SecretError(f"{bearer_env} is not set, and it should hold a token", hint=hint))
    for name, value in resolved.headers.items():
        _take(found, name, value, None, masked=True)
    return found


def header_fault(name: str) -> str | None:
    """Why a header of this name cannot be sent, as the end of a sentence; None if it can."""
    if _NAME.fullmatch(name) is None:
        return "has a header whose name is no name of a header"
    if name.lower() in _CONNECTION:
        return f"sets the header {name}, which belongs to the connection"
    return None


def is_header_value(value: str) -> bool:
    return len(value) <= MAX_VALUE_BYTES and _VALUE.fullmatch(value) is not None


def _value(found: RemoteHeaders, name: str, variable: str, seen: Mapping[str, str]) -> str | None:
    value = seen.get(variable)
    if value and value.startswith(PLACEHOLDER):
        found.left_out.append(f"header {name}: {variable} stands for a secret that this server does not get")
        return None
    if not value:
        found.left_out.append(f"header {name}: {variable} is not set")
        return None
    return value


def _take(found: RemoteHeaders, name: str, value: str, variable: str | None, masked: bool = False) -> None:
    fault = header_fault(name)
    value = value.strip(" \t")
    if fault is None and not is_header_value(value):
        fault = f"has a value for the header {name} that no header can have"
    if fault is not None:
        where = "" if variable is None else f" ({variable})"
        found.errors.append(SecretError(f"its configuration {fault}{where}", hint="Mend it in the client's file."))
    elif name.lower() not in TRANSPORT_HEADERS:
        found.put(name, value)
        if not masked:
            found.secrets += secret_values(name, value)


def secret_values(name: str, value: str) -> list[str]:
    """What of a header is masked: the whole, and a credential without the word before it."""
    from subluminal.core.redact.spellings import MIN_SECRET_BYTES

    least = MIN_SECRET_BYTES if is_credential_name(name) else _SURELY_A_SECRET
    bare = _SCHEME.fullmatch(value)
    return [text for text in (value, bare[1] if bare else "") if len(text) >= least]

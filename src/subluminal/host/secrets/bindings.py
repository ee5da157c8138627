"""Secret bindings (§4): which secret a server gets, under which name, and what else of the environment it sees.

The agent never holds the value: the shim reads it and places it into the environment of the upstream server only.
Bindings come from `config.toml` and from `SUB_SECRET_BINDINGS`. A server without bindings costs a copy of the
environment and no import.

A binding of source `env` is looked up as `SUB_SECRET_<REF>` (upper case, other characters as `_`), then as the
reference itself, then as the reference in upper case. The variable it was found in is not passed on under its own name.

A binding with `inject_as = "header:NAME"` is for a server that is reached over HTTP (`headers`); a process gets none.
"""

from __future__ import annotations

from subluminal.contracts.errors import ConfigError, SecretError
from subluminal.contracts.vocabulary import IDENTITY_VARIABLES, SECRET_SOURCES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from subluminal.host.config import ServerConfig

SECRET_PREFIX = "SUB_SECRET_"
PLACEHOLDER = "sub://"
BINDINGS_VARIABLE = "SUB_SECRET_BINDINGS"
# Everything that steers or identifies a shim. An agent that a tool server starts still belongs to the run: its shims
# find it through their ancestors. Other names that happen to begin with SUB_ are not ours to take.
CONTROL_VARIABLES = frozenset((
    *IDENTITY_VARIABLES, "SUB_AUDIT", "SUB_CORE", "SUB_EVENTS", "SUB_HOME", "SUB_LEDGER_IDLE_S",
    "SUB_MAX_INSPECT_BYTES", "SUB_MAX_MESSAGE_BYTES", "SUB_MAX_PREVIEW_BYTES", "SUB_POLICY", "SUB_POLICY_JSON",
    "SUB_REFUSAL_STYLE", "SUB_TIMEOUT_MS", "SUB_WORKLOAD",
))  # fmt: skip
# What any program may rely on; an env_allowlist adds to these.
ALWAYS_PASSED = frozenset((
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "SYSTEMROOT", "TEMP", "TMP",
))  # fmt: skip
HEADER_PREFIX = "header:"
_KEYS = ("inject_as", "secret_ref", "source", "redact", "required", "prefix")


class Binding:
    """One secret for one server, by reference."""

    __slots__ = ("inject_as", "prefix", "redact", "required", "secret_ref", "source")

    def __init__(
        self,
        inject_as: str,
        secret_ref: str,
        source: str = "env",
        *,
        redact: bool = True,
        required: bool = True,
        prefix: str = "",
    ) -> None:
        self.inject_as = inject_as
        self.secret_ref = secret_ref
        self.source = source
        self.redact = redact
        self.required = required
        self.prefix = prefix  # what stands before the secret in a header

    @property
    def header(self) -> str | None:
        """The header it is for; None: it is for a variable."""
        return self.inject_as[len(HEADER_PREFIX) :] if self.inject_as.startswith(HEADER_PREFIX) else None

    def __repr__(self) -> str:
        return f"Binding({self.inject_as!r}, {self.secret_ref!r}, {self.source!r})"


class Resolved:
    """What came of a server's bindings. `repr` shows names only."""

    __slots__ = ("child_environ", "errors", "headers", "injections", "secrets")

    def __init__(self, child_environ: dict[str, str]) -> None:
        self.child_environ = child_environ
        self.headers: dict[str, str] = {}
        self.secrets: list[str] = []  # to redact
        self.injections: list[dict[str, object]] = []  # secret_injection events: metadata only
        self.errors: list[SecretError] = []  # each stands for a required secret that is not there

    def __repr__(self) -> str:
        return f"Resolved({self.injections!r})"


def spawn_environ(
    environ: Mapping[str, str],
    server: ServerConfig,
    other_bindings: Iterable[Binding] = (),
    withheld: Collection[Binding] = (),
) -> Resolved:
    """Everything the shim needs to start an upstream server: its environment with the secrets of this server in it.

    `withheld` are bindings of this server that it does not get: it is not the one they were made for.
    """
    if not server.secret_bindings:
        return Resolved(upstream_environ(environ, server, other_bindings))
    of_headers = [binding for binding in server.secret_bindings if binding.header is not None]
    base = upstream_environ(environ, server, [*other_bindings, *withheld, *of_headers])
    return resolve([b for b in server.secret_bindings if b.header is None], environ, base, withheld)


def resolve(
    bindings: Iterable[Binding],
    environ: Mapping[str, str],
    base: dict[str, str] | None = None,
    withheld: Collection[Binding] = (),
) -> Resolved:
    """Read each secret and place it into `base` (a copy of `environ` by default), or among the headers."""
    bindings = list(bindings)
    resolved = Resolved(dict(environ) if base is None else base)
    values = [None if binding in withheld else _value(binding, environ, resolved.errors) for binding in bindings]
    for binding in bindings:
        if binding.source == "env":
            for name in env_names(binding.secret_ref):
                resolved.child_environ.pop(name, None)
    for binding, value in zip(bindings, values, strict=True):
        if value is None:
            _drop_placeholder(resolved.child_environ, binding.inject_as)
        else:
            if binding.header is None:
                resolved.child_environ[binding.inject_as] = value
            else:
                resolved.headers[binding.header] = binding.prefix + value
            if binding.redact:
                resolved.secrets.append(value)
        names = {name: getattr(binding, name) for name in ("inject_as", "secret_ref", "source")}
        resolved.injections.append({**names, "success": value is not None})
    return resolved


def placeholder(secret_ref: str) -> str:
    """What stands in a client's file in place of an adopted secret."""
    return PLACEHOLDER + secret_ref


def _drop_placeholder(environ: dict[str, str], name: str) -> None:
    """A server that can do without its secret must not take the placeholder for one."""
    if environ.get(name, "").startswith(PLACEHOLDER):
        del environ[name]


def upstream_environ(
    environ: Mapping[str, str], server: ServerConfig, other_bindings: Iterable[Binding] = ()
) -> dict[str, str]:
    """The client's environment without our controls and without the secrets of other servers.

    With an `env_allowlist` only the listed names (a trailing `*` is a wildcard) and `ALWAYS_PASSED` go through. A name
    on that list goes through even if another server's binding uses it: the user has said so.
    """
    return visible_environ(environ, other_bindings, server.env_allowlist)


def visible_environ(
    environ: Mapping[str, str], other_bindings: Iterable[Binding] = (), allowed: tuple[str, ...] | None = None
) -> dict[str, str]:
    foreign = _foreign(environ, other_bindings)
    child = {}
    for name, value in environ.items():
        if name.startswith(SECRET_PREFIX) or name in CONTROL_VARIABLES:
            continue
        listed = allowed is not None and _listed(name, allowed)
        if allowed is not None and not listed and name not in ALWAYS_PASSED and not name.startswith("LC_"):
            continue
        if foreign and not listed and (name in foreign[0] or value in foreign[1]):
            continue
        child[name] = value
    return child


def env_names(secret_ref: str) -> tuple[str, ...]:
    """The variables that may hold a secret of source `env`, in the order they are tried."""
    upper = "".join(c if c.isascii() and c.isalnum() else "_" for c in secret_ref).upper()
    return (SECRET_PREFIX + upper, secret_ref, upper)


def parse_bindings(items: Any, where: str) -> list[Binding]:
    """Bindings as a user wrote them; `where` begins each complaint."""
    if not isinstance(items, list):
        raise ConfigError(f"{where}: secret_bindings must be a list", hint=_EXAMPLE)
    bindings = [_parse(item, f"{where}: secret binding {number}") for number, item in enumerate(items, 1)]
    names = [b.inject_as if b.header is None else b.inject_as.lower() for b in bindings]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two secret bindings inject {name}", hint="Keep one of them.")
    return bindings


def bindings_from_environ(environ: Mapping[str, str], server_name: str) -> list[Binding] | None:
    """`SUB_SECRET_BINDINGS`: a JSON list for the server at hand, the contract's object `{server_name, secret_bindings}`
    (or a list of such objects), or an object of lists by server name. What is none of these is an error."""
    text = environ.get(BINDINGS_VARIABLE)
    if not text:
        return None
    import json

    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{BINDINGS_VARIABLE} is not JSON: {error}", hint=_EXAMPLE_JSON) from None
    return parse_bindings(_of_server(value, server_name), BINDINGS_VARIABLE)


def _of_server(value: Any, server_name: str) -> Any:
    """The part of `SUB_SECRET_BINDINGS` that is for this server; all of it has to make sense."""
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in objects):
        raise ConfigError(f"{BINDINGS_VARIABLE} holds neither bindings nor an object of them", hint=_EXAMPLE_JSON)
    if any("secret_bindings" in item or "server_name" in item for item in objects):
        by_name = dict(_contract_object(item) for item in objects)
        if len(by_name) < len(objects):
            raise ConfigError(f"{BINDINGS_VARIABLE} names a server twice", hint="Keep one object for each server.")
    elif isinstance(value, dict):
        by_name = value
    else:
        return value
    for name, bindings in by_name.items():
        if name != server_name:
            parse_bindings(bindings, f"{BINDINGS_VARIABLE}: {name!r}")
    return by_name.get(server_name, [])


def _contract_object(item: dict[str, Any]) -> tuple[str, Any]:
    name = item.get("server_name")
    if set(item) != {"server_name", "secret_bindings"} or not isinstance(name, str) or not name:
        message = f"{BINDINGS_VARIABLE}: an object needs server_name and secret_bindings, and nothing else"
        raise ConfigError(message, hint=_EXAMPLE_JSON)
    return name, item["secret_bindings"]


_EXAMPLE = (
    'For example: secret_bindings = [{ inject_as = "GITHUB_TOKEN", secret_ref = "github_token", source = "env" }]'
)
_EXAMPLE_JSON = (
    'For example: {"server_name": "github", "secret_bindings": '
    '[{"inject_as": "GITHUB_TOKEN", "secret_ref": "github_token", "source": "env"}]}'
)


def _parse(item: Any, where: str) -> Binding:
    if not isinstance(item, dict):
        raise ConfigError(f"{where} is not a table", hint=_EXAMPLE)
    for key in item:
        if key not in _KEYS:
            raise ConfigError(f"{where} has an unknown key {key!r}", hint=f"Known keys: {', '.join(_KEYS)}.")
    for key in ("inject_as", "secret_ref"):
        if not isinstance(item.get(key), str) or not item[key]:
            raise ConfigError(f"{where} needs {key}", hint=_EXAMPLE)
    for key in ("redact", "required"):
        if not isinstance(item.get(key, True), bool):
            raise ConfigError(f"{where}: {key} must be true or false")
    source = item.get("source", "env")
    if source not in SECRET_SOURCES:
        raise ConfigError(f"{where}: source {source!r} is unknown", hint=f"Use one of {', '.join(SECRET_SOURCES)}.")
    _check_place(item, where)
    check_secret_ref(item["secret_ref"])
    flags = {key: item.get(key, True) for key in ("redact", "required")}
    return Binding(item["inject_as"], item["secret_ref"], source, prefix=item.get("prefix", ""), **flags)


def _check_place(item: dict[str, Any], where: str) -> None:
    """A variable of a process, or `header:NAME` with an optional `prefix` such as "Bearer "."""
    inject_as, prefix = item["inject_as"], item.get("prefix", "")
    if not inject_as.startswith(HEADER_PREFIX):
        if "prefix" in item:
            raise ConfigError(
                f"{where}: prefix is for a header", hint='For example: inject_as = "header:Authorization"'
            )
        if not is_variable_name(inject_as):
            raise ConfigError(f"{where}: inject_as {inject_as!r} is not a name of an environment variable")
        return
    from subluminal.host.secrets.headers import TRANSPORT_HEADERS, header_fault, is_header_value

    name = inject_as[len(HEADER_PREFIX) :]
    if header_fault(name) is not None or name.lower() in TRANSPORT_HEADERS:
        raise ConfigError(f"{where}: inject_as {inject_as!r} names no header that can carry a secret")
    if not isinstance(prefix, str) or not is_header_value(prefix):
        raise ConfigError(f"{where}: prefix must be plain text", hint='For example: prefix = "Bearer "')


def is_variable_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def check_secret_ref(ref: str) -> str:
    """References become file names and variable names, so they are plain words."""
    plain = ref.isascii() and all(c.isalnum() or c in "_-." for c in ref)
    if not plain or not ref[:1].isalnum() or len(ref) > 128:
        hint = "Use letters, digits, `_`, `-` and `.`, beginning with a letter or digit; at most 128."
        raise ConfigError(f"secret_ref {ref!r} is not usable", hint=hint)
    return ref


def _value(binding: Binding, environ: Mapping[str, str], errors: list[SecretError]) -> str | None:
    try:
        value = _lookup(binding, environ)
        if value is not None:
            _check(binding, value)
            return value
        if binding.required:
            errors.append(_missing(binding))
    except SecretError as error:
        if binding.required:
            errors.append(error)
    return None


def _lookup(binding: Binding, environ: Mapping[str, str]) -> str | None:
    if binding.source == "env":
        for name in env_names(binding.secret_ref):
            if environ.get(name):
                return environ[name]
        return None
    from subluminal.host.secrets.keystore import open_store

    return open_store(binding.source, environ).get(binding.secret_ref)


def _check(binding: Binding, value: str) -> None:
    # Here, because a server without bindings need not wait for it.
    from subluminal.core.redact.spellings import MIN_SECRET_BYTES

    if "\0" in value and binding.header is None:
        message = f"secret {binding.secret_ref!r} contains a NUL byte and cannot be an environment variable"
        raise SecretError(message, hint=f"Store it again: sub secrets add {binding.secret_ref}")
    if binding.redact and len(value.encode("utf-8", "surrogateescape")) < MIN_SECRET_BYTES:
        raise SecretError(
            f"secret {binding.secret_ref!r} is shorter than {MIN_SECRET_BYTES} bytes: too short to be masked safely",
            hint="Use a longer secret, or set redact = false in its binding if it may be shown.",
        )


def _missing(binding: Binding) -> SecretError:
    if binding.source == "env":
        names = " or ".join(dict.fromkeys(env_names(binding.secret_ref)))
        hint = f"Set {names} in the client's environment, or set required = false in its binding."
    else:
        hint = f"Store it: sub secrets add {binding.secret_ref} --source {binding.source}"
    message = f"secret {binding.secret_ref!r} (for {binding.inject_as}) was not found in source {binding.source}"
    return SecretError(message, hint=hint)


def _foreign(environ: Mapping[str, str], others: Iterable[Binding]) -> tuple[set[str], set[str]] | None:
    """Names and values of the environment that other servers' bindings use."""
    names: set[str] = set()
    for binding in others:
        if binding.source == "env":
            names.update(env_names(binding.secret_ref))
    if not names:
        return None
    values = {environ[name] for name in names if environ.get(name)}
    return names, values


def _listed(name: str, allowed: Iterable[str]) -> bool:
    return any(name == entry or (entry.endswith("*") and name.startswith(entry[:-1])) for entry in allowed)

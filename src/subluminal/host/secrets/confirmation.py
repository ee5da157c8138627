"""Which server a secret is meant for: a name together with the command line that the user has confirmed for it.

A name alone proves nothing: whoever writes a repository's configuration can call a server as the user calls his own.
So `[servers.NAME]` holds, beside the bindings, what was confirmed, and the shim compares it with what it shall start:

    confirmed = [{ command = ["npx", "-y", "gh"], directory = "...", env = { NAME = "<sha256>" } }]

`command` is what stands after `--`. A program that is given by a relative path, or that PATH finds inside of the
project, is written out. `directory` is there when an argument names a file by a relative path, which is another file
elsewhere. `env` are variables that decide what runs and where it connects, by their digests (an address may hold a
password). The client's own environment is the user's; what only the server's entry sets must have been confirmed.

A server that is reached over HTTP is confirmed by its address, without query and password: `{ url = "https://..." }`.

The shim imports this for servers with bindings only.
"""

from __future__ import annotations

import os

from subluminal.contracts.errors import ConfigError
from subluminal.host.identity import client_environment, repository_root
from subluminal.host.secrets.bindings import PLACEHOLDER, Binding, env_names, upstream_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from subluminal.host.config import Config, ServerConfig

_STEERING_NAMES = frozenset((
    "BASH_ENV", "CLASSPATH", "ENV", "GIT_EXEC_PATH", "GIT_SSH", "PYTHONHOME", "PYTHONINSPECT", "PYTHONPATH",
    "PYTHONSTARTUP", "PYTHONUSERBASE",
))  # fmt: skip
_STEERING_PREFIXES = (
    "DOTNET_", "DYLD_", "GIT_CONFIG", "JAVA_", "LD_", "NODE_", "NPM_CONFIG_", "PERL5", "PIP_", "RUBY", "UV_",
    "npm_config_",
)  # fmt: skip
_STEERING_SUFFIXES = (
    "_BASE", "_COMMAND", "_CONFIG", "_DOMAIN", "_ENDPOINT", "_HOST", "_OPTIONS", "_OPTS", "_PROXY", "_REGISTRY",
    "_SERVER", "_URI", "_URL", "_proxy",
)  # fmt: skip
# Whom we take for the server behind a URL, and who may listen.
_TLS_PREFIXES = ("SSL_CERT_", "SSLKEYLOGFILE", "OPENSSL_")
_KEYS = ("command", "directory", "env", "url")
_EXAMPLE = 'For example: confirmed = [{ command = ["npx", "-y", "gh"] }]; `sub secrets confirm NAME` writes it.'


class Started:
    """A server as it is started, comparable with what was confirmed. `entry` are variables that its entry sets."""

    __slots__ = ("command", "directory", "entry", "env")
    word = "command line"

    def __init__(self, command: list[str], environ: Mapping[str, str], cwd: str, entry: Collection[str] = ()) -> None:
        self.command = [_program(command[0], environ.get("PATH") or os.defpath, cwd), *command[1:]]
        self.directory = cwd if any(_is_relative_file(word, cwd) for word in command[1:]) else None
        steering = ((name, value) for name, value in environ.items() if _steers(name))
        self.env = {name: value for name, value in steering if not value.startswith(PLACEHOLDER)}
        self.entry = entry

    @property
    def place(self) -> dict[str, Any]:
        return {"command": self.command}

    def record(self) -> dict[str, Any]:
        """What to keep in `config.toml`."""
        found = self.place
        if self.directory is not None:
            found["directory"] = self.directory
        env = {name: _digest(self.env[name]) for name in self.own_variables({})}
        return {**found, "env": env} if env else found

    def fault(self, confirmed: list[dict[str, Any]]) -> str | None:
        """Why this is not one of the confirmed servers; None if it is."""
        if not confirmed:
            return f"no {self.word} was confirmed for it"
        own: list[str] = []
        for record in confirmed:
            if self.place.items() <= record.items() and record.get("directory") == self.directory:
                own = self.own_variables(record.get("env", {}))
                if not own:
                    return None
        if own:
            return f"its entry sets {', '.join(own)}, which you have not confirmed"
        return f"this is not the {self.word} that you have confirmed"

    def own_variables(self, known: dict[str, str]) -> list[str]:
        """Its steering variables beyond those known: what its entry sets, and what nobody above us has."""
        unknown = [name for name, value in sorted(self.env.items()) if known.get(name) != _digest(value)]
        inherited = client_environment() if unknown else {}
        return [name for name in unknown if name in self.entry or inherited.get(name) != self.env[name]]


class Reached(Started):
    """A server behind a URL. What decides where that leads is compared as the variables of a command are."""

    __slots__ = ("url",)
    word = "address"

    def __init__(self, url: str, environ: Mapping[str, str], entry: Collection[str] = ()) -> None:
        from subluminal.host.secrets.addresses import confirmed_form

        self.url = confirmed_form(url)
        self.command = [self.url]
        self.directory = None
        steering = ((name, value) for name, value in environ.items() if _steers_a_connection(name))
        self.env = {name: value for name, value in steering if not value.startswith(PLACEHOLDER)}
        self.entry = entry

    @property
    def place(self) -> dict[str, Any]:
        return {"url": self.url}


def withheld(server: ServerConfig, config: Config, command: list[str], environ: Mapping[str, str]) -> Withheld | None:
    """The bindings of a server that is not as it was confirmed; None if it gets all of them."""
    return _withheld(server, config, lambda: Started(command, reaching(environ, server, config), os.getcwd()))


def withheld_at(server: ServerConfig, config: Config, url: str, environ: Mapping[str, str]) -> Withheld | None:
    """The same for a server behind a URL."""
    return _withheld(server, config, lambda: Reached(url, reaching(environ, server, config)))


def _withheld(server: ServerConfig, config: Config, started: Callable[[], Started]) -> Withheld | None:
    held = [binding for binding in server.secret_bindings if not _handed_over(binding, server, config)]
    if not held:
        return None
    why = started().fault(server.confirmed)
    return None if why is None else Withheld(server.name, held, why)


def reaching(environ: Mapping[str, str], server: ServerConfig, config: Config) -> dict[str, str]:
    """What a server sees of an environment, but for the variables that its secrets are placed into."""
    injected = {binding.inject_as for binding in server.secret_bindings}
    seen = upstream_environ(environ, server, config.other_bindings(server.name))
    return {name: value for name, value in seen.items() if name not in injected}


class Withheld:
    __slots__ = ("bindings", "name", "why")

    def __init__(self, name: str, bindings: list[Binding], why: str) -> None:
        self.name = name
        self.bindings = bindings
        self.why = why

    def __str__(self) -> str:
        variables = ", ".join(binding.inject_as for binding in self.bindings)
        return f"{self.name}: its secrets were withheld ({variables}): {self.why}"

    @property
    def hint(self) -> str:
        return f"If you trust it: {confirm_words(self.name)}"


def confirm_words(name: str, *more: str) -> str:
    from shlex import quote

    return " ".join(quote(word) for word in ("sub", "secrets", "confirm", name, *more))


def _handed_over(binding: Binding, server: ServerConfig, config: Config) -> bool:
    """Whoever starts us with a value and the word where it goes takes it from no store and from no other server."""
    if not server.bindings_from_environ or binding.source != "env":
        return False
    bound = {name for other in config.bindings() if other.source == "env" for name in env_names(other.secret_ref)}
    return not bound.intersection(env_names(binding.secret_ref))


def parse_confirmed(items: Any, where: str) -> list[dict[str, Any]]:
    """What `[servers.NAME]` says was confirmed; `where` begins each complaint."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ConfigError(f"{where}: confirmed must be a list of tables", hint=_EXAMPLE)
    for item in items:
        unknown = [key for key in item if key not in _KEYS]
        if unknown:
            raise ConfigError(f"{where}: confirmed has an unknown key {unknown[0]!r}", hint=_EXAMPLE)
        command, env = item.get("command"), item.get("env", {})
        if "url" in item:
            if not isinstance(item["url"], str) or command is not None:
                raise ConfigError(f"{where}: what was confirmed is a url or a command", hint=_EXAMPLE)
        elif not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise ConfigError(f"{where}: what was confirmed needs a command, a list of words", hint=_EXAMPLE)
        if not isinstance(env, dict) or not isinstance(item.get("directory", ""), str):
            raise ConfigError(f"{where}: confirmed has a directory or env that cannot be understood", hint=_EXAMPLE)
    return items


def _program(word: str, path: str, cwd: str) -> str:
    if os.sep in word:
        return os.path.normpath(os.path.join(cwd, word))
    for directory in path.split(os.pathsep):
        found = os.path.join(cwd, directory, word)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return os.path.normpath(found) if _in_project(found, cwd) else word
    return word


def _in_project(path: str, cwd: str) -> bool:
    """A repository can name a program of its own only inside of itself. Home directories are no repositories."""
    root = os.path.realpath(repository_root(cwd) or cwd)
    home = os.path.realpath(os.path.expanduser("~"))
    if home == root or home.startswith(root.rstrip(os.sep) + os.sep):
        return False
    return os.path.realpath(path).startswith(root + os.sep) or os.path.normpath(path).startswith(root + os.sep)


def _is_relative_file(word: str, cwd: str) -> bool:
    looks_like_one = word[:1] not in ("-", os.sep) and (os.sep in word or "." in word)
    return looks_like_one and os.path.isfile(os.path.join(cwd, word))


def _steers(name: str) -> bool:
    return name in _STEERING_NAMES or name.startswith(_STEERING_PREFIXES) or name.endswith(_STEERING_SUFFIXES)


def _steers_a_connection(name: str) -> bool:
    return name.upper().endswith("_PROXY") or name.startswith(_TLS_PREFIXES)


def _digest(value: str) -> str:
    from subluminal.contracts.digest import sha256_hex

    return sha256_hex(value.encode("utf-8", "surrogateescape"))

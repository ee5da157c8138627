"""The servers that `sub proxy mcp` serves: `[proxy.servers.NAME]` of the user's `config.toml`.

[proxy.servers.docs]
url = "https://docs.example/mcp"
bearer_env = "DOCS_TOKEN"

[proxy.servers.files]
command = ["npx", "server-filesystem", "/srv"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.contracts.errors import ConfigError

if TYPE_CHECKING:
    from subluminal.host.config import Config

_KEYS = ("url", "url_env", "header_env", "bearer_env", "command")
HINT = 'For example: [proxy.servers.docs] url = "https://docs.example/mcp"'


class Proxied:
    """One server: behind a URL, or a command."""

    __slots__ = ("bearer_env", "command", "header_env", "name", "url", "url_env")

    def __init__(self, name: str, own: dict[str, Any]) -> None:
        self.name = name
        self.url: str | None = own.get("url")
        self.url_env: str | None = own.get("url_env")
        self.header_env: dict[str, str] = own.get("header_env", {})
        self.bearer_env: str | None = own.get("bearer_env")
        self.command: list[str] = own.get("command", [])


def proxied_servers(config: Config) -> list[Proxied]:
    table, path = config.proxy
    for key in table:
        if key != "servers":
            raise ConfigError(f"{path}: [proxy] has no setting {key!r}", hint=HINT)
    servers = table.get("servers", {})
    if not isinstance(servers, dict):
        raise ConfigError(f"{path}: [proxy.servers] must be a table", hint=HINT)
    for name in servers:
        check_name(name, path)
    return [_proxied(name, own, f"{path}: [proxy.servers.{name}]") for name, own in servers.items()]


def check_name(name: str, where: str) -> None:
    """A name is part of an address, where whoever passes a request on takes dots for steps; and it is shown."""
    if not name.isprintable() or not name.strip() or name in (".", ".."):
        raise ConfigError(f"{where}: {name!r} cannot be the name of a server", hint="Use letters, digits and dashes.")


def _proxied(name: str, own: Any, where: str) -> Proxied:
    if not isinstance(own, dict):
        raise ConfigError(f"{where} must be a table", hint=HINT)
    for key, value in own.items():
        if key not in _KEYS:
            raise ConfigError(f"{where} has no setting {key!r}; there are {', '.join(_KEYS)}")
        if key == "command":
            if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
                raise ConfigError(f"{where}: command must be a list of words")
            if any("\0" in word for word in value):
                raise ConfigError(f"{where}: a word of command has a NUL, which no command can be given")
        elif key == "header_env":
            if not isinstance(value, dict) or not all(isinstance(word, str) for word in value.values()):
                raise ConfigError(f"{where}: header_env must be a table of headers and variables")
        elif not isinstance(value, str):
            raise ConfigError(f"{where}: {key} must be text")
    if sum(key in own for key in ("url", "url_env", "command")) != 1:
        raise ConfigError(f"{where} needs one of url, url_env and command", hint=HINT)
    return Proxied(name, own)

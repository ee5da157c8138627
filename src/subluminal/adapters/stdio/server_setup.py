"""What the shim must know before it starts the server: settings, the server's environment, and its secrets."""

from __future__ import annotations

import os

from subluminal.host.config import Config, ServerConfig, load_config
from subluminal.host.secrets.bindings import spawn_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.contracts.errors import SecretError


class ServerSetup:
    __slots__ = ("child_environ", "config", "errors", "injections", "secrets", "server")

    def __init__(self, server_name: str) -> None:
        self.config: Config = load_config(os.environ)
        self.server: ServerConfig = self.config.server(server_name)
        resolved = spawn_environ(os.environ, self.server, self.config.other_bindings(server_name))
        self.child_environ = resolved.child_environ
        self.secrets = resolved.secrets
        self.injections = resolved.injections
        self.errors: list[SecretError] = resolved.errors

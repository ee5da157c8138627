"""What is behind a listening door: its address or command, and what of it is masked and recorded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from subluminal.adapters.upstream.reach import Reach
    from subluminal.host.config import Config
    from subluminal.host.secrets.bindings import Resolved
    from subluminal.host.secrets.confirmation import Withheld
    from subluminal.host.secrets.headers import RemoteHeaders


class ServerSpec:
    """One server to serve: behind a URL, or a command; and what is masked and recorded of what it is given."""

    __slots__ = ("command", "environ", "injections", "name", "reach", "secrets")

    def __init__(self, name: str) -> None:
        self.name = name
        self.reach: Reach | None = None
        self.command: list[str] = []
        self.environ: Mapping[str, str] = {}
        self.secrets: list[str] = []
        self.injections: list[dict[str, Any]] = []


def spec_of_url(
    config: Config,
    name: str,
    url: str | None,
    url_env: str | None,
    header_envs: list[tuple[str, str]],
    bearer_env: str | None,
) -> ServerSpec:
    """Raises SubluminalError where something that it cannot be reached without is not to be had."""
    from subluminal.adapters.upstream.reach import Reach

    spec = ServerSpec(name)
    reach = spec.reach = Reach(config, config.server(name), url, url_env, header_envs, bearer_env)
    read_url(reach.url)
    for sentence in reach.resolved.left_out:
        _say(f"{name}: {sentence}")
    _take(spec, reach.withheld, reach.resolved)
    return spec


def spec_of_command(config: Config, name: str, command: list[str]) -> ServerSpec:
    from subluminal.host.secrets.bindings import spawn_environ
    from subluminal.host.secrets.confirmation import withheld

    spec, server = ServerSpec(name), config.server(name)
    kept_back = withheld(server, config, command, os.environ) if server.secret_bindings else None
    bindings = () if kept_back is None else kept_back.bindings
    resolved = spawn_environ(os.environ, server, config.other_bindings(name), bindings)
    spec.command, spec.environ = command, resolved.child_environ
    _take(spec, kept_back, resolved)
    return spec


def _take(spec: ServerSpec, kept_back: Withheld | None, resolved: Resolved | RemoteHeaders) -> None:
    if kept_back is not None:
        _say(str(kept_back))
        _say(f"  {kept_back.hint}")
    if resolved.errors:
        raise resolved.errors[0]
    spec.secrets, spec.injections = list(resolved.secrets), list(resolved.injections)


def _say(message: str) -> None:
    print(f"sub: {message}", file=sys.stderr)

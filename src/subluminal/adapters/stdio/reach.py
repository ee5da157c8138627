"""The server of a shim that is behind a URL. Imported with `--url` only."""

from __future__ import annotations

from subluminal.adapters.upstream.reach import Reach
from subluminal.host.msgspec_import import import_msgspec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.adapters.stdio.options import Options
    from subluminal.adapters.upstream.url import RemoteServer
    from subluminal.host.config import Config, ServerConfig


def reach_of(options: Options, server: ServerConfig, config: Config) -> Reach:
    return Reach(config, server, options.url, options.url_env, options.header_envs, options.bearer_env)


def connect_to(reach: Reach, options: Options, config: Config) -> RemoteServer:
    """Raises SubluminalError for a URL that cannot be used. Nobody is dialled before the client says something."""
    # In this thread, and before there is another: for a moment it hides modules that others may want.
    import_msgspec()
    from subluminal.adapters.upstream.url import connect
    from subluminal.http.urls import read_url

    return connect(
        options.server_name,
        read_url(reach.url),
        reach.resolved.headers,
        reach.login,
        transport=options.transport,
        max_inspect=config.max_inspect_bytes,
        max_message=config.max_message_bytes,
        heard=reach.heard,
    )

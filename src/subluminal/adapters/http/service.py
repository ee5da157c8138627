"""`sub proxy mcp` as a process: a door with the servers that are behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from subluminal.adapters.http.door import Door, Served
from subluminal.adapters.http.paths import OF_MESSAGE, PARAMETERS
from subluminal.adapters.listening.service import serve as listen
from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from subluminal.adapters.listening.service import Listening, Place
    from subluminal.adapters.listening.specs import ServerSpec
    from subluminal.producer.visitors import Visitors


async def serve(listening: Listening, specs: list[ServerSpec]) -> int:
    def make_door(place: Place, visitors: Visitors) -> Door:
        front = place.front(OF_MESSAGE, PARAMETERS)
        urls = {spec.name: f"{place.base}/mcp/{quote(spec.name, safe='')}" for spec in specs}
        servers = [_served(spec, urls[spec.name]) for spec in specs]
        door = Door(servers, front, visitors, listening.config, urls)
        for server in servers:
            server.door = door
        return door

    return await listen(listening, specs, make_door)


def _served(spec: ServerSpec, public_url: str) -> Served:
    if spec.reach is None:
        from subluminal.adapters.http.command_server import CommandServer

        return CommandServer(spec.name, spec.command, spec.environ, public_url)
    from subluminal.adapters.http.url_server import UrlServer
    from subluminal.adapters.upstream.shown import Shown

    return UrlServer(spec.name, read_url(spec.reach.url), Shown(spec.reach), public_url)

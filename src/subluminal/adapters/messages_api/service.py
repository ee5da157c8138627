"""`sub proxy messages` as a process: the door with the provider behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.adapters.listening.service import serve as listen
from subluminal.adapters.messages_api.door import OF_MESSAGE, Door
from subluminal.adapters.messages_api.provider import Provider
from subluminal.adapters.upstream.shown import Shown
from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from subluminal.adapters.listening.service import Listening, Place
    from subluminal.adapters.listening.specs import ServerSpec
    from subluminal.producer.visitors import Visitors


async def serve(listening: Listening, spec: ServerSpec) -> int:
    def make_door(place: Place, visitors: Visitors) -> Door:
        assert spec.reach is not None
        provider = Provider(spec.name, read_url(spec.reach.url), Shown(spec.reach))
        return Door(provider, place.front(OF_MESSAGE), visitors, listening.config, {spec.name: place.base})

    return await listen(listening, [spec], make_door)

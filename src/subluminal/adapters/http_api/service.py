"""`sub proxy http` as a process: a door with the API that is behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.adapters.http_api.api import Api
from subluminal.adapters.http_api.door import Door
from subluminal.adapters.http_api.reading import OVERRIDES
from subluminal.adapters.listening.service import serve as listen
from subluminal.adapters.upstream.shown import Shown
from subluminal.http.urls import read_url

if TYPE_CHECKING:
    from subluminal.adapters.http_api.mapping import Mapping
    from subluminal.adapters.listening.service import Listening, Place
    from subluminal.adapters.listening.specs import ServerSpec
    from subluminal.producer.visitors import Visitors


async def serve(listening: Listening, spec: ServerSpec, mapping: Mapping) -> int:
    reach = spec.reach
    assert reach is not None  # an API is behind a URL

    def make_door(place: Place, visitors: Visitors) -> Door:
        api = Api(spec.name, read_url(reach.url), Shown(reach), place.base)
        urls = {spec.name: place.base}
        return Door(mapping, api, place.front(OVERRIDES), visitors, listening.config, urls)

    return await listen(listening, [spec], make_door)

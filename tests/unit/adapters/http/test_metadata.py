"""What a client that logs in by itself is told through the HTTP door of the server behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.http_servers import Heard, Wire, raw_server
from harness.proxy import Answer, Proxy, proxy

PROTECTED = "/.well-known/oauth-protected-resource"
HELLO = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize"}).encode()


def metadata(door: Proxy, path: str = f"{PROTECTED}/mcp/linear") -> Answer:
    return door.raw(door.request(b"", method="GET", path=path, Accept="application/json"))


def documents(found: dict[str, Any]) -> Any:
    def get(heard: Heard, wire: Wire) -> None:
        if heard.target in found:
            wire.json(found[heard.target](wire))
        else:
            wire.body(b"", 404)

    return get


def of(resource: str) -> Any:
    return lambda wire: {
        "resource": resource.format(origin=wire.server.origin),
        "authorization_servers": ["https://login.example"],
    }


@pytest.mark.parametrize("resource", ["{origin}/mcp", "{origin}", "{origin}/"])
def test_the_resource_is_our_address_and_the_rest_is_the_servers(tmp_path: Path, resource: str) -> None:
    get = documents({f"{PROTECTED}/mcp": of(resource)})
    with raw_server({"GET": get}) as server, proxy(tmp_path, url=server.url) as door:
        found = metadata(door).json()
        assert found == {"resource": door.url, "authorization_servers": ["https://login.example"]}


@pytest.mark.parametrize("resource", ["https://bank.example/mcp", "{origin}/other", "{origin}/mc", "", "x"])
def test_a_resource_that_is_another_is_left_for_the_client_to_see(tmp_path: Path, resource: str) -> None:
    get = documents({f"{PROTECTED}/mcp": of(resource)})
    with raw_server({"GET": get}) as server, proxy(tmp_path, url=server.url) as door:
        assert metadata(door).json()["resource"] == resource.format(origin=server.origin)


def test_metadata_is_asked_for_where_the_challenge_says_it_is(tmp_path: Path) -> None:
    def challenged(heard: Heard, wire: Wire) -> None:
        wire.body(b"", 401, WWW_Authenticate=f'Bearer resource_metadata="{wire.server.origin}/custom/place.json"')

    get = documents({"/custom/place.json": of("{origin}/mcp")})
    with raw_server({"GET": get, "initialize": challenged}) as server, proxy(tmp_path, url=server.url) as door:
        assert metadata(door).status == 404
        door.post(HELLO)
        assert metadata(door).json()["resource"] == door.url


def test_metadata_at_another_origin_is_not_asked_for(tmp_path: Path) -> None:
    with raw_server({"GET": documents({"/x": of("{origin}/mcp")})}) as other:

        def challenged(heard: Heard, wire: Wire) -> None:
            wire.body(b"", 401, WWW_Authenticate=f'Bearer resource_metadata="{other.origin}/x"')

        with (
            raw_server({"GET": documents({}), "initialize": challenged}) as server,
            proxy(tmp_path, url=server.url) as door,
        ):
            assert door.post(HELLO).header("www-authenticate").count(str(door.port)) == 1
            assert other.heard == []


def test_a_server_without_metadata_that_wants_a_login_is_its_own_authorization_server(tmp_path: Path) -> None:
    def challenged(heard: Heard, wire: Wire) -> None:
        wire.body(b"", 401)

    with (
        raw_server({"GET": documents({}), "initialize": challenged}) as server,
        proxy(tmp_path, url=server.url) as door,
    ):
        assert metadata(door).status == 404  # nobody has asked for a login yet
        door.post(HELLO)
        assert metadata(door).json() == {"resource": door.url, "authorization_servers": [server.origin]}
        assert metadata(door, "/.well-known/oauth-authorization-server").status == 404

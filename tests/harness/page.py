"""The page of `sub ui` as its own client sees it: requests byte for byte, links, cookies and live streams."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

from harness.ledger import connect_ledgerd
from harness.waiting import GENEROUS_S


class Answer:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        pairs = [line.split(": ", 1) for line in lines]
        self.headers = {name.lower(): value for name, value in pairs}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class PageClient:
    """Asks whoever serves a page on this origin."""

    def __init__(self, address: str) -> None:
        self.origin = "/".join(address.split("/")[:3])
        self.port = int(self.origin.rpartition(":")[2])
        self.host = f"127.0.0.1:{self.port}"

    def send(self, target: str, method: str = "GET", body: bytes = b"", **headers: str | None) -> Answer:
        """Exactly this request; a header of None is not sent. `Sec_Fetch_Site` is `Sec-Fetch-Site`."""
        wanted: dict[str, str | None] = {"Host": self.host, "Connection": "close"}
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body or method == "POST":
            wanted["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in wanted.items() if v is not None)]
        with socket.create_connection(("127.0.0.1", self.port), timeout=GENEROUS_S) as connection:
            connection.sendall("\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body)
            received = b""
            while chunk := connection.recv(1 << 16):
                received += chunk
        return Answer(received)

    def cookie_for(self, link: str) -> str:
        """A session: the cookie as a browser sends it back."""
        return self.send(link.removeprefix(self.origin)).headers["set-cookie"].split(";")[0]

    @asynccontextmanager
    async def live(self, query: str = "", **headers: str) -> AsyncIterator[Live]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with ClientSession() as session:
            address = f"{self.origin}/v1/live/calls{query}"
            async with session.ws_connect(address, headers=sent, max_msg_size=0) as stream:
                yield Live(stream)


class PageServer(PageClient):
    """The HTTP side of a running daemon."""

    def __init__(self, home: Path, **ask: Any) -> None:
        self.home = home
        self.told = self.control(ask)["ui"]
        super().__init__(self.told["address"])

    def control(self, ask: dict[str, Any]) -> Any:
        with connect_ledgerd(self.home) as connection, connection.makefile("rwb") as stream:
            stream.write(json.dumps({"control": "ui", **ask}).encode() + b"\n")
            stream.flush()
            return json.loads(stream.readline())

    def new_link(self, path: str = "/") -> str:
        """Its path, with the code."""
        return str(self.control({"path": path})["ui"]["link"]).removeprefix(self.origin)

    def enter(self) -> str:
        """The cookie of a session."""
        return self.cookie_for(self.new_link())


class Live:
    """What a page knows by its stream: rows by cursor, as the messages have said."""

    def __init__(self, stream: ClientWebSocketResponse) -> None:
        self.stream = stream
        self.rows: dict[str, dict[str, Any]] = {}
        self.told: list[list[str]] = []
        self.after = -1
        self.reset = False

    async def hear(self) -> None:
        message = json.loads((await self.stream.receive(GENEROUS_S)).data)
        assert message["after"] >= self.after
        self.after, self.reset = message["after"], message["reset"]
        self.told.append([row["call_id"] for row in message["rows"]])
        for cursor in message["gone"]:
            self.rows.pop(cursor, None)
        self.rows |= {row["cursor"]: row for row in message["rows"]}

    async def until(self, calls: int) -> None:
        """That many calls are known, and all of them have ended."""
        async with asyncio.timeout(GENEROUS_S):
            while len([row for row in self.rows.values() if row["status"]]) < calls:
                await self.hear()

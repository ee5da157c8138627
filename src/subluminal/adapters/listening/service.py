"""A listening door as a process: it says when it is ready, looks after its runs, and ends in order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from subluminal.adapters.listening.callers import met
from subluminal.adapters.listening.front import Front
from subluminal.contracts.errors import SubluminalError, UsageError
from subluminal.contracts.jsontext import to_json
from subluminal.http.serving import Serving
from subluminal.producer.visitors import Visitors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from subluminal.adapters.listening.specs import ServerSpec
    from subluminal.host.config import Config
    from subluminal.http.inbound import Visit
    from subluminal.producer.producer import Producer

DRAIN_SECONDS = 3.0
TICK_SECONDS = 1.0
KEEP_ALIVE_TICKS = 20  # silent streams are closed after 60 s by some who stand in the way
# Those that a watchdog of a server closes (`upstream.process`).
MAX_DESCRIPTORS = 65_536
COLLECT_AFTER_OBJECTS = 20_000
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Listening:
    """Where it listens, for whom, and where the record goes: what the command line says."""

    def __init__(
        self,
        config: Config,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        public_url: str | None = None,
        token: str | None = None,
        policy: str | None = None,
        events: str | None = None,
        as_json: bool = False,
    ) -> None:
        self.config = config
        self.host = host
        self.port = port
        self.public_url = public_url
        self.token = token
        self.policy = policy
        self.events = events
        self.as_json = as_json

    @property
    def is_loopback(self) -> bool:
        return self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"

    def check(self) -> None:
        """A listener that others can reach must know whom it serves."""
        if self.token is None and (not self.is_loopback or sys.platform != "linux"):
            raise UsageError(
                f"--listen {self.host}: whoever can connect there could use these servers",
                hint="Give a token: --token-env VARIABLE. Clients then send it in the header Subluminal-Token.",
            )


class Place:
    """The address that it has got. `base` is how clients write it."""

    def __init__(self, listening: Listening, host: str, port: int) -> None:
        self._listening = listening
        self._port = port
        shown = f"[{host}]" if ":" in host else host
        self.bound = f"{shown}:{port}"
        self.base = (listening.public_url or f"http://{self.bound}").rstrip("/")

    def front(self, of_message: Iterable[bytes] = (), prefix: bytes = b"\0") -> Front:
        """A public URL has its own name; a loopback listener has several."""
        named = urlsplit(self.base)
        hosts = {named.netloc}
        origins = {f"{named.scheme}://{named.netloc}"}
        if self._listening.is_loopback:
            hosts |= {f"{name}:{self._port}" for name in LOOPBACK_HOSTS}
            origins |= {f"http://{name}:{self._port}" for name in LOOPBACK_HOSTS}
        return Front(hosts, origins, self._listening.token, of_message, prefix)


class Door(Protocol):
    """What is behind the address."""

    urls: dict[str, str]
    """Under which address a client finds each server, by its name."""

    def arrived(self, visit: Visit) -> None: ...
    def calls_open(self, producer: Producer) -> int:
        """Or 1, where none is, but something must still be judged."""

    def ended(self, producer: Producer) -> None: ...
    def tick(self, now_ns: int) -> None:
        """About once a second."""

    def keep_alive(self) -> None: ...
    async def close(self) -> None: ...


async def serve(listening: Listening, servers: list[ServerSpec], make_door: Callable[[Place, Visitors], Door]) -> int:
    """Until a signal ends it."""
    listening.check()
    return await _Service(listening, servers).run(make_door)


class _Service:
    def __init__(self, listening: Listening, servers: list[ServerSpec]) -> None:
        self._listening = listening
        self._servers = servers
        self._stop = asyncio.Event()
        self._door: Door | None = None

    async def run(self, make_door: Callable[[Place, Visitors], Door]) -> int:
        listening, loop = self._listening, asyncio.get_running_loop()
        _raise_limit()
        serving = Serving(_nobody_there, met=met)
        try:
            place = Place(listening, *await serving.listen(listening.host, listening.port))
        except OSError as fault:
            raise SubluminalError(
                f"cannot listen on {listening.host}:{listening.port}: {os.strerror(fault.errno or 0)}",
                hint="Choose another port with --listen; port 0 takes a free one.",
            ) from None
        visitors = self._visitors()
        door = self._door = make_door(place, visitors)
        serving.arrived = door.arrived
        # What is here now stays; a call makes no cycles, so the collector need not look for any after every few calls.
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER_OBJECTS)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        _say_ready(place.bound, door.urls, listening.as_json)
        ticking = loop.create_task(_tick(door, visitors))
        try:
            await self._stop.wait()
        finally:
            ticking.cancel()
            await serving.stop(DRAIN_SECONDS)
            await door.close()
            visitors.close()
        return 0

    def _visitors(self) -> Visitors:
        listening, servers = self._listening, self._servers
        visitors = Visitors(
            os.environ,
            config=listening.config,
            meta={"server_name": ", ".join(spec.name for spec in servers)},
            policy=listening.policy,
            events=listening.events,
            secrets=[secret for spec in servers for secret in spec.secrets],
            injections=[injection for spec in servers for injection in spec.injections],
            command=[word for spec in servers for word in spec.command],
            busy=self._busy,
            ended=self._ended,
        )
        for spec in servers:
            if spec.reach is not None:
                spec.reach.masked_by(visitors.learn)
        return visitors

    def _busy(self, producer: Producer) -> int:
        return self._door.calls_open(producer) if self._door is not None else 0

    def _ended(self, producer: Producer) -> None:
        if self._door is not None:
            self._door.ended(producer)


def _nobody_there(visit: Visit) -> None:
    """Until there is a door, which is before the loop goes round again."""
    raise AssertionError


async def _tick(door: Door, visitors: Visitors) -> None:
    ticks = 0
    while True:
        await asyncio.sleep(TICK_SECONDS)
        now_ns = monotonic_ns()
        door.tick(now_ns)
        visitors.tick(now_ns)
        ticks += 1
        if ticks % KEEP_ALIVE_TICKS == 0:
            door.keep_alive()


def _say_ready(listening: str, urls: dict[str, str], as_json: bool) -> None:
    """One line, when requests are taken: whoever started us waits for it."""
    if as_json:
        line = to_json({"ready": True, "listening": listening, "servers": urls})
    else:
        line = "ready: " + ", ".join(urls.values())
    print(line, flush=True)


def _raise_limit() -> None:
    """Every stream has two descriptors, and many systems allow a process a thousand unless it asks for more."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

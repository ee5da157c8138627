"""The collector's HTTP: segments in, cursors and metrics out. What may be asked of the store is in `questions`.

    POST /v1/segments                       one segment; 200 {"acked":[first_seq,last_seq]} after its commit
    GET  /v1/cursor?run_id=&shim_id=        {"seq":N}: all up to N from this machine is committed
    GET  /v1/calls, /v1/runs, …             see `questions`
    GET  /metrics, /health                  for whoever operates it

503 with Retry-After where the store is behind or down, 429 where a tenant is beyond its quota or asks too much at once;
both are jittered, so that machines do not come back together. 504: a question took too long. 4xx else: sending it again
will not help.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from aiohttp import web

from subluminal.contracts import figures
from subluminal.contracts.errors import SubluminalError, UsageError
from subluminal.fleet.collector.commits import Busy, Commits
from subluminal.fleet.collector.credentials import READ, SHIP, Caller, Credentials, NotAllowed, NotYet
from subluminal.fleet.collector.health import Health
from subluminal.fleet.collector.metrics import Metrics
from subluminal.fleet.collector.questions import QUESTION_S, Questions
from subluminal.fleet.collector.quotas import Quotas
from subluminal.fleet.collector.rows import Batch, rows_of
from subluminal.fleet.collector.turns import TooMany, Turns
from subluminal.fleet.segments import MAX_BODY_BYTES, BadSegment, decode
from subluminal.fleet.stores.asked import READERS
from subluminal.fleet.stores.base import Store, StoreError, TooLong
from subluminal.fleet.waiting import RETRY_S, retry_after_s
from subluminal.ledger.http.metrics import CONTENT_TYPE

# In events: what is refused was read all the same.
_REJECTED_COSTS = 100
_EXPIRE_EVERY_S = 3600.0
log = logging.getLogger("subluminal.collector")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Service:
    def __init__(
        self,
        store: Store,
        credentials: Credentials,
        quotas: Quotas,
        *,
        commit_interval_s: float = 0.2,
        retention_days: int = 0,
        question_s: float = QUESTION_S,
    ) -> None:
        self.metrics = Metrics()
        self._store, self._credentials, self._quotas = store, credentials, quotas
        self._interval_s, self._retention_days = commit_interval_s, retention_days
        self._questions = Questions(store, question_s)
        self._turns = Turns()
        # Apart from each other, so that no machine waits for its cursor behind whoever reads.
        self._reading = ThreadPoolExecutor(READERS, "question")
        self._finding = ThreadPoolExecutor(1, "cursor")

    def metrics_application(self) -> web.Application:
        """For a listener of its own: `/metrics` names every tenant, and is not for those who send."""
        app = web.Application(middlewares=[self._told])
        app.add_routes([web.get("/metrics", self._metrics_text), web.get("/health", self._health)])
        return app

    def application(self, *, with_metrics: bool = True) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._told])
        app.add_routes(
            [
                web.post("/v1/segments", self._segment),
                web.get("/v1/cursor", self._cursor),
                *([web.get("/metrics", self._metrics_text)] if with_metrics else []),
                web.get("/health", self._health),
                *(web.get(path, self._asked(question)) for path, question in self._questions.routes.items()),
            ]
        )
        app.cleanup_ctx.append(self._running)
        return app

    async def _running(self, app: web.Application) -> AsyncIterator[None]:
        self._commits = Commits(self._store, self.metrics, self._interval_s)
        self._store_health = Health(self._store, self._commits)
        tasks = [asyncio.ensure_future(self._commits.run()), asyncio.ensure_future(self._expiring())]
        yield
        for task in tasks:
            task.cancel()
        self._commits.close()
        for threads in (self._reading, self._finding):
            threads.shutdown(wait=False, cancel_futures=True)
        self._store.close()

    async def _expiring(self) -> None:
        while self._retention_days:
            await asyncio.sleep(_EXPIRE_EVERY_S)
            try:
                await asyncio.to_thread(self._store.expire, self._retention_days)
            except StoreError as error:
                log.error("%s", error)

    @web.middleware
    async def _told(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Errors as JSON with a sentence."""
        try:
            return await handler(request)
        except NotAllowed as error:
            return _answer(401, {"error": str(error)}, {"WWW-Authenticate": "Bearer"})
        except NotYet as error:
            return _answer(503, {"error": str(error)}, _retry_after())
        except Busy as error:
            self.metrics.count(figures.SEGMENTS, 1, ("outcome", "busy"))
            return _answer(503, {"error": str(error)}, _retry_after())
        except BadSegment as error:
            self.metrics.count(figures.SEGMENTS, 1, ("outcome", "rejected"))
            self.metrics.count(figures.REJECTED_SEGMENTS, 1, ("reason", error.word))
            return _answer(422, {"error": str(error), "reason": error.word})
        except StoreError as error:
            log.error("%s", error)
            return _answer(503, {"error": "The store cannot be asked at the moment."}, _retry_after())
        except TooMany as error:
            return _answer(429, {"error": str(error)}, _retry_after())
        except TooLong as error:
            return _answer(504, {"error": str(error)})
        except UsageError as error:
            return _answer(400, {"error": str(error), "hint": error.hint})
        except SubluminalError as error:
            return _answer(404, {"error": str(error), "hint": error.hint})
        except web.HTTPRequestEntityTooLarge:
            self.metrics.count(figures.REJECTED_SEGMENTS, 1, ("reason", "size"))
            return _answer(413, {"error": f"A segment has at most {MAX_BODY_BYTES:,} bytes.", "reason": "size"})

    def _caller(self, request: web.Request, need: str) -> Caller:
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        caller = self._credentials.caller(request.headers.get("Authorization"), certificate)
        if need not in caller.may:
            raise NotAllowed(f"This credential may not {need}.")
        return caller

    async def _segment(self, request: web.Request) -> web.Response:
        caller = self._caller(request, SHIP)
        wait_s = self._quotas.wait_s(caller.tenant, time.monotonic())
        if wait_s:
            self.metrics.count(figures.SEGMENTS, 1, ("outcome", "quota"))
            error = {"error": f"{caller.tenant} is beyond its quota."}
            answer = _answer(429, error, _retry_after(wait_s))
            answer.force_close()  # its body was not read, and is not going to be
            return answer
        body = await request.read()
        now_ms = time.time_ns() // 1_000_000
        try:
            segment = decode(body)
            batch = rows_of(segment, caller.tenant, caller.machine, now_ms)
        except BadSegment:
            self._quotas.charge(caller.tenant, _REJECTED_COSTS, len(body), time.monotonic())
            raise
        self._quotas.charge(caller.tenant, len(segment.lines), batch.bytes, time.monotonic())
        await self._commits.put(batch, caller.tenant)
        self._measure(batch, now_ms)
        self.metrics.count(figures.SEGMENTS, 1, ("outcome", "acked"))
        return _answer(200, {"acked": [segment.first_seq, segment.last_seq]})

    def _measure(self, batch: Batch, now_ms: int) -> None:
        """Of its last event: a clock that is ahead shows as no lag."""
        self.metrics.observe(figures.ARRIVAL_LAG, max(0.0, (now_ms - batch.lines[-1].ts_ms[-1]) / 1000))

    async def _cursor(self, request: web.Request) -> web.Response:
        caller = self._caller(request, SHIP)
        run_id, shim_id = request.query.get("run_id", ""), request.query.get("shim_id", "")
        if not run_id or not shim_id or "\0" in run_id + shim_id:
            raise UsageError("run_id and shim_id are needed.")
        asked = (caller.tenant, caller.machine, run_id, shim_id)
        seq = await asyncio.get_running_loop().run_in_executor(self._finding, self._questions.cursor, *asked)
        return _answer(200, {"seq": seq})

    def _asked(self, question: Callable[[str, Any], Any]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            caller = self._caller(request, READ)
            async with self._turns.of(caller.tenant):
                loop = asyncio.get_running_loop()
                told = await loop.run_in_executor(self._reading, question, caller.tenant, request.query)
            return _answer(200, told)

        return handler

    async def _metrics_text(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, request: web.Request) -> web.Response:
        is_well = await self._store_health.is_well()
        return _answer(200 if is_well else 503, {"store": "ok" if is_well else "down"})


def _answer(status: int, value: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers or {}
    )


def _retry_after(seconds: float = RETRY_S) -> dict[str, str]:
    return {"Retry-After": str(retry_after_s(seconds))}

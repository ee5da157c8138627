"""A stand-in for proxies made with a framework: aiohttp on both sides, every request relayed, nothing judged.

python bench/aiohttp_relay.py URL       prints the port of 127.0.0.1 that it listens on
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import aiohttp
from aiohttp import web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


async def serve(origin: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            body = await request.read()
            async with session.request(request.method, origin + request.path_qs, headers=headers, data=body) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
                if answer.content_type != "text/event-stream":
                    return web.Response(status=answer.status, headers=kept, body=await answer.read())
                stream = web.StreamResponse(status=answer.status, headers=kept)
                await stream.prepare(request)
                with suppress(ConnectionError):  # the client has left
                    async for piece in answer.content.iter_any():
                        await stream.write(piece)
                return stream

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


try:
    import uvloop
except ImportError:
    asyncio.run(serve(sys.argv[1]))
else:
    uvloop.run(serve(sys.argv[1]))

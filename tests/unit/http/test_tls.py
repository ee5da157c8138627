"""TLS on loopback with a throw-away authority: what is not proven is not spoken to, and a clause says why."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import EXPIRED, Authority
from harness.waiting import wait_for_async
from harness.web import LOOPS, Curious, pool_to, run_on, script

both_loops = pytest.mark.parametrize("loop", LOOPS)
HEADERS = [(b"host", b"h")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def ok(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def asked(
    server: ssl.SSLContext | None,
    client: ssl.SSLContext | None,
    host: str = "127.0.0.1",
    times: int = 1,
    **options: Any,
) -> tuple[Curious, int]:
    """The last answer, and how many connections it took."""
    async with (
        script(ok, ssl=server) as there,
        pool_to((host, there.address[1]), "https", context=client, **options) as pool,
    ):
        for _ in range(times):
            asker = Curious()
            pool.ask(b"GET", b"/", HEADERS, b"", asker)
            await asker.finished()
        assert there.heads == [] or not asker.why
        return asker, there.connections


@both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_that_proves_its_name_is_asked_again_and_again(loop: str, authority: Authority, host: str) -> None:
    asker, connections = run_on(loop, asked(authority.server(host), authority.trusting(), host, times=4))
    assert (asker.status, asker.content) == (200, b"ok")
    assert connections == 1


@both_loops
def test_what_is_not_proven_is_a_clause(loop: str, authority: Authority) -> None:
    trusting = authority.trusting()
    cases = [
        (authority.server("other.test"), trusting, "mismatch"),
        (authority.server("127.0.0.1", EXPIRED), trusting, "certificate has expired"),
        (authority.server("127.0.0.1", self_signed=True), trusting, "self"),
        (authority.server("127.0.0.1"), None, "unable to get local issuer certificate"),
    ]
    for server, client, why in cases:
        asker, _ = run_on(loop, asked(server, client))
        assert asker.why.startswith("the certificate of https://127.0.0.1:"), asker.why
        assert " is not valid: " in asker.why and why in asker.why
        assert asker.told == ["failed"]


@both_loops
def test_a_server_that_does_not_speak_tls_is_a_clause(loop: str, authority: Authority) -> None:
    async def main() -> None:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        async with pool_to(server.sockets[0].getsockname(), "https", context=authority.trusting()) as pool:
            asker = Curious()
            pool.ask(b"GET", b"/", HEADERS, b"", asker)
            await asker.finished()
            assert asker.why == f"no TLS connection to {pool.origin}: what answers there does not speak TLS"
        server.close()

    run_on(loop, main())


@both_loops
@pytest.mark.parametrize("says", ["nothing", "goodbye"])
def test_a_handshake_that_is_never_finished_is_a_clause(loop: str, authority: Authority, says: str) -> None:
    async def main() -> None:
        left: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            if says == "nothing":
                while await reader.read(1000):
                    pass
                left.append("closed")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        seconds = 0.2 if says == "nothing" else 20
        context = authority.trusting()
        async with pool_to(server.sockets[0].getsockname(), "https", context=context, connect_seconds=seconds) as pool:
            asker = Curious()
            pool.ask(b"GET", b"/", HEADERS, b"", asker)
            await asker.finished()
            if says == "nothing":
                assert asker.why == f"no connection to {pool.origin} within 0.2 s"
                await wait_for_async(lambda: left, what="the connection to be closed")
            else:
                assert asker.why.startswith(f"no connection to {pool.origin}: ") or "TLS" in asker.why
        server.close()

    run_on(loop, main())


@both_loops
def test_a_connection_that_its_server_has_closed_is_not_used(loop: str, authority: Authority) -> None:
    async def main() -> None:
        async def once(head: bytes, writer: asyncio.StreamWriter) -> None:
            await ok(head, writer)
            writer.close()

        async with (
            script(once, ssl=authority.server("127.0.0.1")) as there,
            pool_to(there.address, "https", context=authority.trusting()) as pool,
        ):
            for count in (1, 2, 3):
                asker = Curious()
                pool.ask(b"GET", b"/", HEADERS, b"", asker)
                await asker.finished()
                await wait_for_async(lambda: not any(outbound.usable for outbound in pool._idle))
                assert asker.content == b"ok" and there.connections == count

    run_on(loop, main())


def test_the_systems_certificates_are_those_that_the_environment_names(authority: Authority, tmp_path: Path) -> None:
    """Read once per process, so by a process of its own."""
    program = tmp_path / "ask.py"
    program.write_text(
        "import asyncio, ssl, sys\n"
        "from harness.web import Curious, pool_to\n"
        "async def main():\n"
        "    async with pool_to(('127.0.0.1', int(sys.argv[1])), 'https') as pool:\n"
        "        asker = Curious()\n"
        "        pool.ask(b'GET', b'/', [(b'host', b'h')], b'', asker)\n"
        "        await asker.finished()\n"
        "        print(asker.status, asker.why)\n"
        "asyncio.run(main())\n",
        encoding="utf-8",
    )

    async def main() -> None:
        async with script(ok, ssl=authority.server("127.0.0.1")) as there:
            for trusted, expected in ((str(authority.file), "200 "), ("", "unable to get local issuer certificate")):
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                environment.pop("SSL_CERT_FILE", None)
                if trusted:
                    environment["SSL_CERT_FILE"] = trusted
                process = await asyncio.create_subprocess_exec(
                    sys.executable, str(program), str(there.address[1]), stdout=subprocess.PIPE, env=environment
                )
                output, _ = await process.communicate()
                assert expected in output.decode()

    run_on("asyncio", main())

"""Who holds the other end of a connection: real sockets, real processes, another user, and kernels that tell less."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.connecting import calling, listen
from harness.effort import calls_made, cpu_ratio
from harness.waiting import wait_for
from subluminal.host import peers, sock_diag
from subluminal.host.identity import start_time
from subluminal.host.peers import peer_of, peer_of_socket

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
OTHER_USER = 65534


@pytest.fixture(params=["sock_diag", "table"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to ask the kernel, as if there were no other."""
    if request.param == "table":
        monkeypatch.setattr(sock_diag, "_ask", lambda *ends: None)
    else:
        monkeypatch.setattr(sock_diag, "_look_up", lambda *ends: None)
    return str(request.param)


@pytest.fixture(autouse=True)
def nobody_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_recent", {})
    monkeypatch.setattr(peers, "_seen", {})


def ends(accepted: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    return accepted.getsockname()[:2], accepted.getpeername()[:2]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_another_process_of_ours_is_known_by_user_number_and_start(way: str, host: str) -> None:
    with listen(host) as listener, calling(listener, host=host) as caller:
        peer = peer_of_socket(caller.accepted)
        assert (peer.uid, peer.pid, peer.start) == (os.geteuid(), caller.pid, start_time(caller.pid))


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_connection_over_ipv4_is_one_whatever_sockets_are_at_its_ends(way: str, host: str) -> None:
    with listen("::", both=True) as listener, calling(listener, host=host) as caller:
        assert caller.accepted.getpeername()[0] == "::ffff:127.0.0.1"
        assert peer_of_socket(caller.accepted).pid == caller.pid
    with listen("127.0.0.1") as listener, calling(listener, host=host) as caller:
        assert peer_of_socket(caller.accepted).pid == caller.pid


def test_what_asyncio_shows_of_a_socket_will_do_from_another_thread() -> None:
    found: list[peers.Peer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        found.append(await asyncio.to_thread(peer_of_socket, accepted))
        writer.close()

    async def case() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await reader.read()
        writer.close()
        server.close()

    asyncio.run(case())
    assert [(peer.pid, peer.is_ours) for peer in found] == [(os.getpid(), True)]


def test_a_connection_to_ourselves_is_ours(way: str) -> None:
    with listen() as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert peer_of_socket(accepted).pid == os.getpid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_known_as_such_and_its_processes_are_not_looked_at(way: str) -> None:
    with listen() as listener, calling(listener, user=OTHER_USER) as caller:
        peer = peer_of_socket(caller.accepted)
        assert (peer.uid, peer.pid, peer.start) == (OTHER_USER, None, "")


HAND_OVER = """
import subprocess
child = subprocess.Popen(["sleep", "600"], pass_fds=[connection.fileno()])
{parent}
print(child.pid, flush=True)
"""


def test_a_socket_that_was_handed_to_a_child_is_the_childs(way: str) -> None:
    with listen() as listener, calling(listener, script=HAND_OVER.format(parent="connection.close()")) as caller:
        child = int(caller.line())
        try:
            assert peer_of_socket(caller.accepted).pid == child
        finally:
            os.kill(child, 9)


@pytest.mark.parametrize("known", [False, True])
def test_a_socket_that_a_child_inherited_is_its_parents_whoever_is_looked_at_first(known: bool) -> None:
    with listen() as listener, calling(listener, script=HAND_OVER.format(parent="")) as caller:
        child = int(caller.line())
        if known:
            peers._recent[child] = None
        try:
            assert peer_of_socket(caller.accepted).pid == caller.pid
        finally:
            os.kill(child, 9)


def test_who_has_gone_is_nobody_and_not_root(way: str) -> None:
    with listen() as listener, calling(listener, script="connection.close(); print()") as caller:
        caller.line()
        local, remote = ends(caller.accepted)
        wait_for(lambda: peer_of(local, remote).uid is None, what="the kernel to forget who held it")
        assert peer_of_socket(caller.accepted).uid is None


def taken_over(listener: socket.socket, first: socket.socket, second: socket.socket) -> socket.socket | None:
    """The accepted end of `first`, which has reset and left its address to `second`; None: somebody else took it."""
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    first.connect(listener.getsockname())
    address = first.getsockname()
    first.sendall(b"a request of somebody else")
    accepted, _ = listener.accept()
    first.close()
    second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        second.bind(address)
        second.connect(listener.getsockname())
    except OSError:
        accepted.close()
        return None
    return accepted


def test_what_was_sent_before_a_reset_is_nobodys_even_if_another_takes_the_address() -> None:
    for _ in range(50):
        with listen() as listener, socket.socket() as first, socket.socket() as second:
            accepted = taken_over(listener, first, second)
            if accepted is None:
                continue
            with accepted:
                address = second.getsockname()
                assert peer_of(listener.getsockname(), address).pid == os.getpid(), "the address has another holder now"
                assert accepted.recv(4) == b"a re", "and what was sent can still be read"
                assert peer_of_socket(accepted).uid is None
                return
    raise AssertionError("the address could not be taken over")


def test_who_has_hung_up_halfway_is_not_told_for_its_address_may_be_anothers() -> None:
    with listen() as listener, calling(listener, script="connection.shutdown(socket.SHUT_WR)") as caller:
        assert caller.accepted.recv(1) == b""
        assert peer_of_socket(caller.accepted).uid is None


def test_a_listening_socket_is_nobodys_other_end(way: str) -> None:
    with listen() as listener, listen() as other:
        assert peer_of(listener.getsockname(), other.getsockname()).uid is None


@pytest.mark.parametrize(
    "address",
    [("", 0), ("nonsense", 1), ("127.0.0.1", -1), ("127.0.0.1", 1 << 40), ("::1%lo", 1), ("::1", 1), ("1" * 5000, 1)],
)
def test_addresses_that_are_none_are_nobodys(way: str, address: tuple[str, int]) -> None:
    for local, remote in ((address, ("127.0.0.1", 1)), (("127.0.0.1", 1), address), (address, address)):
        assert peer_of(local, remote).uid is None


def test_a_search_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen() as listener, calling(listener) as caller:
        for bound in ("MAX_DESCRIPTORS", "SEARCH_NS"):
            with monkeypatch.context() as patch:
                patch.setattr(peers, bound, -1)
                peer = peer_of_socket(caller.accepted)
                assert (peer.uid, peer.start) == (os.geteuid(), "")
        assert peer_of_socket(caller.accepted).pid == caller.pid


def test_who_connected_before_is_looked_at_first() -> None:
    with listen() as listener, ExitStack() as others:
        callers = [others.enter_context(calling(listener)) for _ in range(3)]
        by_port = {caller.accepted.getpeername(): peer_of_socket(caller.accepted).pid for caller in callers}
        assert set(by_port.values()) == {caller.pid for caller in callers}
        known = peer_of_socket(callers[0].accepted).pid
        assert known is not None
        again = calls_made(lambda: peer_of_socket(callers[0].accepted), of="listdir")
        peers._recent.clear()
        assert again < calls_made(lambda: peer_of_socket(callers[0].accepted), of="listdir")
    peers._recent.update(dict.fromkeys(range(10**6, 10**6 + 10 * peers.MAX_RECENT)))
    with listen() as listener, calling(listener) as caller:
        assert peer_of_socket(caller.accepted).pid == caller.pid
    assert len(peers._recent) == peers.MAX_RECENT


@pytest.fixture
def many_sockets() -> Iterator[int]:
    """5,000 sockets that are open in this machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6_000:
        pytest.skip("this machine allows too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6_000), hard))
    with ExitStack() as held:
        listener = held.enter_context(listen())
        for _ in range(2_500):
            held.enter_context(socket.create_connection(listener.getsockname()))
            held.enter_context(listener.accept()[0])
        yield 5_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_kernel_is_asked_for_one_connection_however_many_there_are(many_sockets: int) -> None:
    with listen() as listener, calling(listener) as caller:
        local, remote = ends(caller.accepted)
        assert peer_of(local, remote).pid == caller.pid
        packed = sock_diag._packed(remote[0]), remote[1], sock_diag._packed(local[0]), local[1]
        assert cpu_ratio(lambda: sock_diag._ask(*packed), lambda: sock_diag._look_up(*packed), 0.1) < 0.1
        found, looked_up = sock_diag._ask(*packed), sock_diag._look_up(*packed)
        assert found is not None and looked_up is not None
        assert (found.uid, found.inode) == (looked_up.uid, looked_up.inode)


def test_a_kernel_without_the_service_is_not_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says "no such socket" for want of the service; one that has answered before means it."""
    monkeypatch.setattr(sock_diag, "_answers", False)
    with listen() as listener:
        packed = sock_diag._packed("127.0.0.1"), 1, sock_diag._packed("127.0.0.1"), listener.getsockname()[1]
        assert sock_diag._ask(*packed) is None
        with calling(listener) as caller:
            assert peer_of_socket(caller.accepted).pid == caller.pid
        found = sock_diag._ask(*packed)
        assert found is not None and not found.inode


def test_other_systems_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen() as listener, calling(listener) as caller:
        monkeypatch.setattr(sys, "platform", "darwin")
        assert repr(peer_of_socket(caller.accepted)) == repr(peer_of(*ends(caller.accepted))) == repr(peers.Peer())

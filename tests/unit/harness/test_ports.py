"""Ports refuse, are refused, and can be had again, as long as a test needs it."""

from __future__ import annotations

import socket

import pytest

from harness.ports import OF_OUR_CHOICE, free_port, listening, nobody_listens


def test_where_nobody_listens_a_connection_is_refused_and_nobody_else_can_listen() -> None:
    with nobody_listens() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port), reuse_port=False)


def test_a_port_of_our_choice_is_had_again_after_it_was_left() -> None:
    with listening() as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listening(port)
    assert port in OF_OUR_CHOICE and free_port() in OF_OUR_CHOICE
    with listening(port) as again, socket.create_connection(("127.0.0.1", port)):
        assert again.getsockname()[1] == port

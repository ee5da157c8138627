"""Requests of logins: TLS, proxies, and who is told what."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from harness.logins import use_home
from harness.scripted_http import scripted_http
from subluminal.contracts.errors import LoginUnreachable
from subluminal.logins import fetch
from subluminal.logins.addresses import read


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_home(monkeypatch, tmp_path)


@contextmanager
def one_answer(answer: bytes, context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """A port that reads one head and answers with these bytes; what it read is in the list."""
    seen: list[bytes] = []

    def serve() -> None:
        try:
            connection, _ = listening.accept()
            with connection if context is None else context.wrap_socket(connection, server_side=True) as stream:
                seen.append(stream.recv(65536))
                stream.sendall(answer)
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(65536):  # whoever closes on unread bytes resets, and takes the answer away
                    pass
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], seen


def own_certificate(directory: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate that nobody has signed, and the certificate's file."""
    pytest.importorskip("cryptography")
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day.replace(year=2090))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    file = directory / "own.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, str(file)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_a_certificate_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, file = own_certificate(tmp_path)
    with one_answer(OK, context) as (port, seen):
        with pytest.raises(
            LoginUnreachable, match=r"the certificate of https://127\.0\.0\.1:.* cannot be trusted: self"
        ):
            fetch.post(read(f"https://127.0.0.1:{port}/token"), "text/plain", b"the-refresh-token")
        assert seen == []
    monkeypatch.setenv("SSL_CERT_FILE", file)
    with one_answer(OK, context) as (port, seen):
        assert fetch.post(read(f"https://127.0.0.1:{port}/token"), "text/plain", b"x").json() == {}


def test_a_handshake_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TOTAL_S", 0.2)
    in_time = pytest.raises(LoginUnreachable, match="did not answer in time")
    with socket.create_server(("127.0.0.1", 0)) as silent, in_time:
        fetch.get(read(f"https://127.0.0.1:{silent.getsockname()[1]}/"))


def test_a_proxy_of_the_environment_is_asked_for_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_answer(b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as (port, seen):
        monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        with pytest.raises(LoginUnreachable, match=r"https://tools\.example cannot be reached") as caught:
            fetch.post(read("https://tools.example/token"), "text/plain", b"the-refresh-token")
        assert "p@ss" not in str(caught.value)
    assert seen[0].startswith(b"CONNECT tools.example:443 ") and b"the-refresh-token" not in seen[0]
    assert b"Basic " + base64.b64encode(b"me:p@ss") in seen[0]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://[", "http://"])
def test_a_proxy_that_cannot_be_used_is_a_sentence(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(LoginUnreachable, match="proxy of the environment"):
        fetch.get(read("https://tools.example/"))


def test_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with scripted_http() as server:
        server.json("/x", {"a": 1})
        assert fetch.get(read(server.origin + "/x")).json() == {"a": 1}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    ],
    ids=["nothing", "no status", "cut short", "bad chunk", "cut chunk", "a long header", "many headers"],
)
def test_an_answer_that_is_none_is_a_sentence(answer: bytes) -> None:
    with one_answer(answer) as (port, _), pytest.raises(LoginUnreachable, match="cannot be reached"):
        fetch.get(read(f"http://127.0.0.1:{port}/"))

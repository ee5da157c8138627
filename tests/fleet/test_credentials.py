"""Who it is comes from the credential: tokens, certificates, service-account tokens checked against their issuer."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from harness.certificates import Authority
from harness.collector import Machine, collector, segment_of
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, sub_environment
from harness.waiting import GENEROUS_S, wait_for
from subluminal.contracts.errors import ConfigError
from subluminal.fleet.collector.credentials import READ, SHIP, Caller, Credentials, NotAllowed, NotYet
from subluminal.fleet.collector.service_accounts import ServiceAccounts
from subluminal.fleet.collector.tokens import Tokens, add_token
from subluminal.fleet.segments import encode

ISSUER, AUDIENCE = "https://cluster.example", "subluminal"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
PLACE: dict[str, Any] = {
    "namespace": "acme",
    "pod": {"name": "worker-0", "uid": "u1"},
    "serviceaccount": {"name": "agent"},
}
SOMEBODY = Caller("acme", "worker-0:u1", frozenset((SHIP,)))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int, size: int | None = None) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@pytest.fixture
def accounts(tmp_path: Path) -> ServiceAccounts:
    ec_numbers = EC.public_key().public_numbers()
    keys = [
        rsa_entry(RSA, "r1"),
        {"kty": "EC", "kid": "e1", "crv": "P-256", "x": number(ec_numbers.x, 32), "y": number(ec_numbers.y, 32)},
    ]
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return ServiceAccounts(ISSUER, AUDIENCE, str(path))


def token(
    key: Any = RSA, kid: str = "r1", alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any
) -> str:
    told = {"iss": ISSUER, "aud": [AUDIENCE], "exp": time.time() + 600, "kubernetes.io": PLACE, **claims}
    head = {"alg": alg, "kid": kid, "typ": "JWT", **(header or {})}
    signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(told).encode())}"
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    else:
        signature = b""
    return f"{signed}.{b64(signature)}"


class SlowIssuer(ThreadingHTTPServer):
    """Answers the first question, and no other before it is let."""

    daemon_threads = True

    def __init__(self, keys: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Jwks)
        self.keys, self.questions = keys, 0
        self.may_answer, self.was_asked = threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def place(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/jwks"


class _Jwks(BaseHTTPRequestHandler):
    server: SlowIssuer

    def do_GET(self) -> None:
        self.server.questions += 1
        if self.server.questions > 1:
            self.server.was_asked.set()
            self.server.may_answer.wait(GENEROUS_S)
        text = json.dumps({"keys": self.server.keys}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def rsa_entry(key: rsa.RSAPrivateKey, kid: str) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": number(numbers.n), "e": number(numbers.e)}


def test_an_issuer_that_is_slow_holds_up_nobody_and_is_asked_once(one_store: str, tmp_path: Path) -> None:
    """A real collector with real tokens: one of a key that was exchanged, made-up ones, and everybody else's."""
    issuer = SlowIssuer([rsa_entry(RSA, "r1")])
    options = ("--issuer", ISSUER, "--audience", AUDIENCE, "--jwks", issuer.place)
    body = encode(segment_of(EventMaker(run_id(1), shim_id(1)).whole_run(1), run_id(1), shim_id(1)))
    with collector(tmp_path / "collector", one_store, *options) as fleet:
        assert fleet.ask("/v1/segments", token(), body)[0] == 200
        for wrong in (token(header={"kid": []}), token(OTHER), token(aud="another"), "a.b.c"):
            assert fleet.ask("/v1/segments", wrong, body)[0] == 401
        issuer.keys.append(rsa_entry(OTHER, "r2"))
        status, headers, _ = fleet.ask("/v1/segments", token(OTHER, "r2"), body)
        assert status == 503 and int(headers["Retry-After"]) >= 1
        assert issuer.was_asked.wait(GENEROUS_S)
        for made_up in range(20):
            assert fleet.ask("/v1/segments", token(kid=f"made-up-{made_up}"), body)[0] == 503
        assert fleet.ask("/v1/segments", token(), body)[0] == 200  # while the issuer still thinks
        assert issuer.questions == 2
        issuer.may_answer.set()
        wait_for(lambda: fleet.ask("/v1/segments", token(OTHER, "r2"), body)[0], enough=lambda status: status == 200)
        assert fleet.ask("/v1/segments", token(kid="made-up"), body)[0] == 401
        assert issuer.questions == 2
        assert fleet.ask("/v1/calls", token())[0] == 401  # it may send, not read
        assert fleet.ask("/v1/count?run_id=" + run_id(1), fleet.reader)[2] == {"count": 1}  # of the namespace acme
    issuer.shutdown()


def test_a_service_account_token_names_its_namespace_and_pod(accounts: ServiceAccounts) -> None:
    assert accounts(token()) == SOMEBODY
    assert accounts(token(EC, "e1", "ES256")) == SOMEBODY
    assert accounts(token(aud=AUDIENCE)) == SOMEBODY


@pytest.mark.parametrize(
    "wrong",
    [
        token(OTHER),
        token(key=None, alg="none"),
        token(key=None),
        token(alg="HS256"),
        token(EC, "r1", "RS256"),
        token(RSA, "e1", "ES256"),
        token(header={"crit": ["b64"]}),
        token(iss="https://elsewhere.example"),
        token(aud=["another"]),
        token(aud=[]),
        token(aud=None),
        token(exp=time.time() - 120),
        token(exp="soon"),
        token(exp=None),
        token(nbf=time.time() + 600),
        token(**{"kubernetes.io": None}),
        token(**{"kubernetes.io": {"namespace": "acme"}}),
        token(**{"kubernetes.io": {"namespace": 3, "pod": {"name": "x"}}}),
        token()[:-8],
        token().replace(".", "!", 1),
        "a.b.c",
        "." * 10,
        "x" * 100_000,
    ],
)
def test_a_token_that_is_not_the_issuers_for_us_and_now_is_nobodys(accounts: ServiceAccounts, wrong: str) -> None:
    assert accounts(wrong) is None


def who(accounts: ServiceAccounts, shown: str) -> Caller | str | None:
    try:
        return accounts(shown)
    except NotYet:
        return "not yet"


STRANGE: list[Any] = [None, True, 0, -1, 1 << 80, 1e308, "", "\0", "x" * 9000, [], [[]], [None], {}, {"kid": []}]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: repr(value)[:20])
def test_no_value_anywhere_in_a_token_leads_to_anything_but_somebody_or_nobody(
    accounts: ServiceAccounts, value: Any
) -> None:
    """In the header, which anybody may write, and in claims, which a cluster has signed."""
    for name in ("kid", "alg", "typ", "crit", "jwk", "x5c"):
        assert who(accounts, token(header={name: value})) in (None, SOMEBODY, "not yet")
        assert who(accounts, token(key=None, header={name: value})) in (None, "not yet")
    for name in ("iss", "aud", "exp", "nbf", "iat", "sub", "kubernetes.io"):
        assert accounts(token(**{name: value})) in (None, SOMEBODY)
    for name in ("namespace", "pod"):
        assert accounts(token(**{"kubernetes.io": {**PLACE, name: value}})) is None or isinstance(value, str)
    for name in ("name", "uid"):
        place = {**PLACE, "pod": {**PLACE["pod"], name: value}}
        caller = accounts(token(**{"kubernetes.io": place}))
        assert caller is None or caller.tenant == "acme"


@pytest.mark.parametrize(
    "text", [b"[" * 5000, b"[]", b"null", b"1e400", b'"kid"', b'{"kid":"r1","kid":[]}', b'{"a":' * 2000, b"\xff", b""]
)
def test_no_text_in_the_place_of_header_or_claims_is_anybodys(accounts: ServiceAccounts, text: bytes) -> None:
    head, claims, signature = token().split(".")
    assert accounts(f"{b64(text)}.{claims}.{signature}") is None
    assert accounts(f"{head}.{b64(text)}.{signature}") is None


def test_a_key_of_the_issuer_that_is_none_leaves_the_others_in_force(tmp_path: Path) -> None:
    bad = [
        {},
        {"kid": []},
        {"kid": "a", "kty": []},
        {"kid": "b", "kty": "RSA"},
        {"kid": "c", "kty": "RSA", "n": 5, "e": None},
        {"kid": "d", "kty": "RSA", "n": "AA", "e": "!"},
        {"kid": "e", "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kid": "f", "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"},
        {"kid": "g", "kty": "oct", "k": "AA"},
    ]
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [*bad, rsa_entry(RSA, "r1")]}))
    assert ServiceAccounts(ISSUER, AUDIENCE, str(path))(token()) == SOMEBODY
    for text in ('{"keys": 5}', '{"keys": [5]}', "[]", "{}", "", "\x00"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"keys of the issuer cannot be read|no key that can be used"):
            ServiceAccounts(ISSUER, AUDIENCE, str(path))


def test_a_key_that_is_not_known_is_looked_for_and_then_nobodys(accounts: ServiceAccounts) -> None:
    with pytest.raises(NotYet):
        accounts(token(kid="r2"))

    wait_for(lambda: who(accounts, token(kid="r2")), enough=lambda told: told is None, what="the keys to be read again")
    assert accounts(token()) == SOMEBODY


def test_claims_that_were_changed_after_signing_are_nobodys(accounts: ServiceAccounts) -> None:
    head, _, signature = token().split(".")
    forged = token(**{"kubernetes.io": {"namespace": "other", "pod": {"name": "x"}}}).split(".")[1]
    assert accounts(f"{head}.{forged}.{signature}") is None


def test_tokens_are_known_by_their_hash_and_a_new_file_is_read_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(path)
    first = add_token(path, "acme", "m1", may_read=False)
    tokens = Tokens(path)
    assert tokens(first) == Caller("acme", "m1", frozenset((SHIP,)))
    second = add_token(path, "acme", "ann", may_read=True)
    assert tokens(second) == Caller("acme", "ann", frozenset((READ,)))
    assert first not in Path(path).read_text() and Path(path).stat().st_mode & 0o077 == 0
    Path(path).write_text("{")
    assert tokens(first) is not None  # a slip of an editor cuts nobody off
    assert tokens("guess") is None


def test_a_tokens_file_may_come_later_where_there_is_another_kind_of_credential(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens.json")
    tokens = Tokens(path, may_come=True)
    assert tokens("guess") is None
    shown = add_token(path, "acme", "ann", may_read=True)
    assert tokens(shown) == Caller("acme", "ann", frozenset((READ,)))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match="no tokens file"):
        Tokens(str(tmp_path / "broken.json"), may_come=True)


def test_a_certificate_names_one_organisation_and_one_common_name() -> None:
    credentials = Credentials([])
    subject = ((("organizationName", "acme"),), (("commonName", "build-7"),))
    assert credentials.caller(None, {"subject": subject}) == Caller("acme", "build-7", frozenset((SHIP,)))
    for wrong in (subject[:1], subject[1:], (*subject, subject[0]), ((("organizationName", "a b"),), subject[1])):
        with pytest.raises(NotAllowed):
            credentials.caller(None, {"subject": wrong})
    for header in ("Basic abc", "Bearer", "Bearer ", "Bearer guess"):
        with pytest.raises(NotAllowed):
            credentials.caller(header, {"subject": subject})  # a bad token is not made good by a certificate
    with pytest.raises(NotAllowed):
        credentials.caller(None, None)


def test_a_machine_with_a_certificate_ships_over_tls_and_one_of_another_authority_does_not(
    one_store: str, tmp_path: Path
) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    server, client = ours.server_file("127.0.0.1"), ours.client_file("acme", "build-7")
    options = ("--tls-cert", str(server), "--tls-key", str(server), "--client-ca", str(ours.file))
    with collector(tmp_path / "collector", one_store, *options) as fleet:
        fleet.url = fleet.url.replace("http:", "https:")
        machine = Machine(tmp_path / "m1", fleet)
        machine.record(EventMaker(run_id(1), shim_id(1)).whole_run(2))
        command = [*machine.command()[:5], "--once", "--url", fleet.url]
        for certificate, trusted, code in (
            (theirs.client_file("acme", "build-7"), ours.file, 1),
            (client, theirs.file, 1),
            (client, ours.file, 0),
        ):
            shown = ["--client-cert", str(certificate), "--client-key", str(certificate), "--ca", str(trusted)]
            done = subprocess.run([*command, *shown], env=sub_environment(machine.home), capture_output=True, text=True)
            assert done.returncode == code, done.stderr
        fleet.certificate_authority = str(ours.file)
        assert [row["call_id"] for row in fleet.rows("query")] == [f"{shim_id(1)}-2", f"{shim_id(1)}-1"]
        report = fleet.rows("verify", run_id(1))[0]
        assert report["ok"] and report["events"] == 8

"""Who sends or asks: tenant and machine by the credential alone. Nothing of a body or another header is believed.

A bearer token is one of the tokens file (`tokens`) or, where an issuer is configured, a token signed by it
(`service_accounts`). Without a token, a client certificate that the connection was made with: organisation and common
name of its subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from subluminal.contracts.errors import SubluminalError

# Tenants stand in metrics and in keys of every table.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}")
SHIP, READ = "ship", "read"


class NotAllowed(SubluminalError):
    pass


class NotYet(SubluminalError):
    """Who it is may be known in a moment."""


class Caller(NamedTuple):
    tenant: str
    machine: str
    may: frozenset[str]


TokenReader = Callable[[str], Caller | None]


class Credentials:
    """`readers` are asked in turn about a bearer token."""

    def __init__(self, readers: list[TokenReader]) -> None:
        self._readers = readers

    def caller(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> Caller:
        """NotAllowed: nobody we know. NotYet: come again. Never waits for anybody."""
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise NotAllowed("Send `Authorization: Bearer TOKEN`, or a client certificate.")
            for reader in self._readers:
                caller = reader(token.strip())
                if caller is not None:
                    return _checked(caller)
            raise NotAllowed("This token is not known here, or no longer good.")
        if certificate:
            return _checked(_of_certificate(certificate))
        raise NotAllowed("A bearer token or a client certificate is needed.")


def _checked(caller: Caller) -> Caller:
    if not NAME.fullmatch(caller.tenant) or not NAME.fullmatch(caller.machine):
        raise NotAllowed("The credential names no tenant and machine that can be used.")
    return caller


def _of_certificate(certificate: Mapping[str, Any]) -> Caller:
    """As `ssl` tells it: ((("organizationName", "acme"),), (("commonName", "build-7"),))."""
    subject: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            subject.setdefault(name, []).append(value)
    tenants, machines = subject.get("organizationName", []), subject.get("commonName", [])
    if len(tenants) != 1 or len(machines) != 1:
        raise NotAllowed("The certificate must name one organisation (the tenant) and one common name (the machine).")
    return Caller(tenants[0], machines[0], frozenset((SHIP,)))

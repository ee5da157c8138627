"""§4.1: which secrets a server gets, and under which names. References only: no value ever passes through here."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from subluminal.contracts.terms import SecretSource


class SecretBinding(Struct, forbid_unknown_fields=True):
    # A name with `=` or NUL in it could set another variable, or end the environment.
    inject_as: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)")]
    secret_ref: Annotated[str, Meta(min_length=1)]
    source: SecretSource
    redact: bool = True
    required: bool = True  # additive: false starts the server without the secret


class ServerSecrets(Struct, forbid_unknown_fields=True):
    server_name: Annotated[str, Meta(min_length=1)]
    secret_bindings: list[SecretBinding]

"""How a program is told to ask for its model at our address, and where it would have asked.

for route in routes(command, environ, upstream):      the providers that it may ask, each behind a door of its own
    command = route.told(command, environ, "http://127.0.0.1:1234")
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import Protocol

from subluminal.contracts.errors import UsageError
from subluminal.producer.visitor import AGENT_ID_HEADER, IDENTITY_HEADERS, RUN_ID_HEADER

ANTHROPIC_URL = "https://api.anthropic.com"
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_VARIABLE = "ANTHROPIC_BASE_URL"
_OPENAI_VARIABLE = "OPENAI_BASE_URL"
_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
_VERSION = re.compile(r"v[0-9]+\Z")
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class Route(Protocol):
    upstream: str

    def told(self, command: list[str], environ: MutableMapping[str, str], base: str) -> list[str]:
        """The command as it is started; `environ` is its environment. `base` is our address, without a path."""

    def close(self) -> None:
        """The command has ended."""


class Anthropic:
    def __init__(self, environ: MutableMapping[str, str], upstream: str | None) -> None:
        self.upstream = upstream or environ.get(ANTHROPIC_VARIABLE) or ANTHROPIC_URL

    def told(self, command: list[str], environ: MutableMapping[str, str], base: str) -> list[str]:
        environ[ANTHROPIC_VARIABLE] = base
        said = [line for line in environ.get(_HEADERS_VARIABLE, "").splitlines() if not _is_ours(line)]
        for header, variable in ((RUN_ID_HEADER, "SUB_RUN_ID"), (AGENT_ID_HEADER, "SUB_AGENT_ID")):
            value = environ.get(variable, "")
            if value.isascii() and value.isprintable() and value:
                said.append(f"{header.decode().title()}: {value}")
        environ[_HEADERS_VARIABLE] = "\n".join(line for line in said if line)
        return command

    def close(self) -> None: ...


class OpenAi:
    """For programs that are built on the SDK."""

    def __init__(self, environ: MutableMapping[str, str], upstream: str | None) -> None:
        self.upstream = upstream or environ.get(_OPENAI_VARIABLE) or OPENAI_URL

    def told(self, command: list[str], environ: MutableMapping[str, str], base: str) -> list[str]:
        environ[_OPENAI_VARIABLE] = with_version(base, self.upstream)
        return command

    def close(self) -> None: ...


def _is_ours(line: str) -> bool:
    """Of a run around this one: two of a header are refused."""
    return line.partition(":")[0].strip().lower().encode() in IDENTITY_HEADERS


def routes(command: list[str], environ: MutableMapping[str, str], upstream: str | None) -> list[Route]:
    """Raises UsageError where the program would ask elsewhere whatever it is told."""
    program = os.path.basename(command[0])
    if program == "codex":
        from subluminal.runs.model_api.codex import Codex

        return [Codex(command, environ, upstream)]
    if program == "claude":
        from subluminal.runs.model_api.claude import Claude

        return [Claude(command, environ, upstream)]
    if upstream is not None:
        raise UsageError(
            "--model-api-upstream needs to know which API the command speaks, and it is neither claude nor codex",
            hint="Set ANTHROPIC_BASE_URL or OPENAI_BASE_URL instead: each is the address behind its own door.",
        )
    return [Anthropic(environ, None), OpenAi(environ, None)]


def with_version(base: str, upstream: str) -> str:
    """Our address with the version that the provider's has: clients of OpenAI put the rest of the path behind it."""
    last = upstream.rstrip("/").rpartition("/")[2]
    return f"{base}/{last}" if _VERSION.match(last) else base


def ask_directly(environ: MutableMapping[str, str]) -> None:
    """Our address is on this machine: no proxy of the network's may be asked for it."""
    if any(environ.get(variable) for variable in _PROXIES):
        for variable in ("no_proxy", "NO_PROXY"):
            known = environ.get(variable, "")
            environ[variable] = f"{known},127.0.0.1" if known else "127.0.0.1"

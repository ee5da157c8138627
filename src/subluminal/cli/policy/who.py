"""Who acts, for selectors: the options that say it, and what the environment says where they are silent."""

from __future__ import annotations

import os
from typing import Any

from subluminal.cli.options import Option, Values
from subluminal.contracts.canonical import parse
from subluminal.contracts.errors import CanonicalError, UsageError
from subluminal.contracts.identity import Identity
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.host.identity import discover

IDENTITY_OPTIONS = [
    Option("--agent-id/--agent", "agent_id", "Who calls, for selectors."),
    Option("--client", "client", "For selectors.", choices=CLIENTS, exact=True),
    Option("--env", "env", "For selectors.", choices=ENVS, exact=True),
    Option("--workload", "workload", 'For selectors, for example {"repo": "acme/web"}.', metavar="JSON"),
]


def given_identity(values: Values) -> dict[str, str | None]:
    return {option.name: values[option.name] for option in IDENTITY_OPTIONS}


def acting_here(agent_id: str | None, client: str | None, env: str | None, workload: str | None) -> Identity:
    """As a run that is started here; what an option says stands in place of the environment's word."""
    found = discover(dict(os.environ), "", client)
    return Identity(
        found.run_id,
        agent_id or found.agent_id,
        client or found.client,
        env or found.env,
        found.principal,
        _workload(workload) if workload else found.workload,
    )


def acting_as(agent_id: str | None, client: str | None, env: str | None, workload: str | None) -> Identity:
    """As the options say, and nobody in particular where they are silent."""
    known = _workload(workload) if workload else None
    return Identity("explain", agent_id or "unknown", client or "unknown", env or "unknown", None, known)


def _workload(text: str) -> Any:
    """Selectors compare text, so a number would never match and nobody would know why."""
    found = parse(json_object(text, "--workload"))
    for name, value in found.items():
        values = value.values() if name == "labels" and isinstance(value, dict) else [value]
        if not all(isinstance(each, str) for each in values):
            hint = """For example: --workload '{"repo": "acme/web", "labels": {"team": "core"}}'"""
            raise UsageError(f"--workload: {name} must be text", hint=hint)
    return found


def json_object(text: str, option: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    try:
        value = parse(raw)
    except CanonicalError as error:
        hint = f"""Quote it for the shell: {option} '{{"key": 1}}'"""
        raise UsageError(f"{option} is not one JSON object: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object", hint=f"""For example: {option} '{{"key": 1}}'""")
    return raw

"""What a fleet publishes, as the bytes that are signed: the policies of a tenant, and the stops that are active.

The policies of a tenant are one file, so that none of them can be taken from an older publication than the others. A
stop is no policy: it names what is forbidden, by whom and why, and the machine makes a `deny` of it. Whoever holds the
key for stops can therefore forbid, and lift what was forbidden in this way; there is no word for anything else, and a
member that is not known is refused.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from subluminal.contracts.errors import FleetError, PolicyError
from subluminal.contracts.vocabulary import BLOCK, FLEET_STOP
from subluminal.policy.compile.bundle import compile_bundle

# The tenant whose policies are in force on every machine of the fleet.
EVERYONE = "all"
TENANT = r"[a-z0-9][a-z0-9-]{0,62}"
STOP_ROLE = "stop"
STOPS_PATH = "stop/stops.json"
# Ten policies of the largest size; a machine compiles them all.
MAX_PUBLISHED_BYTES = 40 << 20
MAX_POLICIES = 64
MAX_STOPS_BYTES = 1 << 20
# Each is judged for every call.
MAX_STOPS = 64
MAX_REASON_CHARS = 300


class Published(msgspec.Struct, forbid_unknown_fields=True):
    """One policy as its author wrote it."""

    name: str
    source: str


class Policies(msgspec.Struct, forbid_unknown_fields=True):
    policies: list[Published]
    format: int = 1


class Stop(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is forbidden: calls that match all that is named; with nothing named, every call."""

    stop_id: str
    reason: str
    by: str
    at: str
    tool: str | None = None
    server: str | None = None
    agent: str | None = None

    @property
    def what(self) -> str:
        named = [f"{word} {name}" for word, name in self.named]
        return ", ".join(named) or "every call"

    @property
    def named(self) -> list[tuple[str, str]]:
        found = (("tool", self.tool), ("server", self.server), ("agent", self.agent))
        return [(word, name) for word, name in found if name is not None]


class Stops(msgspec.Struct, forbid_unknown_fields=True):
    stops: list[Stop]
    format: int = 1


def policies_path(tenant: str) -> str:
    return f"policy/{tenant}/policies.json"


def tenant_role(tenant: str) -> str:
    return f"tenant-{tenant}"


def checked_tenant(name: str) -> str:
    if not re.fullmatch(TENANT, name):
        hint = "Use small letters, digits and hyphens, at most 63 of them."
        raise FleetError(f"{name!r} is no name of a tenant.", hint=hint)
    return name


def policies_of(data: bytes, whose: str) -> Policies:
    packet: Policies = _decoded(data, Policies, f"What tenant {whose} publishes")
    if packet.format != 1 or len(packet.policies) > MAX_POLICIES:
        raise FleetError(f"What tenant {whose} publishes is of another format, or holds too many policies.")
    return packet


def read_policies(data: bytes, whose: str) -> list[dict[str, Any]]:
    """The compiled policies of a tenant, all or none."""
    return [_compiled(each, whose) for each in policies_of(data, whose).policies]


def _compiled(policy: Published, whose: str) -> dict[str, Any]:
    try:
        return compile_bundle(policy.source.encode(), policy.name)
    except PolicyError as error:
        raise FleetError(f"Policy {policy.name!r} of tenant {whose} does not compile: {error}") from None


def read_stops(data: bytes) -> list[Stop]:
    packet: Stops = _decoded(data, Stops, "The list of stops")
    if packet.format != 1 or len(packet.stops) > MAX_STOPS:
        raise FleetError("The list of stops is of another format, or holds too many.")
    return packet.stops


def _decoded(data: bytes, kind: type[Any], what: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FleetError(f"{what} cannot be read: {error}.") from None


def stop_snapshot(stop: Stop) -> dict[str, Any]:
    """The deny that a stop is on a machine."""
    match: dict[str, Any] = {}
    if stop.tool is not None:
        match["tool_name"] = {"glob": [stop.tool]}
    if stop.server is not None:
        match["server_name"] = {"glob": [stop.server]}
    told = f"{stop.by} stopped {stop.what} for the whole fleet at {stop.at}: {stop.reason}"
    rule = {
        "rule_id": stop.stop_id,
        "kind": "deny",
        "match": match,
        "severity": "critical",
        "effect": {"action": BLOCK, "reason_code": FLEET_STOP, "message": told[: MAX_REASON_CHARS + 200]},
    }
    bundle = {
        "policy_id": "fleet-stop",
        "version": stop.stop_id,
        "mode": "guardrails",
        "defaults": {"decision_on_error": BLOCK},
        "selectors": {} if stop.agent is None else {"agent_id": [stop.agent]},
        "rules": [rule],
    }
    return compile_bundle(msgspec.json.encode(bundle), "stop.json")

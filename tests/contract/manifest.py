"""Every contract-test id, its priority and what it demands, in one place.

P0 must hold for a release. An id without a test stands in `NOT_YET` with the reason, for everyone to see; that list
only shrinks: the moment a test carries the id, `test_manifest.py` asks for its line to be removed.
"""

from __future__ import annotations

from typing import NamedTuple


class Requirement(NamedTuple):
    priority: str
    text: str


P0, P1 = "P0", "P1"

REQUIREMENTS: dict[str, Requirement] = {
    "EVT-001": Requirement(P0, "Each event is exactly one line of JSON."),
    "EVT-002": Requirement(P0, "Each event carries the whole envelope: version, type, time, identity and source."),
    "EVT-003": Requirement(
        P0, "One call gives run_start, tool_call_start, decision, tool_call_end, run_end, in order."
    ),
    "EVT-004": Requirement(P0, "All events of a run carry the run_id given by the wrapper."),
    "EVT-005": Requirement(P0, "call_id is unique in a run; seq counts from 1 without a gap or a step back."),
    "EVT-006": Requirement(P0, "Server and tool names appear exactly as configured and as the server spells them."),
    "EVT-007": Requirement(P0, "latency_ms is the time the tool really took."),
    "EVT-008": Requirement(P0, "A failed call has status ERROR, an error class of the contract and no stack trace."),
    "EVT-009": Requirement(P0, "run_end counts calls, refusals and errors as they happened, with the duration."),
    "HASH-001": Requirement(P0, "Arguments that differ only in key order have the same args_hash."),
    "HASH-002": Requirement(P0, "Fixed arguments have the golden args_hash, every time."),
    "BUF-001": Requirement(P0, "A message above the inspection limit is forwarded; its preview is marked truncated."),
    "BUF-002": Requirement(P0, "Fifty large calls at once: memory stays bounded, all complete, all are recorded."),
    "BUF-003": Requirement(P0, "A large message reaches the server whole and unchanged."),
    "BUF-004": Requirement(P1, "A truncated message carries args_stream_hash: SHA-256 of its raw bytes."),
    "POL-001": Requirement(P0, "Observe mode never refuses, and still names its policy in run_start."),
    "POL-002": Requirement(P0, "A deny above an allow decides, with its rule_id and reason_code."),
    "POL-003": Requirement(P0, "A budget allows its limit and refuses the next call as on_exceed says."),
    "POL-004": Requirement(P0, "A token bucket throttles when it is empty and says how long to wait."),
    "POL-005": Requirement(P0, "A breaker trips when the same call repeats up to its threshold."),
    "POL-006": Requirement(P0, "A duplicate inside the dedupe window is refused and explained."),
    "POL-007": Requirement(P1, "A tag rule gives a tool its risk class, which later rules match."),
    "ERR-001": Requirement(P0, "BLOCK answers with code -32081 and the structured data."),
    "ERR-002": Requirement(P0, "THROTTLE answers with code -32082 and the backoff_ms of the decision."),
    "ERR-003": Requirement(P0, "REJECT_WITH_HINT answers with code -32083 and a hint object."),
    "ERR-004": Requirement(P0, "No secret value in any refusal or preview."),
    "SEC-001": Requirement(P0, "The server gets the injected secret; agent and events never see it."),
    "SEC-002": Requirement(P0, "secret_injection events carry metadata only."),
    "PROC-001": Requirement(P0, "SIGINT ends shim and server; nothing is left behind."),
    "PROC-002": Requirement(P0, "EOF on stdin ends shim and server."),
    "PROC-003": Requirement(P1, "A server that dies ends its calls with ERROR and the run with FAILED; nothing hangs."),
    "ID-001": Requirement(P0, "Identity given in the environment is on every event."),
    "ID-002": Requirement(P1, "Consumers live with missing principal and workload."),
    "LED-001": Requirement(P0, "Ten thousand events are ingested whole, counted right and quick to query."),
    "LED-002": Requirement(P0, "Under back-pressure previews may go, decisions never do, and the shim does not block."),
    "IMP-001": Requirement(P0, "Import then restore gives the client's file back byte for byte; names are kept."),
    "IMP-002": Requirement(P0, "From a fresh install to the first recorded call takes less than five minutes."),
    "ADAPT-001": Requirement(P0, "An adapter gives the core the call's fields and nothing of its protocol."),
    "ADAPT-002": Requirement(P0, "The same call through two adapters gives the same decision, events and args_hash."),
    "ADAPT-003": Requirement(P1, "A refusal reaches the client as a valid error of its own protocol."),
}

NOT_YET: dict[str, str] = {}

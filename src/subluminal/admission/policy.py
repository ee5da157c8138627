"""A compiled policy as a registry: the admission face of the gate.

`registry_from_policy` gives what can stand wherever a `RuleRegistry` can. Its version hash is `sha256:` + policy_hash
(of several policies, the hash of their hashes), so a caller's `rule_version` pins a policy. Decisions, state and events
are the gate's; this module only translates.

The gate records the start and the decision of each call. It learns how an admitted call ended only if its `next` is
watched: `stage(request, registry.watched(next))`. Otherwise the record says that the outcome is not known.

Trap: a call is judged, and the watched `next` runs, in one go on one thread. The slot between them is per thread.
"""

from __future__ import annotations

import threading
from time import monotonic_ns

from subluminal.admission.denial import SubluminalDecision
from subluminal.admission.request import AdmissionRequest, AdmissionResult
from subluminal.admission.snapshot import ReadOnlyState
from subluminal.contracts.canonical import canonical_bytes
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.toolcall import ToolCall
from subluminal.producer.runtime import TRANSPORT, Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Generator
    from typing import Any

    from subluminal.core.gate.record import CallRecord

UNWATCHED = "its outcome was not watched"


class PolicyRegistry:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._slot = threading.local()

    @property
    def version_hash(self) -> str:
        hashes = self._runtime.policy_hashes
        if len(hashes) == 1:
            return "sha256:" + hashes[0]
        return "sha256:" + sha256_hex("\n".join(hashes).encode())

    def compute_version_hash(self) -> str:
        return self.version_hash

    def admit(self, request: AdmissionRequest) -> AdmissionResult:
        self._settle_unwatched()
        version = self.version_hash
        state = request.rep_snapshot
        call = _call(request, self._runtime.server_name)
        record, reason = self._runtime.ask(call, _reason, _time(state, "wall_ms"), _time(state, "mono_ms"))
        if reason is None:
            self._slot.admitted = record
        return AdmissionResult(reason is None, version, reason, record=record)

    def watched(self, next: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """`next`, which tells the record how the call ended. What it gives or raises passes unchanged."""

        def run() -> Awaitable[Any]:
            record = self._slot.__dict__.pop("admitted", None)
            started_ns = monotonic_ns()
            try:
                awaitable = next()
            except Exception as error:
                self._ended(record, started_ns, error)
                raise
            return _Watched(self, awaitable, record, started_ns)

        return run

    def close(self) -> None:
        self._settle_unwatched()
        self._runtime.close()

    def _settle_unwatched(self) -> None:
        record = self._slot.__dict__.pop("admitted", None)
        if record is not None:
            self._runtime.settle(record, "CANCELLED", latency_ms=0, error={"class": "unknown", "message": UNWATCHED})

    def _ended(self, record: CallRecord | None, started_ns: int, error: BaseException | None) -> None:
        if record is None:
            return
        latency_ms = (monotonic_ns() - started_ns) // 1_000_000
        if error is None:
            self._runtime.settle(record, "OK", latency_ms=latency_ms)
        elif isinstance(error, Exception):
            fault = {"class": "upstream_error", "message": str(error) or type(error).__name__, "retryable": False}
            self._runtime.settle(record, "ERROR", latency_ms=latency_ms, error=fault)
        else:
            fault = {"class": "unknown", "message": "cancelled"}
            self._runtime.settle(record, "CANCELLED", latency_ms=latency_ms, error=fault)


class _Watched:
    """An awaitable that passes everything through and notes the end."""

    __slots__ = ("_awaitable", "_record", "_registry", "_started_ns")

    def __init__(
        self, registry: PolicyRegistry, awaitable: Awaitable[Any], record: CallRecord | None, started_ns: int
    ) -> None:
        self._registry = registry
        self._awaitable = awaitable
        self._record = record
        self._started_ns = started_ns

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            result = yield from self._awaitable.__await__()
        except BaseException as error:
            self._registry._ended(self._record, self._started_ns, error)
            raise
        self._registry._ended(self._record, self._started_ns, None)
        return result


def registry_from_policy(
    policy: str | os.PathLike[str] | dict[str, Any],
    *,
    server_name: str = "in-process",
    events: str | None = None,
    client: str | None = None,
) -> PolicyRegistry:
    """From a policy file (reloaded when it changes) or a compiled snapshot. `events` as for `sub shim --events`."""
    return PolicyRegistry(Runtime(policy, server_name=server_name, events=events, client=client))


def _reason(code: int, message: str, data: dict[str, Any]) -> tuple[SubluminalDecision, int]:
    text = canonical_bytes(data).decode()
    told = data["subluminal"]
    return SubluminalDecision(told["action"], told["reason_code"], told["rule_id"], code, message, text), len(text)


def _call(request: AdmissionRequest, server_name: str) -> ToolCall:
    state = request.rep_snapshot
    args = state.binding("args")
    size = state.binding("bytes_in")
    name = state.binding("server_name")
    server = name if isinstance(name, str) else server_name
    raw = args.encode() if isinstance(args, str) else args if isinstance(args, bytes) else None
    return ToolCall(server, request.tool, raw, size if isinstance(size, int) else 0, TRANSPORT)


def _time(state: ReadOnlyState, name: str) -> int | None:
    value = state.binding(name)
    return value if isinstance(value, int) else None

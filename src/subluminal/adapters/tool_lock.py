"""The tool-lock adapter: admission as the first stage of a host's middleware chain.

    stage = create_tool_lock_adapter(registry, ToolLockAdapterOptions(on_deny=...))
    stage(request, next)        on admit: what next() gave, untouched; on deny: an awaitable that raises

The stage judges at once, when it is called, and needs no event loop. On a denial it calls `on_event`, then `on_deny`,
and then returns an awaitable that raises `ToolAdmissionDeniedError` each time it is waited for; `next` is not called.
What listeners raise is swallowed. The adapter keeps nothing but a counter of denials, and records nothing: a registry
made from a policy does that in the core.

Rules for this file, checked by a test: no coroutine keywords, no clock, no chance, no floating point, no I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Literal, NoReturn

from subluminal.admission.denial import DenialReason, RuleRejected, render_denial_reason
from subluminal.admission.evaluate import evaluate_admission
from subluminal.admission.request import AdmissionMode, AdmissionRequest, Registry
from subluminal.admission.snapshot import ReadOnlyState

__all__ = [
    "AdmissionAuditEvent",
    "AdmissionEventListener",
    "MiddlewareRequest",
    "MiddlewareStage",
    "ToolAdmissionDeniedError",
    "ToolLockAdapterOptions",
    "create_tool_lock_adapter",
]

DEFAULT_MODE: AdmissionMode = "normal"
ADAPTER = "<adapter>"
MAX_SURPRISE_CHARS = 200


@dataclass(frozen=True, slots=True)
class MiddlewareRequest:
    """What a stage sees of a call. Without `rule_version` the registry's own is meant."""

    caller: str
    tool: str
    args: Any
    rep_snapshot: ReadOnlyState
    mode: AdmissionMode | None = None
    rule_version: str | None = None


MiddlewareStage = Callable[[MiddlewareRequest, Callable[[], Awaitable[Any]]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class AdmissionAuditEvent:
    """One denial. `at` counts the denials of this adapter from 1; it is no time of day."""

    type: Literal["admission_deny"] = field(default="admission_deny", init=False)
    caller: str
    tool: str
    reason: DenialReason
    at: int


AdmissionEventListener = Callable[[AdmissionAuditEvent], None]


class ToolAdmissionDeniedError(Exception):
    """A call was not admitted. `http_status` is for hosts that translate; MCP itself has no use for it."""

    name: ClassVar[str] = "ToolAdmissionDeniedError"
    http_status: ClassVar[Literal[403]] = 403

    def __init__(self, reason: DenialReason, caller: str, tool: str) -> None:
        super().__init__(render_denial_reason(reason))
        self.reason = reason
        self.caller = caller
        self.tool = tool

    def __reduce__(self) -> tuple[type[ToolAdmissionDeniedError], tuple[DenialReason, str, str]]:
        return type(self), (self.reason, self.caller, self.tool)


@dataclass(frozen=True, slots=True)
class ToolLockAdapterOptions:
    """Both listeners are called exactly once per denial, `on_event` first, and never when a call is admitted."""

    on_deny: Callable[[DenialReason], None] | None = None
    on_event: AdmissionEventListener | None = None
    default_mode: AdmissionMode | None = None


def create_tool_lock_adapter(registry: Registry, options: ToolLockAdapterOptions | None = None) -> MiddlewareStage:
    """A stage bound to this registry and these options. Making one has no effect on anything."""
    chosen = ToolLockAdapterOptions() if options is None else options
    # One step of this counter cannot be interrupted, so hosts with threads see no number twice.
    next_at = count(1).__next__

    def stage(req: MiddlewareRequest, next: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        try:
            result = evaluate_admission(_admission_request(req, registry, chosen), registry)
            admitted, reason = result.admitted is True, result.reason
        except Exception as surprise:
            admitted, reason = False, RuleRejected(ADAPTER, "evaluator_threw:" + _words(surprise))
        if admitted:
            return next()
        if reason is None:
            reason = RuleRejected(ADAPTER, "denied_without_reason")
        event = AdmissionAuditEvent(req.caller, req.tool, reason, next_at())
        _tell(chosen.on_event, event)
        _tell(chosen.on_deny, reason)
        return _Denied(ToolAdmissionDeniedError(reason, req.caller, req.tool))

    return stage


def _admission_request(req: MiddlewareRequest, registry: Registry, options: ToolLockAdapterOptions) -> AdmissionRequest:
    mode = req.mode
    if mode is None:
        mode = DEFAULT_MODE if options.default_mode is None else options.default_mode
    rule_version = req.rule_version
    if rule_version is None:
        rule_version = registry.compute_version_hash()
    return AdmissionRequest(req.caller, req.tool, mode, req.rep_snapshot, rule_version)


def _tell(listener: Callable[[Any], None] | None, what: Any) -> None:
    if listener is None:
        return
    try:
        listener(what)
    except Exception:  # a listener cannot undo a denial, nor keep the next one from hearing of it
        return


def _words(surprise: Exception) -> str:
    """Its text, bounded; of an exception that cannot even be printed, its type."""
    try:
        return str(surprise)[:MAX_SURPRISE_CHARS]
    except Exception:
        return type(surprise).__name__


class _Denied(Coroutine[Any, Any, NoReturn]):
    """Raises whenever it is waited for, any number of times, on any loop or none.

    It is a Coroutine by type, so that hosts can hand it to a task; a Future would bind to a loop, and a real coroutine
    would complain if nobody waited for it.
    """

    __slots__ = ("_error",)

    def __init__(self, error: ToolAdmissionDeniedError) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, None, NoReturn]:
        raise self._error.with_traceback(None)

    def send(self, value: Any) -> NoReturn:
        raise self._error.with_traceback(None)

    def throw(self, *_: Any) -> NoReturn:
        """A task that is cancelled before its first step throws here: what was thrown passes."""
        raised = _[1] if len(_) > 1 and _[1] is not None else _[0]
        raise raised

    def close(self) -> None:
        return None

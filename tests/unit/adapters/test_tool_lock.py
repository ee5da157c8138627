"""The tool-lock adapter: families F1-F15, invariants I1-I16, acceptance criteria AC1-AC10 of its contract."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import pickle
import subprocess
import sys
import threading
import tokenize
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from subluminal.adapters import tool_lock
from subluminal.adapters.tool_lock import (
    AdmissionAuditEvent,
    MiddlewareRequest,
    ToolAdmissionDeniedError,
    ToolLockAdapterOptions,
    create_tool_lock_adapter,
)
from subluminal.admission import (
    AdmissionRequest,
    AdmissionResult,
    DenialReason,
    ReadOnlyState,
    RuleRegistry,
    RuleRejected,
    RuleVersionMismatch,
    inspect_function_forbidden,
    render_denial_reason,
)

RULES: dict[str, Any] = {
    "rules": [
        {
            "name": "trusted-writers",
            "category": "admission",
            "match": {"tool": "write"},
            "guards": [{"when": ["ge", ["reputation", ["caller"]], 500], "reason": "reputation_too_low"}],
        },
        {"name": "anyone-reads", "category": "admission", "match": {"tool": "read"}},
        {"name": "admins-reset", "category": "admission", "match": {"tool": "reset", "mode": "admin"}},
    ]
}
SOURCE = Path(tool_lock.__file__).read_text(encoding="utf-8")


class Next:
    """The rest of the chain: counts its calls and gives what it was made with."""

    def __init__(self, outcome: Any = "done") -> None:
        self.calls = 0
        self.outcome = outcome
        self.given: list[Awaitable[Any]] = []

    def __call__(self) -> Awaitable[Any]:
        self.calls += 1

        async def rest() -> Any:
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome

        self.given.append(rest())
        return self.given[-1]


class CountingRegistry:
    """A real registry that counts what is asked of it."""

    def __init__(self, document: dict[str, Any] = RULES) -> None:
        self.inner = RuleRegistry.load(document)
        self.hashes = 0
        self.judgements = 0

    @property
    def version_hash(self) -> str:
        return self.inner.version_hash

    def compute_version_hash(self) -> str:
        self.hashes += 1
        return self.inner.compute_version_hash()

    def admit(self, request: AdmissionRequest) -> AdmissionResult:
        self.judgements += 1
        return self.inner.admit(request)


def request(tool: str, **more: Any) -> MiddlewareRequest:
    return MiddlewareRequest("ada", tool, {"secret": "hunter2"}, more.pop("rep_snapshot", ReadOnlyState()), **more)


def adapter(**options: Any) -> Callable[..., Awaitable[Any]]:
    return create_tool_lock_adapter(RuleRegistry.load(RULES), ToolLockAdapterOptions(**options))


def denied(awaitable: Awaitable[Any]) -> ToolAdmissionDeniedError:
    with pytest.raises(ToolAdmissionDeniedError) as caught:
        asyncio.run(awaitable)  # type: ignore[arg-type]  # a Coroutine by type, see F13
    return caught.value


def test_f1_ac1_ac2_everything_the_contract_names_is_exported_and_shaped_so() -> None:
    for name in tool_lock.__all__:
        assert hasattr(tool_lock, name)
    assert callable(create_tool_lock_adapter(RuleRegistry.load(RULES)))
    fields = {field.name for field in dataclasses.fields(MiddlewareRequest)}
    assert fields == {"caller", "tool", "args", "mode", "rep_snapshot", "rule_version"}
    fields = {field.name for field in dataclasses.fields(ToolLockAdapterOptions)}
    assert fields == {"on_deny", "on_event", "default_mode"}
    assert [field.name for field in dataclasses.fields(AdmissionAuditEvent)] == [
        "type",
        "caller",
        "tool",
        "reason",
        "at",
    ]
    minimal = MiddlewareRequest(caller="ada", tool="read", args=None, rep_snapshot=ReadOnlyState())
    assert (minimal.mode, minimal.rule_version) == (None, None)


def test_f1_i2_ac8_ac10_importing_and_making_an_adapter_touches_nothing() -> None:
    """No host is imported or changed, nothing is written, no thread is started."""
    program = (
        "import sys, threading, os\n"
        "from subluminal.adapters.tool_lock import create_tool_lock_adapter\n"
        "from subluminal.admission import RuleRegistry\n"
        "create_tool_lock_adapter(RuleRegistry.load({'rules': []}))\n"
        "assert not {'mcp', 'fastmcp', 'asyncio'} & set(sys.modules), 'a host was imported'\n"
        "assert threading.active_count() == 1\n"
        "assert not os.path.exists(os.environ['SUB_HOME'])\n"
    )
    env = {"SUB_HOME": "/nonexistent/sub", "HOME": "/nonexistent", "PATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=60)


def test_f2_i3_i8_ac3_ac7_an_admitted_call_is_what_next_gave_untouched() -> None:
    heard: list[Any] = []
    stage = adapter(on_deny=heard.append, on_event=heard.append)
    follow = Next({"rows": 3})
    given = stage(request("read"), follow)
    assert given is follow.given[0], "not wrapped, not awaited: the very same object"
    assert asyncio.run(given) == {"rows": 3}  # type: ignore[arg-type]
    assert follow.calls == 1
    assert heard == []


def test_f3_i4_ac4_a_denied_call_never_reaches_the_rest_of_the_chain() -> None:
    follow = Next()
    denied(adapter()(request("write"), follow))
    assert follow.calls == 0


def test_f4_i6_ac7_on_deny_hears_each_denial_once_and_no_admission() -> None:
    heard: list[DenialReason] = []
    stage = adapter(on_deny=heard.append)
    first = denied(stage(request("write"), Next()))
    asyncio.run(stage(request("read"), Next()))  # type: ignore[arg-type]
    second = denied(stage(request("unknown"), Next()))
    assert [id(reason) for reason in heard] == [id(first.reason), id(second.reason)]


def test_f5_i5_i7_ac6_on_event_comes_first_with_a_frozen_event() -> None:
    journal: list[tuple[str, Any]] = []
    stage = adapter(
        on_event=lambda event: journal.append(("event", event)), on_deny=lambda reason: journal.append(("deny", reason))
    )
    awaitable = stage(request("write"), Next())
    assert [word for word, _ in journal] == ["event", "deny"], "both before anyone waits for the rejection"
    error = denied(awaitable)
    event = journal[0][1]
    assert (event.type, event.caller, event.tool, event.at) == ("admission_deny", "ada", "write", 1)
    assert event.reason is journal[1][1] is error.reason
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)
    assert len(journal) == 2


def test_f6_i9_ac5_the_error_carries_the_reason_itself() -> None:
    reason = RuleRejected("r", "because")
    error = ToolAdmissionDeniedError(reason, "ada", "write")
    assert isinstance(error, Exception)
    assert error.reason is reason
    assert (error.name, error.caller, error.tool, error.http_status) == (
        "ToolAdmissionDeniedError",
        "ada",
        "write",
        403,
    )
    assert str(error) == render_denial_reason(reason) == "rule_rejected: rule_name=r rule_reason=because"
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.reason, copied.caller, copied.tool, str(copied)) == (reason, "ada", "write", str(error))


def test_f6_no_argument_and_no_caller_is_in_the_message() -> None:
    error = denied(adapter()(request("write"), Next()))
    assert "hunter2" not in str(error)
    assert "ada" not in str(error)


def test_f7_a_stale_rule_version_is_a_typed_mismatch() -> None:
    registry = RuleRegistry.load(RULES)
    stale = RuleRegistry.load({"rules": []}).version_hash
    follow = Next()
    error = denied(create_tool_lock_adapter(registry)(request("read", rule_version=stale), follow))
    assert error.reason == RuleVersionMismatch(expected=registry.version_hash, actual=stale)
    assert follow.calls == 0
    given = create_tool_lock_adapter(registry)(request("read", rule_version=registry.version_hash), follow)
    assert asyncio.run(given) == "done"  # type: ignore[arg-type]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize("fault", [ValueError("boom"), Unprintable(), RecursionError("deep"), AssertionError()])
def test_f8_i16_a_registry_that_throws_is_a_clean_denial(fault: Exception) -> None:
    class Broken:
        def compute_version_hash(self) -> str:
            raise fault

    heard: list[Any] = []
    options = ToolLockAdapterOptions(on_event=heard.append, on_deny=heard.append)
    follow = Next()
    error = denied(create_tool_lock_adapter(Broken(), options)(request("read"), follow))  # type: ignore[arg-type]
    assert isinstance(error.reason, RuleRejected)
    assert error.reason.rule_name == "<adapter>"
    assert error.reason.rule_reason.startswith("evaluator_threw:")
    assert follow.calls == 0
    assert len(heard) == 2


@pytest.mark.parametrize("result", [None, 7, "admitted", type("Odd", (), {"admitted": "yes", "reason": None})()])
def test_f8_i16_an_evaluator_that_answers_nonsense_denies(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    monkeypatch.setattr(tool_lock, "evaluate_admission", lambda request, registry: result)
    follow = Next()
    error = denied(adapter()(request("read"), follow))
    assert isinstance(error.reason, RuleRejected)
    assert follow.calls == 0


def test_f8_i16_an_evaluator_that_throws_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: AdmissionRequest, registry: Any) -> AdmissionResult:
        raise KeyError("surprise")

    monkeypatch.setattr(tool_lock, "evaluate_admission", broken)
    error = denied(adapter()(request("read"), Next()))
    assert error.reason == RuleRejected("<adapter>", "evaluator_threw:'surprise'")


def test_f8_interrupts_and_cancellation_are_not_denials(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in (KeyboardInterrupt, asyncio.CancelledError, SystemExit):

        def interrupted(request: Any, registry: Any, signal: type[BaseException] = signal) -> AdmissionResult:
            raise signal

        monkeypatch.setattr(tool_lock, "evaluate_admission", interrupted)
        with pytest.raises(signal):
            adapter()(request("read"), Next())


def test_f9_i13_ac8_ac9_the_determinism_scanner_finds_nothing() -> None:
    assert inspect_function_forbidden(create_tool_lock_adapter) == []
    assert inspect_function_forbidden(adapter()) == []


def test_f9_i11_i12_the_source_has_no_coroutine_keyword_no_clock_no_chance_no_float() -> None:
    words, numbers = set(), []
    for token in tokenize.generate_tokens(io.StringIO(SOURCE).readline):
        if token.type == tokenize.NAME:
            words.add(token.string)
        elif token.type == tokenize.NUMBER:
            numbers.append(token.string)
    forbidden = {"async", "await", "time", "datetime", "random", "secrets", "uuid", "math", "asyncio", "float", "open"}
    assert not words & (forbidden | {"threading", "os", "socket", "hash", "id", "complex", "Decimal"})
    assert all(number.isdigit() for number in numbers), numbers
    assert "/" not in {token.string for token in tokenize.generate_tokens(io.StringIO(SOURCE).readline)}


def test_f10_i10_at_counts_the_denials_of_this_adapter_from_one() -> None:
    events: list[AdmissionAuditEvent] = []
    stage = adapter(on_event=events.append)
    for _ in range(5):
        denied(stage(request("write"), Next()))
        asyncio.run(stage(request("read"), Next()))  # type: ignore[arg-type]
    assert [event.at for event in events] == [1, 2, 3, 4, 5]


def test_f10_i10_at_never_repeats_with_threads() -> None:
    seen: list[int] = []
    stage = adapter(on_event=lambda event: seen.append(event.at))

    def deny() -> None:
        for _ in range(200):
            stage(request("write"), Next())

    threads = [threading.Thread(target=deny) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 1601))


@pytest.mark.parametrize(
    ("mode", "default", "admitted"),
    [
        (None, None, False),
        (None, "admin", True),
        ("normal", "admin", False),
        ("admin", "normal", True),
        ("readonly", None, False),
    ],
)
def test_f11_the_mode_is_the_requests_else_the_options_else_normal(mode: Any, default: Any, admitted: bool) -> None:
    follow = Next()
    given = adapter(default_mode=default)(request("reset", mode=mode), follow)
    if admitted:
        asyncio.run(given)  # type: ignore[arg-type]
    else:
        assert denied(given).reason.mode == (mode or default or "normal")  # type: ignore[attr-defined]
    assert follow.calls == int(admitted)


def test_f12_i3_ac3_what_next_raises_passes_unchanged() -> None:
    failure = LookupError("no rows")
    with pytest.raises(LookupError) as caught:
        asyncio.run(adapter()(request("read"), Next(failure)))  # type: ignore[arg-type]
    assert caught.value is failure

    def broken() -> Awaitable[Any]:
        raise failure

    with pytest.raises(LookupError) as caught:
        adapter()(request("read"), broken)
    assert caught.value is failure


def test_f13_a_denial_can_be_waited_for_in_every_way() -> None:
    stage = adapter()
    rejection = stage(request("write"), Next())

    async def every_way() -> None:
        for _ in range(2):
            with pytest.raises(ToolAdmissionDeniedError):
                await rejection
        with pytest.raises(ToolAdmissionDeniedError):
            await asyncio.ensure_future(rejection)
        with pytest.raises(ToolAdmissionDeniedError):
            await asyncio.wait_for(rejection, 5)
        with pytest.raises(ToolAdmissionDeniedError):
            await asyncio.create_task(rejection)  # type: ignore[arg-type]
        results = await asyncio.gather(rejection, stage(request("write"), Next()), return_exceptions=True)
        assert [type(result) for result in results] == [ToolAdmissionDeniedError] * 2
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        task = asyncio.create_task(rejection)  # type: ignore[arg-type]
        task.cancel()
        with pytest.raises((asyncio.CancelledError, ToolAdmissionDeniedError)):
            await task

    for _ in range(2):
        asyncio.run(every_way())
    asyncio.run(every_way(), debug=True)


def test_f13_a_denial_needs_no_loop_and_is_not_missed_when_dropped() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rejection: Any = adapter()(request("write"), Next())
        with pytest.raises(ToolAdmissionDeniedError):
            rejection.send(None)
        with pytest.raises(GeneratorExit):
            rejection.throw(GeneratorExit())
        with pytest.raises(KeyError):
            rejection.throw(KeyError, KeyError("k"), None)
        rejection.close()
        del rejection


def test_f13_the_stage_is_a_plain_function_that_judges_when_it_is_called() -> None:
    heard: list[Any] = []
    stage = adapter(on_deny=heard.append)
    assert not asyncio.iscoroutinefunction(stage)
    rejection = stage(request("write"), Next())
    assert len(heard) == 1
    denied(rejection)
    assert len(heard) == 1, "waiting for it does not judge again"


def test_f14_ac8_two_adapters_count_on_their_own() -> None:
    one: list[int] = []
    two: list[int] = []
    registry = RuleRegistry.load(RULES)
    first = create_tool_lock_adapter(registry, ToolLockAdapterOptions(on_event=lambda event: one.append(event.at)))
    second = create_tool_lock_adapter(registry, ToolLockAdapterOptions(on_event=lambda event: two.append(event.at)))
    for stage in (first, first, second, first):
        denied(stage(request("write"), Next()))
    assert (one, two) == ([1, 2, 3], [1])


def test_f15_i7_a_listener_that_throws_stops_nothing() -> None:
    journal: list[str] = []

    def on_event(event: AdmissionAuditEvent) -> None:
        journal.append("event")
        raise RuntimeError("observer")

    def on_deny(reason: DenialReason) -> None:
        journal.append("deny")
        raise Unprintable

    follow = Next()
    denied(adapter(on_event=on_event, on_deny=on_deny)(request("write"), follow))
    assert journal == ["event", "deny"]
    assert follow.calls == 0


def test_i14_i15_one_judgement_per_call_and_at_most_one_hash() -> None:
    registry = CountingRegistry()
    stage = create_tool_lock_adapter(registry)
    asyncio.run(stage(request("read"), Next()))  # type: ignore[arg-type]
    assert (registry.judgements, registry.hashes) == (1, 1)
    denied(stage(request("write"), Next()))
    assert (registry.judgements, registry.hashes) == (2, 2)
    asyncio.run(stage(request("read", rule_version=registry.version_hash), Next()))  # type: ignore[arg-type]
    assert (registry.judgements, registry.hashes) == (3, 2), "a caller that names its version saves the hash"


def test_i15_an_empty_rule_version_is_a_claim_and_not_an_absence() -> None:
    registry = CountingRegistry()
    error = denied(create_tool_lock_adapter(registry)(request("read", rule_version=""), Next()))
    assert isinstance(error.reason, RuleVersionMismatch)
    assert registry.hashes == 0


def test_a_registry_whose_hash_is_a_counter_is_found_out() -> None:
    class Counter(CountingRegistry):
        def compute_version_hash(self) -> str:
            self.hashes += 1
            return f"sha256:{self.hashes:064}"

    error = denied(create_tool_lock_adapter(Counter())(request("read"), Next()))
    assert isinstance(error.reason, RuleVersionMismatch)

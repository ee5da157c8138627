"""One run at the model API: its calls from the moment they are let through until their results come back.

A call ends when a request brings its result; the history repeats earlier ones, which are known by then. A client that
never tells how a call ended leaves it open: it ends as CANCELLED after a bound, or with the run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from subluminal.adapters.listening.in_turn import InTurn
from subluminal.adapters.messages_api.calls import CallReading
from subluminal.contracts.canonical import read_args
from subluminal.contracts.decision import MAX_MESSAGE_CHARS
from subluminal.contracts.digest import blake2b
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.tool_use import MAX_ID_CHARS
from subluminal.contracts.vocabulary import INTERFACE_VERSION, TERMINATE_RUN
from subluminal.mcp.faults import fault
from subluminal.producer.asking import ask, settle

if TYPE_CHECKING:
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.gate.record import CallRecord
    from subluminal.host.config import Config
    from subluminal.model.words import Api, Emitted, Observed, Offered, Request, Usage
    from subluminal.producer.producer import Producer

# Calls whose result nobody has told: the oldest are given up first, and each after so long.
MAX_OPEN = 4_096
OPEN_NS = 3_600_000_000_000
# Definitions of tools that were judged in this run.
MAX_OFFERED = 1_024
# Of one definition: tokens and headers of a connector.
MAX_SECRETS = 16
NOT_TOLD = "the client did not say how the call ended"


class _Open(Struct, eq=False, gc=False):
    record: CallRecord
    since_ns: int


class Desk(InTurn):
    """`under_way`: requests that are not answered yet; their run must not end before. `learn` masks what it is told."""

    def __init__(self, producer: Producer, config: Config, directory: str | None, learn: Callable[..., None]) -> None:
        super().__init__()
        self.config = config
        self.under_way = 0
        self._directory = directory
        self._learn = learn
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._offered: OrderedDict[bytes, bool] = OrderedDict()  # a definition's digest: whether it was refused
        self._judged_by: object = None  # the policies that decided about them
        self.take_up(producer)

    def take_up(self, producer: Producer) -> None:
        """Whatever is recorded from now on is recorded there. Nothing is open: else the run would not have ended."""
        self.producer = producer
        self._reading = CallReading(producer.gate.identity.run_id, self.config, self._directory)

    @property
    def calls_open(self) -> int:
        return len(self._open)

    @property
    def is_busy(self) -> bool:
        return bool(self.under_way or self.waits or self._open)

    # -- a request ------------------------------------------------------------------------------------------------

    @property
    def may_refuse(self) -> bool:
        return self.producer.gate.may_refuse

    def ended_run(self) -> tuple[str, dict[str, Any]] | None:
        """What a client is told whose run was terminated: the sentence, and the same for programs."""
        terminated = self.producer.state.terminated
        if terminated is None:
            return None
        gate = self.producer.gate
        code, message = terminated
        said = f"The run was terminated ({code}): {message}"[:MAX_MESSAGE_CHARS]
        data: dict[str, Any] = {
            "v": INTERFACE_VERSION,
            "action": TERMINATE_RUN,
            "rule_id": None,
            "reason_code": code,
            "summary": said,
            "run_id": gate.identity.run_id,
            "policy": gate.stack.policies[0].as_dict(),
            "terminate": {"terminate_code": code, "terminate_message": message},
        }
        data = gate.masking.value(data)
        return data["summary"], data

    def needs_state(self, request: Request) -> bool:
        """Whether what a request tells may change the run's state."""
        for offered in request.offered:
            if self._is_outdated() or self._digest(offered) not in self._offered:
                return True
        gate = self.producer.gate
        for returned in request.results:
            opened = self._open.get(_key(returned.id))
            if opened is not None and gate.settling_needs_state(opened.record, returned.failed is not None):
                return True
        return False

    def take_in(self, request: Request) -> bytes:
        """The results that it brings end their calls, and the tools that it offers are judged. What goes on."""
        now_ns, wall_ms = self._now()
        for returned in request.results:
            opened = self._open.pop(_key(returned.id), None)
            if opened is None:
                continue
            if returned.failed is None:
                self._settle(opened, "OK", now_ns, wall_ms, returned.content)
            else:
                error = fault("upstream_error", returned.failed.strip() or "the tool reported an error")
                self._settle(opened, "ERROR", now_ns, wall_ms, returned.content, error)
        refused = [offered for offered in request.offered if self._is_refused(offered, now_ns, wall_ms)]
        self.producer.hand_over()
        return request.without(refused) if refused else request.body

    # -- tools that the provider would run ------------------------------------------------------------------------

    def _is_outdated(self) -> bool:
        return self._judged_by is not self.producer.gate.stack

    def _is_refused(self, offered: Offered, now_ns: int, wall_ms: int) -> bool:
        """Once for each definition in a run: a client repeats all of them with every request."""
        if self._is_outdated():
            self._judged_by = self.producer.gate.stack
            self._offered.clear()
        digest = self._digest(offered)
        known = self._offered.get(digest)
        if known is None:
            call = self._reading.offered(offered)
            if len(offered.secrets) > MAX_SECRETS:
                call.args_raw = None
                call.too_large = f"a definition with more than {MAX_SECRETS} secrets"
            elif offered.secrets:
                self._learn(*offered.secrets)
                _plainly(call)
            record, refused = ask(self.producer, call, wall_ms, now_ns // 1_000_000, _told)
            known = refused is not None
            if not known:
                settle(self.producer, record, "OK", wall_ms, now_ns // 1_000_000, latency_ms=0)
            self._offered[digest] = known
            if len(self._offered) > MAX_OFFERED:
                self._offered.popitem(last=False)
        return known

    @staticmethod
    def _digest(offered: Offered) -> bytes:
        digest: bytes = blake2b(offered.definition, digest_size=16).digest()
        return digest

    # -- an answer ------------------------------------------------------------------------------------------------

    def judge(self, api: Api, emitted: Emitted) -> bytes:
        """What passes to the client: the call, or its refusal. It is on record by then."""
        now_ns, wall_ms = self._now()
        self.producer.check_policies(now_ns, wall_ms)  # a stream may last longer than a policy
        call = self._reading.emitted(api, emitted)
        record, refused = ask(self.producer, call, wall_ms, now_ns // 1_000_000, _told)
        if refused is None:
            self._keep(_key(emitted.id) or record.call_id, _Open(record, now_ns), now_ns, wall_ms)
        return emitted.decided(refused)

    def observe(self, api: Api, observed: Observed) -> None:
        """A call that the provider has carried out: nothing can be refused any more, and everything be said."""
        now_ns, wall_ms = self._now()
        call = self._reading.observed(api, observed)
        call.observed = True
        record, _ = ask(self.producer, call, wall_ms, now_ns // 1_000_000, _told)
        error = None if observed.failed is None else fault("upstream_error", observed.failed)
        status = "OK" if error is None else "ERROR"
        self._end(record, status, now_ns, wall_ms, observed.result, error, 0)
        self.producer.hand_over()

    def note(self, api: Api, usage: Usage) -> None:
        """What the provider states of a message; what it did not state is not there."""
        stated = {name: value for name, value in structs.asdict(usage).items() if value is not None}
        self.producer.gate.usage_note({**stated, "api": api.name}, time_ns() // 1_000_000)
        self.producer.hand_over()

    def unreadable(self, why: str, size: int) -> None:
        """An answer that nobody can read has ended here: the record says why."""
        now_ns, wall_ms = self._now()
        call = self._reading.unreadable(why, size)
        record, refused = ask(self.producer, call, wall_ms, now_ns // 1_000_000, _told)
        if refused is None:
            self._end(record, "ERROR", now_ns, wall_ms, b"", fault("transport", why), 0)
            self.producer.hand_over()

    # -- ends -----------------------------------------------------------------------------------------------------

    def _keep(self, key: str, opened: _Open, now_ns: int, wall_ms: int) -> None:
        earlier = self._open.pop(key, None)
        given_up = [] if earlier is None else [earlier]  # whose result an id tells of, nobody can say: the last one's
        self._open[key] = opened
        if len(self._open) > MAX_OPEN:
            given_up.append(self._open.popitem(last=False)[1])
        for each in given_up:
            self._settle(each, "CANCELLED", now_ns, wall_ms, b"", fault("unknown", NOT_TOLD))
        if given_up:
            self.producer.hand_over()

    def _settle(self, opened: _Open, status: str, now_ns: int, wall_ms: int, result: bytes, error: Any = None) -> None:
        self._end(opened.record, status, now_ns, wall_ms, result, error, (now_ns - opened.since_ns) // 1_000_000)

    def _end(
        self, record: CallRecord, status: str, now_ns: int, wall_ms: int, result: bytes, error: Any, latency_ms: int
    ) -> None:
        settle(
            self.producer,
            record,
            status,
            wall_ms,
            now_ns // 1_000_000,
            result,
            latency_ms=latency_ms,
            error=error,
            max_inspect_bytes=self.config.max_inspect_bytes,
        )

    def tick(self, now_ns: int) -> None:
        if self._open and now_ns - next(iter(self._open.values())).since_ns > OPEN_NS:
            self.do(self._expire, now_ns, needs_state=True)

    def _expire(self, now_ns: int) -> None:
        while self._open and now_ns - next(iter(self._open.values())).since_ns > OPEN_NS:
            self._give_up(NOT_TOLD)
        self.producer.hand_over()

    def _give_up(self, why: str) -> None:
        now_ns, wall_ms = self._now()
        _, opened = self._open.popitem(last=False)
        self._settle(opened, "CANCELLED", now_ns, wall_ms, b"", fault("unknown", why))

    def close(self) -> None:
        """Before the producer's `run_end`: every call that is open ends."""
        self.do_all()
        while self._open:
            self._give_up(NOT_TOLD)
        self.producer.hand_over()

    @staticmethod
    def _now() -> tuple[int, int]:
        return monotonic_ns(), time_ns() // 1_000_000


def _told(code: int, message: str, data: dict[str, Any]) -> tuple[str, int]:
    """What a model reads of a refusal is its message, as in a hook's reason."""
    return message, len(message.encode("utf-8", "replace"))


def _key(call_id: str) -> str:
    """A client's id of a call as it is kept: whoever chooses long ones must not have thousands of them kept."""
    if len(call_id) <= MAX_ID_CHARS:
        return call_id
    return str(blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest())


def _plainly(call: ToolCall) -> None:
    """Arguments in which a secret stands as it is, so that it is found and masked."""
    if call.args_raw is None:
        return
    try:
        call.args_raw = read_args(call.args_raw)[1]
    except CanonicalError as unread:
        call.args_raw = None
        call.ambiguous = f"arguments: {unread.kind}"

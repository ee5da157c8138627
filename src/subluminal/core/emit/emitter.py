"""Events as bytes, from templates: the same bytes as `contracts.events` would write, without its import or its cost.

Everything that is the same for all events of a shim (identity, source) is rendered once. A test decodes what stands
here with the contract's types and encodes it again: byte for byte the same.
"""

from __future__ import annotations

from subluminal.contracts.jsontext import quote, to_json
from subluminal.contracts.moments import rfc3339
from subluminal.contracts.vocabulary import ALLOW, INTERFACE_VERSION
from subluminal.native.chosen import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.contracts.decision import Decision, Hint, PolicyRef
    from subluminal.contracts.identity import Identity, Source
    from subluminal.contracts.toolcall import ToolCall
    from subluminal.core.redact.preview import Preview

# Pairs of server and tool whose names are kept as JSON: agents invent any number of tool names.
MAX_NAMES = 512
MAX_NAMES_CHARS = 512


def _head(event_type: str) -> str:
    return f'{{"type":"{event_type}","v":"{INTERFACE_VERSION}","ts":"'


_START, _DECISION, _END = _head("tool_call_start"), _head("tool_call_decision"), _head("tool_call_end")


def policy_json(policy: PolicyRef) -> str:
    return (
        f'{{"policy_id":{quote(policy.policy_id)},"policy_version":{quote(policy.policy_version)},'
        f'"policy_hash":{quote(policy.policy_hash)}}}'
    )


def hint_json(hint: Hint) -> str:
    return (
        f'{{"hint_text":{quote(hint.hint_text)},"suggested_args":{to_json(hint.suggested_args)},'
        f'"retry_advice":{to_json(hint.retry_advice)},"hint_kind":"{hint.hint_kind}"}}'
    )


def _shown(name: str, preview: Preview) -> str:
    """A preview that is not simply the text as it stands."""
    text, truncated, flags = preview
    if text is None:
        return '{"truncated":false}'
    flagged = f',"redaction_flags":{to_json(list(flags))}' if flags else ""
    return f'{{"truncated":{"true" if truncated else "false"},"{name}":{text}{flagged}}}'


# -- the events of a call, which a shim writes three at a time ---------------------------------------------------------


def pieces_of(template: Callable[..., str]) -> tuple[str, ...]:
    """What a template writes before, between and behind its arguments."""
    return tuple(template(*["\0"] * template.__code__.co_argcount).split("\0"))


def _filled(template: Callable[..., str]) -> Callable[..., str]:
    """C fills in a template as it is written here."""
    bound: Callable[..., str] = template if core is None else core.bound("filled", template, pieces_of(template))
    return bound


@_filled
def _start(
    head: str,
    number: int,
    tail: str,
    call_id: str,
    names: str,
    transport: str,
    args_hash: str,
    bytes_in: int,
    before: str,
    preview: str,
    after: str,
    seq: int,
    extra: str,
) -> str:
    return (
        f'{head}{number}{tail},"call":{{"call_id":"{call_id}",{names},"transport":"{transport}",'
        f'"args_hash":"{args_hash}","bytes_in":{bytes_in},"preview":{before}{preview}{after},"seq":{seq}{extra}}}}}\n'
    )


@_filled
def _ref(call_id: str, names: str, args_hash: str) -> str:
    return f'{{"call_id":"{call_id}",{names},"args_hash":"{args_hash}"}}'


@_filled
def _decided(head: str, number: int, tail: str, ref: str, decision: str) -> str:
    return f'{head}{number}{tail},"call":{ref},"decision":{decision}}}\n'


@_filled
def _ended(
    head: str,
    number: int,
    tail: str,
    ref: str,
    status: str,
    latency_ms: int,
    bytes_out: int,
    before: str,
    preview: str,
    after: str,
    extra: str,
) -> str:
    return (
        f'{head}{number}{tail},"call":{ref},"status":"{status}","latency_ms":{latency_ms},'
        f'"bytes_out":{bytes_out},"preview":{before}{preview}{after}{extra}}}\n'
    )


class Emitter:
    """Writes the events of one producer. `seq` numbers them; `rename` follows a change of policy."""

    def __init__(self, identity: Identity, source: Source) -> None:
        self.seq = 0
        self._second = -1
        self._second_text = ""
        self._stamp_ms = -1
        # The time, and all that is the same for every event up to its number; and so for the events of a call.
        self._stamp = self._start_head = self._decision_head = self._end_head = ""
        q = quote
        self._identity = (
            f'","run_id":{q(identity.run_id)},"agent_id":{q(identity.agent_id)},"client":"{identity.client}",'
            f'"env":"{identity.env}","source":{{"host_id":{q(source.host_id)},"proc_id":{q(source.proc_id)},'
            f'"shim_id":{q(source.shim_id)},"seq":'
        )
        tail = "}"
        if identity.principal is not None:
            tail += f',"principal":{q(identity.principal)}'
        if identity.workload is not None:
            tail += f',"workload":{to_json(identity.workload)}'
        self._tail = tail
        self._names: dict[tuple[str, str], str] = {}
        self._policies: dict[int, tuple[PolicyRef, str]] = {}
        self._decisions: dict[Decision, str] = {}

    def _open(self, event_type: str, wall_ms: int) -> str:
        """The envelope up to where the event's own members begin. The events of a call do this themselves."""
        if wall_ms != self._stamp_ms:
            self._stamp_at(wall_ms)
        self.seq += 1
        return f"{_head(event_type)}{self._stamp}{self.seq}{self._tail}"

    def _stamp_at(self, wall_ms: int) -> None:
        second = wall_ms // 1000
        if second != self._second:
            self._second = second
            self._second_text = rfc3339(wall_ms)[:-4]
        self._stamp_ms = wall_ms
        self._stamp = stamp = f"{self._second_text}{wall_ms % 1000:03d}Z{self._identity}"
        self._start_head, self._decision_head, self._end_head = _START + stamp, _DECISION + stamp, _END + stamp

    def _render_names(self, call: ToolCall) -> str:
        names = f'"server_name":{quote(call.server_name)},"tool_name":{quote(call.tool_name)}'
        if len(names) <= MAX_NAMES_CHARS:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[(call.server_name, call.tool_name)] = names
        return names

    def _policy(self, policy: PolicyRef) -> str:
        known = self._policies.get(id(policy))
        if known is None or known[0] is not policy:
            if len(self._policies) > 64:
                self._policies.clear()
            known = self._policies[id(policy)] = (policy, policy_json(policy))
        return known[1]

    def run_start(self, wall_ms: int, mode: str, policies: list[PolicyRef], meta: dict[str, Any] | None) -> str:
        run = f'{{"started_at":"{rfc3339(wall_ms)}","mode":"{mode}","policy":{self._policy(policies[0])}'
        if len(policies) > 1:
            run += f',"policies":[{",".join(map(self._policy, policies))}]'
        if meta:
            run += f',"meta":{to_json(meta)}'
        return f'{self._open("run_start", wall_ms)},"run":{run}}}}}\n'

    def tool_call_start(
        self, wall_ms: int, call: ToolCall, call_id: str, args_hash: str, seq: int, preview: Preview, tags: list[str]
    ) -> tuple[str, str]:
        """The event, and the four names by which decision and end events refer to their call."""
        extra = ""
        if tags:
            extra = f',"tags":{to_json(tags)}'
        if call.timeout_ms is not None:
            extra += f',"timeout_ms":{call.timeout_ms}'
        if call.args_stream_hash is not None:
            extra += f',"args_stream_hash":"{call.args_stream_hash}"'
        if call.args_raw_hash is not None:
            extra += f',"args_raw_hash":"{call.args_raw_hash}"'
        if call.ambiguous is not None:
            extra += f',"ambiguous":{quote(call.ambiguous)}'
        if call.continues is not None:
            extra += f',"continues":{quote(call.continues)}'
        if call.observed:
            extra += ',"observed":true'
        if call.call_context:
            extra += f',"call_context":{to_json(call.call_context)}'
        text, truncated, flags = preview
        before, after = '{"truncated":false,"args_preview":', "}"
        if truncated or flags or text is None:
            before, text, after = _shown("args_preview", preview), "", ""
        names = self._names.get((call.server_name, call.tool_name)) or self._render_names(call)
        if wall_ms != self._stamp_ms:
            self._stamp_at(wall_ms)
        self.seq = number = self.seq + 1
        line = _start(
            self._start_head,
            number,
            self._tail,
            call_id,
            names,
            call.transport,
            args_hash,
            call.bytes_in,
            before,
            text,
            after,
            seq,
            extra,
        )
        return line, _ref(call_id, names, args_hash)

    def tool_call_decision(self, wall_ms: int, call_ref: str, decision: Decision) -> str:
        # The engine gives the same object for every plain ALLOW of a rule: rendered once.
        rendered = self._decisions.get(decision)
        if rendered is None:
            rendered = self._decision(decision)
            if decision.action == ALLOW and decision.would is None:
                if len(self._decisions) > 64:
                    self._decisions.clear()
                self._decisions[decision] = rendered
        if wall_ms != self._stamp_ms:
            self._stamp_at(wall_ms)
        self.seq = number = self.seq + 1
        return _decided(self._decision_head, number, self._tail, call_ref, rendered)

    def _decision(self, d: Decision) -> str:
        extra = ""
        if d.backoff_ms is not None:
            extra = f',"backoff_ms":{d.backoff_ms}'
        if d.hint is not None:
            extra += f',"hint":{hint_json(d.hint)}'
        if d.terminate is not None:
            extra += (
                f',"terminate":{{"terminate_code":{quote(d.terminate[0])},"terminate_message":{quote(d.terminate[1])}}}'
            )
        if d.would is not None:
            w = d.would
            extra += (
                f',"would":{{"action":"{w.action}","rule_id":{to_json(w.rule_id)},"severity":"{w.severity}",'
                f'"explain":{{"summary":{quote(w.summary)},"reason_code":{quote(w.reason_code)}}}}}'
            )
        rule_id = "null" if d.rule_id is None else quote(d.rule_id)
        return (
            f'{{"action":"{d.action}","rule_id":{rule_id},"severity":"{d.severity}",'
            f'"explain":{{"summary":{quote(d.summary)},"reason_code":{quote(d.reason_code)}}},'
            f'"policy":{self._policy(d.policy)}{extra}}}'
        )

    def tool_call_end(
        self,
        wall_ms: int,
        call_ref: str,
        status: str,
        latency_ms: int,
        bytes_out: int,
        preview: Preview,
        error: dict[str, Any] | None = None,
        result_stream_hash: str | None = None,
        overhead_us: int | None = None,
        waited_ms: int = 0,
        result_kept: str | None = None,
    ) -> str:
        extra = "" if error is None else f',"error":{to_json(error)}'
        if result_stream_hash is not None:
            extra += f',"result_stream_hash":"{result_stream_hash}"'
        if overhead_us is not None:
            extra += f',"overhead_us":{overhead_us}'
        if waited_ms:
            extra += f',"waited_ms":{waited_ms}'
        if result_kept is not None:
            extra += f',"result_kept":{result_kept}'
        text, truncated, flags = preview
        before, after = '{"truncated":false,"result_preview":', "}"
        if truncated or flags or text is None:
            before, text, after = _shown("result_preview", preview), "", ""
        if wall_ms != self._stamp_ms:
            self._stamp_at(wall_ms)
        self.seq = number = self.seq + 1
        return _ended(
            self._end_head, number, self._tail, call_ref, status, latency_ms, bytes_out, before, text, after, extra
        )

    def run_end(
        self, wall_ms: int, status: str, summary: dict[str, int], of_run: bool = False, ended_by: str | None = None
    ) -> str:
        """`of_run`: the summary counts the calls of all producers of the run. `ended_by`: a word of the contract."""
        whose = ',"counts":"run"' if of_run else ""
        if ended_by is not None:
            whose += f',"ended_by":"{ended_by}"'
        return (
            f'{self._open("run_end", wall_ms)},"run":{{"ended_at":"{rfc3339(wall_ms)}","status":"{status}",'
            f'"summary":{to_json(summary)}{whose}}}}}\n'
        )

    def hint_issued(self, wall_ms: int, call_id: str, hint: Hint) -> str:
        return f'{self._open("hint_issued", wall_ms)},"call":{{"call_id":"{call_id}"}},"hint":{hint_json(hint)}}}\n'

    def policy_loaded(self, wall_ms: int, policy: PolicyRef, ok: bool, origin: str, error: str | None) -> str:
        load: dict[str, Any] = {"ok": ok, "origin": origin}
        if error is not None:
            load["error"] = error
        return f'{self._open("policy_loaded", wall_ms)},"policy":{self._policy(policy)},"load":{to_json(load)}}}\n'

    def secret_injection(self, wall_ms: int, inject_as: str, secret_ref: str, source: str, success: bool) -> str:
        secret = {"inject_as": inject_as, "secret_ref": secret_ref, "source": source, "success": success}
        return f'{self._open("secret_injection", wall_ms)},"secret":{to_json(secret)}}}\n'

    def shim_health(self, wall_ms: int, health: dict[str, int]) -> str:
        return f'{self._open("shim_health", wall_ms)},"health":{to_json(health)}}}\n'

    def breaker_trip(self, wall_ms: int, call_ref: str, breaker: dict[str, Any]) -> str:
        return f'{self._open("breaker_trip", wall_ms)},"call":{call_ref},"breaker":{to_json(breaker)}}}\n'

    def settings_change(self, wall_ms: int, source: str, refused: bool, path: str) -> str:
        settings: dict[str, Any] = {"source": source, "refused": refused}
        if path:
            settings["path"] = path
        return f'{self._open("settings_change", wall_ms)},"settings":{to_json(settings)}}}\n'

    def tools_seen(self, wall_ms: int, seen: dict[str, Any]) -> str:
        return f'{self._open("tools_seen", wall_ms)},"tools":{to_json(seen)}}}\n'

    def promote(self, wall_ms: int, promote: dict[str, Any]) -> str:
        return f'{self._open("promote", wall_ms)},"promote":{to_json(promote)}}}\n'

    def model_message(self, wall_ms: int, model: dict[str, Any]) -> str:
        return f'{self._open("model_message", wall_ms)},"model":{to_json(model)}}}\n'

    def agent_event(self, wall_ms: int, agent: str) -> str:
        """`agent` is a rendered AgentEvent (additive type: what the agent itself reported)."""
        return f'{self._open("agent_event", wall_ms)},"agent":{agent}}}\n'

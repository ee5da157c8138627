"""Contract C: the decision object, its hint, and the shapes a refused caller receives."""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.vocabulary import ALLOW, DEFAULT_ALLOW, INTERFACE_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CARRIED_OUT = "Not refused: the call had been carried out before it was judged."


class PolicyRef(Struct, eq=False, gc=False):
    """Which policy decided: the three names every decision event and error carries."""

    policy_id: str
    policy_version: str
    policy_hash: str

    def as_dict(self) -> dict[str, str]:
        return {"policy_id": self.policy_id, "policy_version": self.policy_version, "policy_hash": self.policy_hash}


class Hint(Struct, eq=False, gc=False):
    """§3.2.4: what the agent can do instead."""

    hint_text: str
    hint_kind: str = "OTHER"
    suggested_args: dict[str, Any] | None = None
    retry_advice: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "hint_text": self.hint_text,
            "suggested_args": self.suggested_args,
            "retry_advice": self.retry_advice,
            "hint_kind": self.hint_kind,
        }


class _Ruling(Struct, eq=False, gc=False):
    """What a decision always says; these members may be given by their place, all others only by name."""

    action: str = ALLOW
    rule_id: str | None = None
    severity: str = "info"
    reason_code: str = DEFAULT_ALLOW
    summary: str = ""


class Decision(_Ruling, kw_only=True):
    """§3.1. `would`, in observe mode and of calls that were only observed: what enforcement would have decided.

    `retry_advice` is a sentence for THROTTLE (§3.2.3); hints carry their own. `policy` names the bundle that decided.
    """

    policy: PolicyRef
    backoff_ms: int | None = None
    retry_advice: str | None = None
    hint: Hint | None = None
    terminate: tuple[str, str] | None = None  # (terminate_code, terminate_message)
    would: Decision | None = None

    @classmethod
    def of_carried_out(cls, refused: Decision) -> Decision:
        """Of a call that had been carried out when it was judged: nothing is left to refuse."""
        return cls(ALLOW, None, "info", DEFAULT_ALLOW, CARRIED_OUT, policy=refused.policy, would=refused)

    def as_dict(self) -> dict[str, Any]:
        """The decision object of §3.1, with the optional members only where the action has them."""
        out: dict[str, Any] = {
            "action": self.action,
            "rule_id": self.rule_id,
            "severity": self.severity,
            "reason_code": self.reason_code,
            "summary": self.summary,
        }
        if self.backoff_ms is not None:
            out["backoff_ms"] = self.backoff_ms
        if self.hint is not None:
            out["hint"] = self.hint.as_dict()
        if self.terminate is not None:
            out["terminate"] = {"terminate_code": self.terminate[0], "terminate_message": self.terminate[1]}
        return out


def subluminal_data(
    decision: Decision, *, run_id: str, call_id: str, server_name: str, tool_name: str, args_hash: str
) -> dict[str, Any]:
    """`error.data.subluminal` (§3.2.2 to §3.2.4), the same for every adapter."""
    data: dict[str, Any] = {
        "v": INTERFACE_VERSION,
        "action": decision.action,
        "rule_id": decision.rule_id,
        "reason_code": decision.reason_code,
        "summary": decision.summary,
        "run_id": run_id,
        "call_id": call_id,
        "server_name": server_name,
        "tool_name": tool_name,
        "args_hash": args_hash,
        "policy": decision.policy.as_dict(),
    }
    if decision.backoff_ms is not None:
        data["backoff_ms"] = decision.backoff_ms
    if decision.retry_advice is not None:
        data["retry_advice"] = decision.retry_advice
    if decision.hint is not None:
        data["hint"] = decision.hint.as_dict()
    if decision.terminate is not None:
        data["terminate"] = {"terminate_code": decision.terminate[0], "terminate_message": decision.terminate[1]}
    return data


MAX_MESSAGE_CHARS = 1000


def refusal_message(decision: Decision) -> str:
    """What the model reads: some clients show it only `error.message`, so what to do next must stand here.

    One or two plain sentences, then the hint, at most 1,000 characters.
    """
    text = decision.summary.strip()
    hint = decision.hint
    further = [decision.retry_advice]
    if hint is not None:
        suggested = f"Suggested arguments: {_brief(hint.suggested_args)}." if hint.suggested_args else None
        further = [hint.hint_text, suggested, hint.retry_advice]
    for part in further:
        if part and part.strip() not in text:
            text += " " + part.strip()
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def _brief(suggested: dict[str, Any]) -> str:
    shown = ", ".join(f"{key}={value!r}" for key, value in list(suggested.items())[:8])
    return shown if len(shown) <= 300 else shown[:299] + "…"

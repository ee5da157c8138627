"""Why a call was not admitted: a closed set of kinds, each with its own fields and no free text.

Kinds are additive only. `render` gives one line for an operator, fixed field order; `serialize` canonical JSON;
`parse` reads that back. `render` is total, because it runs while a denial is under way: whatever it is given, it
returns text.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from subluminal.contracts.canonical import canonical_bytes, parse
from subluminal.contracts.errors import SubluminalError

# A field longer than this is cut when rendered: the line stays a line.
MAX_RENDERED_CHARS = 200


@dataclass(frozen=True, slots=True)
class DenialReason:
    """The base of all kinds; `kind` names the class on the wire."""

    kind: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class RuleVersionMismatch(DenialReason):
    """`expected` is the live registry's hash, `actual` what the caller claimed."""

    kind: ClassVar[str] = "rule_version_mismatch"
    expected: str
    actual: str


@dataclass(frozen=True, slots=True)
class PolicyDenial(DenialReason):
    kind: ClassVar[str] = "policy"
    policy_id: str
    policy_reason: str


@dataclass(frozen=True, slots=True)
class RuleRejected(DenialReason):
    kind: ClassVar[str] = "rule_rejected"
    rule_name: str
    rule_reason: str


@dataclass(frozen=True, slots=True)
class NoRuleMatched(DenialReason):
    kind: ClassVar[str] = "no_rule_matched"
    tool: str
    mode: str


@dataclass(frozen=True, slots=True)
class BudgetDenial(DenialReason):
    kind: ClassVar[str] = "budget"
    axis: str
    limit: int
    observed: int
    rule_name: str


@dataclass(frozen=True, slots=True)
class EffectInvariantViolated(DenialReason):
    kind: ClassVar[str] = "effect_invariant_violated"
    rule_name: str
    invariant_id: str


@dataclass(frozen=True, slots=True)
class AxiomViolation(DenialReason):
    kind: ClassVar[str] = "axiom_violation"
    axiom_id: str


@dataclass(frozen=True, slots=True)
class AmbiguousRuleset(DenialReason):
    """`rule_names` are sorted."""

    kind: ClassVar[str] = "ambiguous_ruleset"
    rule_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubluminalDecision(DenialReason):
    """A refusal of the core: what contract C says, ready for any protocol.

    `code` and `message` are those of the JSON-RPC error; `data` is its `data` object as JSON text. Both have been
    masked by the gate. Not rendered: they are for the caller, not for a log line.
    """

    kind: ClassVar[str] = "subluminal_decision"
    action: str
    reason_code: str
    rule_id: str | None
    code: int
    message: str
    data: str


KINDS: dict[str, type[DenialReason]] = {
    each.kind: each
    for each in (
        RuleVersionMismatch,
        PolicyDenial,
        RuleRejected,
        NoRuleMatched,
        BudgetDenial,
        EffectInvariantViolated,
        AxiomViolation,
        AmbiguousRuleset,
        SubluminalDecision,
    )
}
_UNRENDERED = frozenset(("message", "data", "code"))


class DenialReasonParseError(SubluminalError):
    """The text is not a serialised denial reason."""


def is_denial_reason(value: object, kind: str | None = None) -> bool:
    """Whether `value` is a denial reason, and of this kind if one is given."""
    if type(value) not in KINDS.values():
        return False
    return kind is None or type(value).kind == kind  # type: ignore[attr-defined]  # one of KINDS, see above


def render_denial_reason(reason: object) -> str:
    """`kind: field=value ...`; the names of fields in the order of their definition."""
    if not is_denial_reason(reason):
        return f"unknown: type={type(reason).__name__}"
    assert isinstance(reason, DenialReason)
    shown = [
        f"{field.name}={_text(getattr(reason, field.name))}"
        for field in fields(reason)
        if not (field.name in _UNRENDERED and isinstance(reason, SubluminalDecision))
    ]
    return f"{reason.kind}: {' '.join(shown)}"


def serialize_denial_reason(reason: DenialReason) -> str:
    """Canonical JSON: keys sorted, no white space."""
    members: dict[str, Any] = {field.name: getattr(reason, field.name) for field in fields(reason)}
    return canonical_bytes({"kind": reason.kind, **members}).decode()


def parse_denial_reason(text: str | bytes) -> DenialReason:
    try:
        value = parse(text.encode() if isinstance(text, str) else text)
    except (SubluminalError, UnicodeEncodeError):
        raise DenialReasonParseError("The denial reason is not JSON.") from None
    if not isinstance(value, dict):
        raise DenialReasonParseError("The denial reason is not a JSON object.")
    kind = value.pop("kind", None)
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise DenialReasonParseError(f"The denial reason has no known kind; known are {', '.join(KINDS)}.")
    wanted = {field.name: str(field.type) for field in fields(cls)}
    if set(value) != set(wanted):
        raise DenialReasonParseError(f"A {kind} has exactly the fields {', '.join(wanted)}.")
    return cls(**{name: _field(kind, name, wanted[name], value[name]) for name in wanted})


def _field(kind: object, name: str, wanted: str, value: Any) -> Any:
    if wanted == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if wanted.startswith("str") and isinstance(value, str):
        return value
    if wanted == "str | None" and value is None:
        return None
    if wanted.startswith("tuple") and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise DenialReasonParseError(f"{kind}.{name} is not a {wanted}.")


def _text(value: object) -> str:
    """One field on one line. Total: a value may come from a stub whose `str` raises."""
    try:
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    except Exception:
        return f"<{type(value).__name__}>"
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: MAX_RENDERED_CHARS + 1])
    return text if len(text) <= MAX_RENDERED_CHARS else text[: MAX_RENDERED_CHARS - 1] + "…"

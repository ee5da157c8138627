"""What goes into an admission decision and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from subluminal.admission.denial import DenialReason
from subluminal.admission.snapshot import ReadOnlyState

AdmissionMode = Literal["normal", "readonly", "admin"]
MODES: tuple[AdmissionMode, ...] = ("normal", "readonly", "admin")


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """No arguments: a registry that judges them finds them in the snapshot's bindings."""

    caller: str
    tool: str
    mode: AdmissionMode
    rep_snapshot: ReadOnlyState
    rule_version: str


@dataclass(frozen=True, slots=True)
class EffectMutation:
    """What an admitting rule wants changed. Returned, never applied here."""

    rule_name: str
    target: str
    key: str
    value: int


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """`reason` is set exactly when the call is not admitted. `record` is the registry's own, for settling the call."""

    admitted: bool
    rule_version: str
    reason: DenialReason | None = None
    effect_mutations: tuple[EffectMutation, ...] = ()
    record: Any = None


class Registry(Protocol):
    """What `evaluate_admission` needs. `version_hash` is the live hash; `compute_version_hash` works it out anew."""

    @property
    def version_hash(self) -> str: ...
    def compute_version_hash(self) -> str: ...
    def admit(self, request: AdmissionRequest) -> AdmissionResult: ...

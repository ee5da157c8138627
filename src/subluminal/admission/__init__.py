"""In-process admission: the rules of the tool-lock adapter, a face over the same core.

    evaluate_admission(request, registry) -> AdmissionResult      total: any fault is a denial
    RuleRegistry.load(document)                                   rules as data: integers, guards, effects
    registry_from_policy("policy.yaml")                           a compiled policy, usable wherever a registry is

Rules: integer-only, deterministic, total. No clock, no randomness, no I/O in evaluation. The one module that does I/O
is `door`, which holds the gate of this process, its sink and its clock. Imported by the in-process adapters.
"""

from __future__ import annotations

from subluminal.admission.bps import bps_div, bps_mul, decay
from subluminal.admission.budget import BudgetExceeded, BudgetLimits, BudgetTick, BudgetTracker
from subluminal.admission.denial import (
    AmbiguousRuleset,
    AxiomViolation,
    BudgetDenial,
    DenialReason,
    DenialReasonParseError,
    EffectInvariantViolated,
    NoRuleMatched,
    PolicyDenial,
    RuleRejected,
    RuleVersionMismatch,
    SubluminalDecision,
    is_denial_reason,
    parse_denial_reason,
    render_denial_reason,
    serialize_denial_reason,
)
from subluminal.admission.determinism import NotDeterministic, assert_deterministic, inspect_function_forbidden
from subluminal.admission.evaluate import evaluate_admission
from subluminal.admission.policy import PolicyRegistry, registry_from_policy
from subluminal.admission.registry import AmbiguousRulesetError, RegistryError, RuleRegistry
from subluminal.admission.request import MODES, AdmissionMode, AdmissionRequest, AdmissionResult, EffectMutation
from subluminal.admission.snapshot import ReadOnlyState, bind_call

__all__ = [
    "MODES", "AdmissionMode", "AdmissionRequest", "AdmissionResult", "AmbiguousRuleset", "AmbiguousRulesetError",
    "AxiomViolation", "BudgetDenial", "BudgetExceeded", "BudgetLimits", "BudgetTick", "BudgetTracker", "DenialReason",
    "DenialReasonParseError", "EffectInvariantViolated", "EffectMutation", "NoRuleMatched", "NotDeterministic",
    "PolicyDenial", "PolicyRegistry", "ReadOnlyState", "RegistryError", "RuleRegistry", "RuleRejected",
    "RuleVersionMismatch", "SubluminalDecision", "assert_deterministic", "bind_call", "bps_div", "bps_mul", "decay",
    "evaluate_admission", "inspect_function_forbidden", "is_denial_reason", "parse_denial_reason",
    "registry_from_policy", "render_denial_reason", "serialize_denial_reason",
]  # fmt: skip

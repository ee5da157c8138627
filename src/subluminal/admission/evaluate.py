"""The admission decision. Total: whatever a registry does, the answer is an `AdmissionResult`.

Order: the rule version (in constant time), then the registry's own judgement (`RuleRegistry`: pre-guards, then rules;
`PolicyRegistry`: the gate). Admission gives modes no short cut; rules may.
"""

from __future__ import annotations

from hmac import compare_digest

from subluminal.admission.denial import NoRuleMatched, RuleRejected, RuleVersionMismatch
from subluminal.admission.request import MODES, AdmissionRequest, AdmissionResult, Registry

EVALUATOR = "<admission>"


def evaluate_admission(request: AdmissionRequest, registry: Registry) -> AdmissionResult:
    live = ""
    try:
        live = _live_hash(registry)
        if not _same(live, request.rule_version):
            return AdmissionResult(False, live, RuleVersionMismatch(live, request.rule_version))
        if request.mode not in MODES:
            return AdmissionResult(False, live, NoRuleMatched(request.tool, request.mode))
        result = registry.admit(request)
        if not isinstance(result, AdmissionResult):
            return AdmissionResult(False, live, RuleRejected(EVALUATOR, "not_a_result"))
        return result
    except Exception as fault:  # cancellation and interrupts pass: they are not about this call
        return AdmissionResult(False, live, RuleRejected(EVALUATOR, f"evaluator_threw:{type(fault).__name__}"))


def _live_hash(registry: Registry) -> str:
    """The hash a registry carries is preferred: the adapter may compute one at most once per call."""
    known = getattr(registry, "version_hash", None)
    return known if isinstance(known, str) else registry.compute_version_hash()


def _same(live: str, claimed: str) -> bool:
    return compare_digest(live.encode("utf-8", "surrogatepass"), claimed.encode("utf-8", "surrogatepass"))

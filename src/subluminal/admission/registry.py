"""A loaded set of rules: parsed, validated, indexed, immutable, with a version hash that depends on its content.

The hash is SHA-256 over the canonical bodies (where they were written is left out; sorted by name) followed by the
version of this engine. A caller that names a hash is served by exactly those rules or not at all.
"""

from __future__ import annotations

import copy

from subluminal.admission.bps import ArithmeticFault
from subluminal.admission.budget import BudgetExceeded, BudgetLimits, BudgetTracker
from subluminal.admission.denial import AmbiguousRuleset, BudgetDenial, DenialReason, NoRuleMatched, PolicyDenial
from subluminal.admission.denial import RuleRejected as Rejected
from subluminal.admission.expression import Evaluation
from subluminal.admission.request import AdmissionRequest, AdmissionResult
from subluminal.admission.rules import CATEGORIES, PreGuard, Rule, RuleError
from subluminal.contracts.canonical import canonical_bytes, parse
from subluminal.contracts.digest import sha256_hex
from subluminal.contracts.errors import CanonicalError, SubluminalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# Raise whenever the same rules may be judged differently.
ENGINE_VERSION = "1"
MAX_RULES = 10_000


class RegistryError(SubluminalError):
    """The rules cannot be loaded."""


class AmbiguousRulesetError(RegistryError):
    """Two rules of equal specificity could both match; `reason` names them."""

    def __init__(self, reason: AmbiguousRuleset) -> None:
        super().__init__(
            f"Rules {', '.join(reason.rule_names)} could match the same call and none is more specific.",
            hint="Make one of them more specific (tool, mode or caller), or give them different categories.",
        )
        self.reason = reason


class RuleRegistry:
    __slots__ = ("_axioms", "_limits", "_ordered", "_policies", "_rules", "version_hash")

    def __init__(
        self, rules: list[Rule], policies: list[PreGuard], axioms: list[PreGuard], limits: BudgetLimits | None = None
    ) -> None:
        self._rules = tuple(rules)
        self._policies = tuple(policies)
        self._axioms = tuple(axioms)
        self._limits = limits
        _refuse_ambiguous(rules)
        # The category first, then the most specific: the first that fits decides.
        by_specificity = sorted(rules, key=lambda rule: rule.match.specificity, reverse=True)
        self._ordered = tuple(sorted(by_specificity, key=lambda rule: CATEGORIES.index(rule.category)))
        self.version_hash = self.compute_version_hash()

    @classmethod
    def load(cls, document: dict[str, Any] | str | bytes, *, limits: BudgetLimits | None = None) -> RuleRegistry:
        """From `{"rules": [...], "policies": [...], "axioms": [...]}`, as JSON text or as the values it stands for."""
        given = _document(document)
        unknown = set(given) - {"rules", "policies", "axioms"}
        if unknown:
            raise RegistryError(f"The rules have unknown members: {', '.join(sorted(map(str, unknown)))}.")
        try:
            return cls(
                _named([Rule(each) for each in _objects(given, "rules")]),
                _named([PreGuard(each, "policy_id") for each in _objects(given, "policies")]),
                _named([PreGuard(each, "axiom_id") for each in _objects(given, "axioms")]),
                limits,
            )
        except RuleError as fault:
            raise RegistryError(f"The rules cannot be loaded: {fault}.") from None

    def compute_version_hash(self) -> str:
        """Worked out from the rules themselves each time."""
        content = {"axioms": _bodies(self._axioms), "policies": _bodies(self._policies), "rules": _bodies(self._rules)}
        return "sha256:" + sha256_hex(canonical_bytes(content) + b"\n" + ENGINE_VERSION.encode())

    def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Pre-guards, then the first rule that fits. Each is judged with a budget of its own."""
        version = self.version_hash
        budget = BudgetTracker(self._limits)
        evaluation = Evaluation(request, budget)
        for policy in self._policies:
            refusal = _guarded(policy, evaluation, PolicyDenial(policy.name, policy.reason))
            if refusal is not None:
                return AdmissionResult(False, version, refusal)
        rule = next((each for each in self._ordered if each.match.fits(request)), None)
        if rule is None:
            return AdmissionResult(False, version, NoRuleMatched(request.tool, request.mode))
        budget.begin_rule(rule.name)
        try:
            outcome = rule.judge(evaluation)
        except BudgetExceeded as fault:
            outcome = BudgetDenial(fault.which, fault.limit, fault.observed, rule.name)
        except ArithmeticFault as fault:
            outcome = Rejected(rule.name, fault.word)
        if isinstance(outcome, DenialReason):
            return AdmissionResult(False, version, outcome)
        for axiom in self._axioms:
            refusal = _guarded(axiom, evaluation, axiom.violation())
            if refusal is not None:
                return AdmissionResult(False, version, refusal)
        return AdmissionResult(True, version, None, outcome)


def _guarded(guard: PreGuard, evaluation: Evaluation, refusal: DenialReason) -> DenialReason | None:
    """A condition that cannot be worked out does not hold."""
    evaluation.budget.begin_rule(guard.name)
    try:
        return None if evaluation.holds(guard.when) else refusal
    except ArithmeticFault:
        return refusal
    except BudgetExceeded as fault:
        return BudgetDenial(fault.which, fault.limit, fault.observed, guard.name)


def _bodies(group: Iterable[Rule | PreGuard]) -> list[dict[str, Any]]:
    return [each.body for each in sorted(group, key=lambda each: each.name)]


def _document(document: dict[str, Any] | str | bytes) -> dict[str, Any]:
    if isinstance(document, dict):
        try:
            return copy.deepcopy(document)
        except RecursionError:
            raise RegistryError("The rules are nested too deep.") from None
    try:
        given = parse(document.encode() if isinstance(document, str) else document)
    except (CanonicalError, UnicodeEncodeError) as fault:
        raise RegistryError(f"The rules are not JSON: {fault}") from None
    if not isinstance(given, dict):
        raise RegistryError("The rules are not a JSON object.")
    return given


def _objects(given: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = given.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RegistryError(f"{key} must be a list of objects.")
    if len(found) > MAX_RULES:
        raise RegistryError(f"There are more than {MAX_RULES} {key}.")
    return found


def _named(group: list[Any]) -> list[Any]:
    seen = set()
    for each in group:
        if each.name in seen:
            raise RegistryError(f"The name {each.name!r} is used twice.")
        seen.add(each.name)
    return group


def _refuse_ambiguous(rules: list[Rule]) -> None:
    """Two matches tie only if they are the same: every other pair differs in specificity or has no call in common."""
    groups: dict[tuple[str, tuple[str, str, str]], list[str]] = {}
    for rule in rules:
        groups.setdefault((rule.category, rule.match.names), []).append(rule.name)
    for names in groups.values():
        if len(names) > 1:
            raise AmbiguousRulesetError(AmbiguousRuleset(tuple(sorted(names))))

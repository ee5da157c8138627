"""Expressions as data: what guards and effects are made of. Integers, strings and truth values; nothing else exists.

    expression   = integer | string | true | false | [operator, expression, ...]

Operators
    add mul min max and or (two or more)   sub div rem eq ne lt le gt ge bps_mul bps_div (two)   neg abs not (one)
    if (condition, then, else)   decay (value, rate, epochs)
    reputation tokens stake (whose)   epoch event_count fork_id caller tool mode (none)   binding (name)

`check` refuses what could never be evaluated, without recursion: a document may be as deep as its author likes.
`evaluate` charges one operation per node, and one per epoch of a decay, to the budget.
"""

from __future__ import annotations

from operator import add, ge, gt, le, lt, mul, neg, sub

from subluminal.admission import bps
from subluminal.admission.bps import ArithmeticFault, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.admission.budget import BudgetTracker
    from subluminal.admission.request import AdmissionRequest

    Value = int | str | bool

MAX_NODES = 10_000
# Far above the call depth that evaluation allows, far below what would trouble an interpreter.
MAX_DEPTH = 64
MANY = -1

_ARITY = {
    **dict.fromkeys(("add", "mul", "min", "max", "and", "or"), MANY),
    **dict.fromkeys(("sub", "div", "rem", "eq", "ne", "lt", "le", "gt", "ge", "bps_mul", "bps_div"), 2),
    **dict.fromkeys(("neg", "abs", "not", "reputation", "tokens", "stake", "binding"), 1),
    **dict.fromkeys(("if", "decay"), 3),
    **dict.fromkeys(("epoch", "event_count", "fork_id", "caller", "tool", "mode"), 0),
}


class ExpressionError(Exception):
    """The expression could never be evaluated."""


def check(expression: Any) -> int:
    """The number of nodes; raises `ExpressionError`."""
    nodes = 0
    stack = [(expression, 1)]
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise ExpressionError(f"more than {MAX_NODES} nodes")
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        if isinstance(node, list):
            _check_operator(node)
            stack += [(child, depth + 1) for child in node[1:]]
        else:
            _check_literal(node)
    return nodes


def _check_operator(node: list[Any]) -> None:
    if not node or not isinstance(node[0], str) or node[0] not in _ARITY:
        raise ExpressionError("a list must begin with the name of an operator")
    arity, given = _ARITY[node[0]], len(node) - 1
    if given < 2 if arity == MANY else given != arity:
        wanted = "two or more arguments" if arity == MANY else f"{arity} arguments"
        raise ExpressionError(f"{node[0]} takes {wanted}, not {given}")


def _check_literal(node: Any) -> None:
    if isinstance(node, (bool, str)):
        return
    try:
        checked(node)
    except ArithmeticFault:
        raise ExpressionError("a literal must be an integer of 64 bits, a string, true or false") from None


class Evaluation:
    """One request under evaluation. Faults are `ArithmeticFault` and `BudgetExceeded`."""

    __slots__ = ("budget", "request")

    def __init__(self, request: AdmissionRequest, budget: BudgetTracker) -> None:
        self.request = request
        self.budget = budget

    def holds(self, expression: Any) -> bool:
        return _truth(self.value(expression))

    def integer(self, expression: Any) -> int:
        return checked(self.value(expression))

    def string(self, expression: Any) -> str:
        return _string(self.value(expression))

    def value(self, node: Any) -> Value:
        self.budget.charge()
        if not isinstance(node, list):
            return node  # type: ignore[no-any-return]  # a literal, checked at load
        operator, arguments = node[0], node[1:]
        self.budget.enter_call(len(arguments))
        try:
            return self._apply(operator, arguments)
        finally:
            self.budget.leave_call()

    def _apply(self, operator: str, arguments: list[Any]) -> Value:
        if operator in _LAZY:
            return _LAZY[operator](self, arguments)
        values = [self.value(argument) for argument in arguments]
        if operator in _FOLDS:
            fold = _FOLDS[operator]
            total = checked(values[0])
            for each in values[1:]:
                total = checked(fold(total, checked(each)))
            return total
        if operator in _INTEGERS:
            return checked(_INTEGERS[operator](*map(checked, values)))
        if operator in _COMPARISONS:
            return _COMPARISONS[operator](*map(checked, values))
        if operator in ("eq", "ne"):
            return _equal(values[0], values[1]) is (operator == "eq")
        if operator == "not":
            return not _truth(values[0])
        if operator == "decay":
            return self._decay(*map(checked, values))
        return self._read(operator, values)

    def _decay(self, value: int, rate_bps: int, epochs: int) -> int:
        self.budget.charge(max(0, epochs))
        return bps.decay(value, rate_bps, epochs)

    def _read(self, operator: str, values: list[Value]) -> Value:
        request, state = self.request, self.request.rep_snapshot
        if operator == "binding":
            bound = state.binding(_string(values[0]))
            if bound is None or isinstance(bound, bytes):
                raise ArithmeticFault("binding_unavailable")
            return bound
        if values:
            reader: Callable[[str], int] = getattr(state, operator)
            return checked(reader(_string(values[0])))
        if operator in ("caller", "tool", "mode"):
            return str(getattr(request, operator))
        found: Value = getattr(state, operator)
        return found


def _if(evaluation: Evaluation, arguments: list[Any]) -> Value:
    return evaluation.value(arguments[1] if evaluation.holds(arguments[0]) else arguments[2])


def _and(evaluation: Evaluation, arguments: list[Any]) -> Value:
    return all(evaluation.holds(argument) for argument in arguments)


def _or(evaluation: Evaluation, arguments: list[Any]) -> Value:
    return any(evaluation.holds(argument) for argument in arguments)


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise ArithmeticFault("not_a_truth_value")
    return value


def _string(value: Value) -> str:
    if not isinstance(value, str):
        raise ArithmeticFault("not_a_string")
    return value


def _equal(left: Value, right: Value) -> bool:
    """Only values of one type can be compared: `true` is not 1."""
    if type(left) is not type(right):
        raise ArithmeticFault("types_differ")
    return left == right


_LAZY: dict[str, Callable[[Evaluation, list[Any]], Value]] = {"if": _if, "and": _and, "or": _or}
_FOLDS: dict[str, Callable[[int, int], int]] = {"add": add, "mul": mul, "min": min, "max": max}
_INTEGERS: dict[str, Callable[..., int]] = {
    "sub": sub,
    "div": bps.divide,
    "rem": bps.remainder,
    "neg": neg,
    "abs": abs,
    "bps_mul": bps.bps_mul,
    "bps_div": bps.bps_div,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"lt": lt, "le": le, "gt": gt, "ge": ge}

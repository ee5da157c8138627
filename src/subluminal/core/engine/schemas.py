"""`defaults.check_schemas`: a rule that stands behind all others, and refuses arguments that break the input schema of
their tool. It is no access rule: an `allow` does not lift it.

Which schema that is, and what is wrong with the arguments, is told by whoever knows the server: a `SchemaJudge` for
each, by its name. Where there is none (a door that sees no list of tools), nothing is checked.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import REJECT_WITH_HINT, SCHEMA_MISMATCH, UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.rules import Refusal, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from subluminal.core.engine.rules import Judgement, Outcome

    # A tool's name, its arguments, `pinned` or `listed`: the first error, as a clause. Unavailable: it cannot be told.
    SchemaJudge = Callable[[str, dict[str, Any], str], str | None]


class SchemaRule(Rule):
    __slots__ = ("_which", "judges")
    hint_kind = "ARG_FIX"

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        super().__init__(number, spec)
        self._which: str = self.detail["which"]
        self.judges: Mapping[str, SchemaJudge] = {}

    @property
    def conditional(self) -> bool:
        return True

    def look(self, judgement: Judgement) -> None:
        """Ahead of the evaluation: the first error, or a fault as its words. (An exception that is kept is a cycle.)"""
        try:
            found: Any = self._error(judgement)
        except Unavailable as unavailable:
            found = (unavailable.reason_code, unavailable.why)
        except Exception:  # the arguments are no object, or a fault of ours: neither may take the shim down
            found = (UNJUDGED_ARGS, "they are no object, or their schema could not be asked")
        judgement.checked = {**(judgement.checked or {}), id(self): found}

    def holds(self, judgement: Judgement, outcome: Outcome) -> bool:
        if id(self) not in (judgement.checked or ()):
            self.look(judgement)
        found = self._found(judgement)
        if isinstance(found, tuple):
            raise Unavailable(*found)
        return found is not None

    def _found(self, judgement: Judgement) -> Any:
        return (judgement.checked or {})[id(self)]

    def _error(self, judgement: Judgement) -> str | None:
        call = judgement.call
        judge = self.judges.get(call.server_name)
        if judge is None or call.definition:
            return None
        return judge(call.tool_name, judgement.held or judgement.args(), self._which)

    def apply(self, judgement: Judgement, outcome: Outcome, keys: Any) -> Refusal | None:
        return Refusal(self, REJECT_WITH_HINT, SCHEMA_MISMATCH, {"why": self._found(judgement)})

"""Never leak: what an event or a refusal tells, with every secret masked."""

from __future__ import annotations

from subluminal.core.redact.preview import error_line
from subluminal.core.redact.redactor import INJECTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subluminal.contracts.decision import Decision
    from subluminal.core.redact.redactor import Redactor

# Names remembered as checked for secrets: a server has tens of tools; an agent may invent any number.
MAX_NAMES = 512
MAX_NAME_CHARS = 256


class Masking:
    """`names` maps a tool's name to what is shown of it."""

    __slots__ = ("_redactor", "names")

    def __init__(self, redactor: Redactor) -> None:
        self.names: dict[str, str] = {}
        self._redactor = redactor

    def learn(self, *secrets: str) -> None:
        """More, from now on: tokens that were renewed. From any thread."""
        self._redactor.learn(*secrets)
        self.names.clear()

    def name(self, name: str) -> str:
        """Names stand in events exactly as given (EVT-006), unless an agent hides an injected secret in one."""
        masked, flags = self._redactor.mask(name.encode("utf-8", "surrogatepass"))
        shown = masked.decode("utf-8", "surrogatepass") if INJECTED in flags else name
        if len(self.names) < MAX_NAMES and len(name) <= MAX_NAME_CHARS:
            self.names[name] = shown
        return shown

    def error(self, error: dict[str, Any]) -> None:
        if "message" in error:
            error["message"] = error_line(error["message"], self._redactor) or "the call ended with an error"
        if isinstance(error.get("code"), str):
            error["code"] = error_line(error["code"], self._redactor)

    def decision(self, decision: Decision) -> None:
        mask = self._redactor.mask_text
        decision.summary = mask(decision.summary)
        hint = decision.hint
        if hint is not None:
            hint.hint_text = mask(hint.hint_text)
            if hint.suggested_args is not None:
                hint.suggested_args = self.value(hint.suggested_args)
        if decision.terminate is not None:
            decision.terminate = (decision.terminate[0], mask(decision.terminate[1]))
        if decision.would is not None:
            self.decision(decision.would)

    def meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """`run.meta`, whose keys are a user's own words too."""
        return {self._redactor.mask_text(key): self.value(item) for key, item in meta.items()}

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor.mask_text(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value

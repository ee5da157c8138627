"""What servers say of their tools, as far as rules may ask for it: risk classes from annotations."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A server could name any number of tools.
MAX_TOOLS = 4096


class ToolNotes:
    """Annotations are untrusted: an explicit one may raise the risk class of a tool, none lowers it."""

    __slots__ = ("risk_classes",)

    def __init__(self) -> None:
        self.risk_classes: dict[str, frozenset[str]] = {}

    def learn(self, result: Any) -> None:
        """From the result of `tools/list`."""
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            notes = tool.get("annotations") if isinstance(tool, dict) else None
            if not isinstance(notes, dict) or not isinstance(tool.get("name"), str):
                continue
            risks = set()
            if notes.get("readOnlyHint") is False or notes.get("destructiveHint") is True:
                risks.add("write_like")
            if notes.get("openWorldHint") is True:
                risks.add("network_like")
            if risks and len(self.risk_classes) < MAX_TOOLS:
                self.risk_classes[tool["name"]] = frozenset(risks)

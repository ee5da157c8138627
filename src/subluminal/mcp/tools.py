"""What servers say of their tools, as far as rules may ask for it: risk classes from annotations.

A tool that was not listed is not a tool without classes: nothing is known of it, and a rule that asks cannot be judged.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    class Kept(Protocol):
        """Notes that outlive the process."""

        def read(self) -> Mapping[str, frozenset[str]]: ...
        def add(self, notes: Mapping[str, frozenset[str]]) -> None: ...


# A server could name any number of tools. What is beyond these bounds counts as not listed.
MAX_TOOLS = 4096
MAX_NAME_CHARS = 256


class ToolNotes:
    """`risk_classes` has every tool that was listed; `to_read`: there may be more, to be `recalled`.

    Annotations are untrusted: an explicit one may raise the risk class of a tool, none lowers it, and neither does a
    later list.
    """

    __slots__ = ("_kept", "risk_classes", "to_read")

    def __init__(self, kept: Kept | None = None) -> None:
        self.risk_classes: dict[str, frozenset[str]] = {}
        self._kept: Kept | None = None
        self.to_read = False
        if kept is not None:
            self.keep_in(kept)

    def keep_in(self, kept: Kept) -> None:
        """What is known goes there, and what is there is read when it is first asked for."""
        self._kept = kept
        self.to_read = True
        if self.risk_classes:
            kept.add(self.risk_classes)

    def recalled(self, name: str) -> frozenset[str] | None:
        """The classes of a tool; None: it was not listed, as far as anybody in this run knows."""
        self._read()
        return self.risk_classes.get(name)

    def learn(self, result: Any) -> None:
        """From the result of `tools/list`."""
        self._read()
        taught = {}
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                name, classes = tool["name"], _classes(tool.get("annotations"))
                if self._note(name, classes):
                    taught[name] = self.risk_classes[name]
        if taught and self._kept is not None:
            self._kept.add(taught)

    def _read(self) -> None:
        if self.to_read and self._kept is not None:
            self.to_read = False
            for name, classes in self._kept.read().items():
                self._note(name, classes)

    def _note(self, name: str, classes: frozenset[str]) -> bool:
        """Whether it is news."""
        known = self.risk_classes.get(name)
        if known is None:
            if len(self.risk_classes) >= MAX_TOOLS or len(name) > MAX_NAME_CHARS:
                return False
            known = frozenset()
        elif classes <= known:
            return False
        self.risk_classes[name] = known | classes
        return True


def _classes(notes: Any) -> frozenset[str]:
    risks = set()
    if isinstance(notes, dict):
        if notes.get("readOnlyHint") is False or notes.get("destructiveHint") is True:
            risks.add("write_like")
        if notes.get("openWorldHint") is True:
            risks.add("network_like")
    return frozenset(risks)

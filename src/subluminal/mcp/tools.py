"""What servers say of their tools, as far as rules may ask for it: risk classes from annotations, and those by which a
tool stands against what was seen and approved of it, which a `surface` tells.

A tool that was not listed is not a tool without classes: nothing is known of it, and a rule that asks cannot be judged.
"""

from __future__ import annotations

from subluminal.contracts.vocabulary import ANNOTATED_CLASSES
from subluminal.mcp.message.reading import TOOLS_LIST, read_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from subluminal.surface.items import Item

    class Kept(Protocol):
        """Notes that outlive the process."""

        def read(self) -> Mapping[str, frozenset[str]]: ...
        def add(self, notes: Mapping[str, frozenset[str]]) -> None: ...

    class Surface(Protocol):
        """What a server says, held against what is known. Classes are of tools, by name; others keep theirs."""

        @property
        def edits(self) -> bool: ...
        def heard(self, method: str, result: bytes) -> Mapping[str, frozenset[str]]: ...
        def scanned(self, items: list[Item]) -> Mapping[str, frozenset[str]]: ...
        def hides(self, tool_name: str, risk_classes: frozenset[str] | None) -> bool: ...
        def why_refused(self, tool_name: str) -> str | None: ...


# A server could name any number of tools. What is beyond these bounds counts as not listed.
MAX_TOOLS = 4096
MAX_NAME_CHARS = 256
# Requests whose answers say what a server says of itself. The first two come before any list, while the client waits to
# go on: what they told is looked at with the first list.
_OPENINGS = ("initialize", "server/discover")
SAYINGS = frozenset((TOOLS_LIST, "prompts/list", "resources/templates/list", *_OPENINGS))


class ToolNotes:
    """`risk_classes` has every tool that was listed; `to_read`: there may be more, to be `recalled`.

    Annotations are untrusted: an explicit one may raise the risk class of a tool, none lowers it, and neither does a
    later list.
    """

    __slots__ = ("_kept", "_opening", "keep_said", "risk_classes", "surface", "to_read")

    def __init__(self, kept: Kept | None = None) -> None:
        self.risk_classes: dict[str, frozenset[str]] = {}
        self._kept: Kept | None = None
        self.surface: Surface | None = None
        self.keep_said: Callable[[str, bytes], None] | None = None  # where results are kept whole
        self._opening: tuple[str, bytes] | None = None
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

    @property
    def edits(self) -> bool:
        """Whether tools may have to be left out of the next list."""
        return self.surface is not None and self.surface.edits

    def hides(self, tool_name: str) -> bool:
        return self.surface is not None and self.surface.hides(tool_name, self.recalled(tool_name))

    def heard(self, method: str, result: bytes, *, learned: bool = False) -> None:
        """The result of one of SAYINGS; `learned`: what annotations say is known by now."""
        if self.keep_said is not None:
            self.keep_said(method, result)
        if method in _OPENINGS:
            self._opening = (method, result)
            return
        if method == TOOLS_LIST and not learned:
            self.learn(read_value(result))
        if self.surface is None:
            return
        if self._opening is not None:
            opening, self._opening = self._opening, None
            self.stand(self.surface.heard(*opening))
        self.stand(self.surface.heard(method, result))

    def scanned(self, tools: list[bytes], items: list[Item]) -> None:
        """A list too large to hold, of which a scan has found the tools."""
        self.learn({"tools": [read_value(tool) for tool in tools]})
        if self.surface is not None:
            self.stand(self.surface.scanned(items))

    def stand(self, classes: Mapping[str, frozenset[str]]) -> None:
        """How tools stand now, beside what annotations say of them."""
        taught = {}
        for name, found in classes.items():
            known = self.risk_classes.get(name)
            if known is None:
                continue
            now = (known & ANNOTATED_CLASSES) | found
            if now != known:
                self.risk_classes[name] = taught[name] = now
        if taught and self._kept is not None:
            self._kept.add(taught)

    def learn(self, result: Any) -> None:
        """From the result of `tools/list`."""
        self._read()
        taught = {}
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                name, classes = tool["name"], annotated_classes(tool.get("annotations"))
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


def annotated_classes(notes: Any) -> frozenset[str]:
    risks = set()
    if isinstance(notes, dict):
        if notes.get("readOnlyHint") is False or notes.get("destructiveHint") is True:
            risks.add("write_like")
        if notes.get("openWorldHint") is True:
            risks.add("network_like")
    return frozenset(risks)

"""The surface of a producer, made when the first list comes: until then nothing of it is imported."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from subluminal.mcp.tools import ToolNotes
    from subluminal.producer.producer import Producer
    from subluminal.producer.surface import Surface
    from subluminal.surface.items import Item


class SurfaceOnDemand:
    """`words`: the command of the server, or its address; nothing for one within this process."""

    __slots__ = ("_made", "_notes", "_producer", "_server_name", "_words")

    def __init__(self, producer: Producer, server_name: str, words: Sequence[str], notes: ToolNotes) -> None:
        self._producer = producer
        self._server_name = server_name
        self._words = words
        self._notes = notes
        self._made: Surface | None = None
        notes.surface = self
        producer.gate.schemas[server_name] = self.breaks_schema
        if producer.gate.results is not None:
            notes.keep_said = self._keep_said

    def _keep_said(self, method: str, result: bytes) -> None:
        if self._producer.gate.results is not None:
            self._producer.gate.results.said(self._server_name, method, result)

    def take_up(self, producer: Producer) -> None:
        self._producer = producer
        producer.gate.schemas[self._server_name] = self.breaks_schema
        if self._made is not None:
            self._made.take_up(producer)

    def _surface(self) -> Surface:
        if self._made is None:
            import os

            from subluminal.host.tools.known import launch_of
            from subluminal.producer.surface import Surface

            launch = launch_of(self._words, os.getcwd())
            self._made = Surface(self._producer, self._server_name, launch, self._notes)
        return self._made

    @property
    def edits(self) -> bool:
        return self._producer.gate.listing.edits

    def heard(self, method: str, result: bytes) -> Mapping[str, frozenset[str]]:
        return self._surface().heard(method, result)

    def scanned(self, items: list[Item]) -> Mapping[str, frozenset[str]]:
        return self._surface().scanned(items)

    def hides(self, tool_name: str, risk_classes: frozenset[str] | None) -> bool:
        return self._producer.gate.hides(self._server_name, tool_name, risk_classes)

    def breaks_schema(self, tool_name: str, args: dict[str, Any], which: str) -> str | None:
        return self._surface().breaks_schema(tool_name, args, which)

    def why_refused(self, tool_name: str) -> str | None:
        return None if self._made is None else self._made.why_refused(tool_name)

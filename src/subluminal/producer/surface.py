"""What one server says in one run, held against what is known and approved: the surface of a producer.

    surface = Surface(producer, "fs", launch)     then `notes.surface = surface`
    notes.heard(method, result)                   a list has come: known, judged, told in `tools_seen`
    surface.look()                                now and then: locks, approvals, other servers of the run, policies

Nothing here is on the way of a call: how a tool stands is in `notes.risk_classes` when its call comes. A list is looked
at when its client has it; only where a policy leaves tools out of lists, before.
"""

from __future__ import annotations

import os
from time import time_ns

import msgspec

from subluminal.contracts.moments import rfc3339
from subluminal.contracts.vocabulary import CHANGED, CHANGED_FOR_USER, SHADOWED, TOOL_NOT_LISTED, UNJUDGED_ARGS
from subluminal.core.engine.faults import Unavailable
from subluminal.host.tools.known import KnownFile
from subluminal.host.tools.locks import Locks
from subluminal.host.tools.run_names import RunNames
from subluminal.surface.differences import Version, changed_fields, describe
from subluminal.surface.items import INSTRUCTIONS, TOOL, Item, names_of, read_result
from subluminal.surface.known import KnownServer, see
from subluminal.surface.pins import Pin
from subluminal.surface.standing import Standing, standing
from subluminal.surface.texts import classes, findings, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from subluminal.core.gate.gate import Gate
    from subluminal.mcp.tools import ToolNotes
    from subluminal.producer.producer import Producer
    from subluminal.producer.schemas import InputSchemas
    from subluminal.surface.texts import Finding

# Of one item in an event; the file of what is known keeps more.
MAX_EVENT_DEFINITION = 16_384
# Items and characters of one event: journals are read line by line.
MAX_EVENT_ITEMS = 64
MAX_EVENT_CHARS = 262_144
QUARANTINED = "quarantined"
_ALL = frozenset((CHANGED, CHANGED_FOR_USER))


class Surface:
    """`notes` hears how tools stand when that changes by itself: somebody has approved, or a policy is another."""

    def __init__(self, producer: Producer, server_name: str, launch: str, notes: ToolNotes) -> None:
        self._server_name = server_name
        self._launch = launch
        self._notes = notes
        self._items: dict[str, Item] = {}
        self._found: dict[str, list[Finding]] = {}
        self._base: dict[str, Version | None] = {}
        self._sent: dict[str, Version] = {}
        self._changed: set[str] = set()
        self._standing: dict[str, Standing] = {}
        self._told: set[tuple[str, str]] = set()
        self._schemas: InputSchemas | None = None
        self.take_up(producer)

    def take_up(self, producer: Producer) -> None:
        """Whatever is recorded from now on is recorded there."""
        self._gate: Gate = producer.gate
        run_id = producer.gate.identity.run_id
        self._file = KnownFile(self._server_name, self._launch)
        self._known = KnownServer(self._server_name, self._launch)
        self._stamp = 0
        self._locks: Locks | None = None
        self._directory = producer.directory
        self._names = RunNames(run_id, self._server_name)
        self._listing: Any = None
        producer.looks.append(self.look)

    # -- lists ------------------------------------------------------------------------------------------------

    @property
    def edits(self) -> bool:
        return self._gate.listing.edits

    def heard(self, method: str, result: bytes) -> Mapping[str, frozenset[str]]:
        return self.scanned(read_result(method, result))

    def scanned(self, items: list[Item]) -> Mapping[str, frozenset[str]]:
        """Take in what a server says; the classes of its tools."""
        if not items:
            return {}
        for item in items:
            self._items[item.key] = item
            self._found[item.key] = findings(item.definition, item.unread)
        news = self._see(items)
        self._names.add(names_of(items))
        self._judge()
        self._tell(items, news)
        for item in items:
            if not (item.kind == TOOL and self._gate.hides(self._server_name, item.name, self._classes(item))):
                self._sent[item.key] = Version(item.fingerprint, item.fields, _text(item))
        if self._listing.checks:
            self._input_schemas()
        return self._by_tool(items)

    def _see(self, items: list[Item]) -> dict[str, str]:
        """What is news, and the fingerprint that was known before it."""
        at, identity = rfc3339(time_ns() // 1_000_000), self._gate.identity
        guards = self._gate.listing.guards
        news: dict[str, str] = {}

        def work(server: KnownServer) -> bool:
            writes = False
            for item in items:
                known = server.items.get(item.key)
                if known is not None:
                    if guards and not known.guarded:
                        known.guarded = writes = True
                    if item.key not in self._base:
                        self._base[item.key] = known.base if guards else known.last
                written, told = see(server, item, self._masked(item), at, identity.run_id, identity.client)
                writes = writes or written
                if told is not None:
                    news[item.key] = told.was
                if known is None and guards:
                    server.items[item.key].guarded = True
            return writes

        self._known = self._file.update(work)
        self._stamp = _stamp(self._file.path)
        self._accepted()  # what somebody has approved since the last look is seen here for the first time
        return news

    def _masked(self, item: Item) -> str:
        """Its definition as it may be kept."""
        if item.definition is None:
            return ""
        value = msgspec.json.decode(item.definition)
        masked = self._gate.masking.value(value)
        return item.definition.decode() if masked == value else msgspec.json.encode(masked, order="sorted").decode()

    # -- how it stands ----------------------------------------------------------------------------------------

    def _judge(self) -> None:
        locks = self._in_force()
        if self._schemas is not None:
            self._schemas.forget()
        self._listing = self._gate.listing
        if SHADOWED in self._listing.wanted:
            self._names.refresh()
        for key, item in self._items.items():
            user, repository = locks.pins(self._server_name, key)
            known = self._known.items.get(key)
            stands = standing(
                item,
                known,
                user,
                repository,
                self._gate.identity.run_id,
                base=self._base.get(key),
                sent=self._sent.get(key),
                sticky=key in self._changed,
            )
            if locks.broken is not None and not stands.classes & _ALL:
                stands = Standing(CHANGED, stands.classes | {CHANGED}, None, "a lock of tools cannot be read")
            if stands.classes & _ALL:
                self._changed.add(key)
            self._standing[key] = stands

    def _in_force(self) -> Locks:
        if self._locks is None:
            self._locks = Locks(self._directory)
            if self._locks.broken is not None:
                _say(f"{self._locks.broken}; every tool counts as changed until it is mended")
        return self._locks

    def _classes(self, item: Item) -> frozenset[str]:
        """Of what it says and how it stands; those that rules ask for."""
        found = self._standing[item.key].classes | classes(self._found[item.key])
        if item.kind == TOOL:
            found |= classes(self._found.get(f"{INSTRUCTIONS}:", []))
            if item.times > 1 or (SHADOWED in self._listing.wanted and self._names.other(item.name) is not None):
                found |= {SHADOWED}
        return frozenset(found & self._listing.wanted)

    def _by_tool(self, items: list[Item]) -> dict[str, frozenset[str]]:
        """Of these; of all where they say something of the server itself."""
        if any(item.kind == INSTRUCTIONS for item in items):
            items = list(self._items.values())
        return {item.name: self._classes(item) for item in items if item.kind == TOOL}

    def hides(self, tool_name: str, risk_classes: frozenset[str] | None) -> bool:
        return self._gate.hides(self._server_name, tool_name, risk_classes)

    # -- arguments --------------------------------------------------------------------------------------------

    def breaks_schema(self, tool_name: str, args: dict[str, Any], which: str) -> str | None:
        """What in the arguments does not fit the input schema of their tool; `which`: `pinned` or `listed`."""
        schemas, tool = self._schemas or self._input_schemas(), (tool_name, which)
        if tool not in schemas.of_tools:
            locks = self._in_force()
            if locks.broken is not None:
                raise Unavailable(UNJUDGED_ARGS, "a lock of tools cannot be read, and it may pin this one")
            user, repository = locks.pins(self._server_name, tool_name)
            pins = [pin for pin in (user, *repository) if pin is not None]
            if not pins and which != "listed":
                if tool_name in self._items:  # names that nobody listed are the agent's, and without end
                    schemas.of_tools[tool] = []
                return None
            listed = self._listed(tool_name)
            if listed is None and not pins:
                raise Unavailable(TOOL_NOT_LISTED)
            schemas.learn(tool, pins, listed)
        return schemas.first_error(tool, args)

    def _listed(self, tool_name: str) -> Version | None:
        """As this session was told; where another process of the run was, as it is known."""
        item = self._items.get(tool_name)
        if item is not None:
            return Version(item.fingerprint, item.fields, _text(item))
        known = self._file.read().items.get(tool_name) if tool_name in self._notes.risk_classes else None
        return None if known is None else known.last

    def _input_schemas(self) -> InputSchemas:
        if self._schemas is None:
            from subluminal.producer.schemas import InputSchemas

            self._schemas = InputSchemas()
        return self._schemas

    # -- now and then -----------------------------------------------------------------------------------------

    def look(self) -> None:
        if self._locks is None:
            return
        moved = self._gate.listing is not self._listing
        moved = self._locks.refresh() or moved
        moved = (SHADOWED in self._gate.listing.wanted and self._names.refresh()) or moved
        if _stamp(self._file.path) != self._stamp:
            moved = self._approved() or moved
        if moved:
            self._changed.clear()
            self._judge()
            self._notes.stand(self._by_tool(list(self._items.values())))

    def _approved(self) -> bool:
        """Whether somebody has approved what this session knows as changed."""
        self._stamp = _stamp(self._file.path)
        self._known = self._file.read()
        return self._accepted()

    def _accepted(self) -> bool:
        approved = [
            key
            for key, known in self._known.items.items()
            if key in self._items and known.approved == self._items[key].fingerprint
        ]
        for key in approved:
            item = self._items[key]
            self._base[key] = self._sent[key] = Version(item.fingerprint, item.fields, _text(item))
            self._changed.discard(key)
        return bool(approved)

    # -- words ------------------------------------------------------------------------------------------------

    def why_refused(self, tool_name: str) -> str | None:
        """What a caller is told of a tool that is quarantined: what has changed, and what can be done."""
        item, stands = self._items.get(tool_name), self._standing.get(tool_name)
        if item is None or stands is None or stands.state != CHANGED:
            return None
        name = f"{visible(self._server_name, '')}/{visible(tool_name, '')}"[:200]
        what = "" if stands.was is None else f" What differs: {self._what(item, stands.was)}."
        return (
            f"{name} is quarantined: {stands.why}.{what} Do without it; "
            f"a person can look at the change and approve it: sub tools approve {name}"
        )[:900]

    def _what(self, item: Item, was: Version) -> str:
        return describe(item.kind, was, Version(item.fingerprint, item.fields))

    def _tell(self, items: list[Item], news: dict[str, str]) -> None:
        """`tools_seen` of what is news, and of what has changed, once; with a line for people where policy says so."""
        told: list[dict[str, Any]] = []
        for item in items:
            stands = self._standing[item.key]
            known = self._known.items.get(item.key)
            version = "" if known is not None and known.unsteady else item.fingerprint
            if item.key in news or (stands.state == CHANGED and (item.key, version) not in self._told):
                told.append(self._entry(item, stands, news.get(item.key, "")))
                if stands.state == CHANGED and (item.key, version) not in self._told and self._listing.warns:
                    what = "" if stands.was is None else f" ({self._what(item, stands.was)})"
                    name = f"{visible(self._server_name, '')}/{visible(item.key, '')}"
                    _say(f"{name} has changed{what}: {stands.why}. To look: sub tools show {name}")
                self._told.add((item.key, version))
        wall_ms = time_ns() // 1_000_000
        while told:
            part: list[dict[str, Any]] = []
            size = 0
            while told and len(part) < MAX_EVENT_ITEMS and size < MAX_EVENT_CHARS:
                part.append(told.pop(0))
                size += len(part[-1].get("definition", "")) + len(part[-1].get("was_definition", ""))
            self._gate.tools_note({"server_name": self._server_name, "launch": self._launch, "items": part}, wall_ms)

    def _entry(self, item: Item, stands: Standing, was: str) -> dict[str, Any]:
        found = self._found[item.key]
        hidden = item.kind == TOOL and self._gate.hides(self._server_name, item.name, self._classes(item))
        quarantined = hidden and stands.state == CHANGED and self._listing.guards
        entry: dict[str, Any] = {
            "kind": item.kind,
            "name": self._gate.masking.name(item.name),
            "fingerprint": item.fingerprint,
            "state": QUARANTINED if quarantined else stands.state,
            "classes": sorted(stands.classes | classes(found)),
        }
        if item.fields:
            entry["fields"] = item.fields
        if was:
            entry["was"] = was
        if stands.was is not None:
            entry["was"] = stands.was.fingerprint
            entry["changed"] = changed_fields(item.kind, stands.was.fields, item.fields)
        if stands.why:
            entry["why"] = stands.why
        if isinstance(stands.was, Pin):
            entry["pinned"] = True
        if found:
            entry["findings"] = [f"{each.where}: {each.what}" if each.where else each.what for each in found[:8]]
        definition = self._masked(item)
        if 0 < len(definition) <= MAX_EVENT_DEFINITION:
            entry["definition"] = definition
        if stands.was is not None and 0 < len(stands.was.definition) <= MAX_EVENT_DEFINITION:
            entry["was_definition"] = stands.was.definition
        return entry


def _text(item: Item) -> str:
    return "" if item.definition is None else item.definition.decode()


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _say(message: str) -> None:
    """To stderr: stdout may belong to the protocol."""
    try:
        os.write(2, f"sub: {message}\n".encode("utf-8", "replace"))
    except OSError:
        pass

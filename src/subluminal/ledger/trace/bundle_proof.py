"""Prove that a trace bundle is whole: its files, its chain, and that everybody in it speaks for himself.

`sub ingest` takes in no bundle that fails here.
"""

from __future__ import annotations

import msgspec

from subluminal.contracts.errors import VerificationError
from subluminal.ledger.fold.ownership import owner_of
from subluminal.ledger.fold.reading import AnyEvent, BadEvent, read_event
from subluminal.ledger.read.ledger import Ledger
from subluminal.ledger.store.chain import GENESIS, link
from subluminal.ledger.store.links import hash_at
from subluminal.ledger.trace.bundle import Bundle, Manifest, Unsealed, open_bundle
from subluminal.ledger.trace.rebuilt import Rebuilt
from subluminal.ledger.trace.report import OWNERS, Fault, Report


def verify_bundle(path: str, ledger: Ledger | None = None) -> Report:
    """Check the files, the chain and who speaks in it; and that this machine's ledger, if it knows the run, tells the
    same as far as both go."""
    try:
        with open_bundle(path) as bundle:
            return verify_opened(bundle, ledger)
    except VerificationError as error:
        return Report("", 0, "", [Fault(str(error))])


def verify_opened(bundle: Bundle, ledger: Ledger | None) -> Report:
    manifest = bundle.manifest
    faults = bundle.faults()
    head, count = GENESIS, 0
    speakers = _Speakers(every_number=isinstance(bundle, Unsealed))
    meets, known = _meeting(ledger, manifest) if ledger is not None else (0, None)
    for line in bundle.lines():
        head, count = link(head, line), count + 1
        try:
            event = read_event(line)
        except BadEvent as error:
            faults.append(Fault(f"this event cannot be read: {error}", event=count))
            break
        if event.run_id != manifest.run_id:
            faults.append(Fault("this event is of another run", event=count))
        faults += speakers.hear(event, count)
        if count == meets and head != known:
            faults.append(Fault("the ledger on this machine recorded this run differently", event=count))
        if faults:
            break
    if not faults and (count != manifest.event_count or head.hex() != manifest.chain_head):
        what = f"the manifest counts {manifest.event_count} events with another chain head; there are {count}"
        faults.append(Fault(what, event=min(count, manifest.event_count) + (count != manifest.event_count)))
    if not faults and speakers.may_repeat:
        faults += _repeated(bundle)
    return Report(manifest.run_id, count, head.hex(), faults)


class _Speakers:
    """Who has said what, as far as it tells whether a ledger would take every event for what it claims to be."""

    def __init__(self, *, every_number: bool) -> None:
        self._every_number = every_number  # no manifest tells what is missing, but a shim numbers its events from 1
        self._numbers: dict[str, int] = {}
        self._free_ids: dict[str, str] = {}  # call ids of a form that does not say whose they are
        self.may_repeat = False

    def hear(self, event: AnyEvent, count: int) -> list[Fault]:
        shim_id, seq = event.source.shim_id, event.source.seq
        if seq is not msgspec.UNSET:
            expected = self._numbers.get(shim_id, 0) + 1
            self.may_repeat |= seq < expected
            self._numbers[shim_id] = seq
            if self._every_number and seq != expected:
                return [Fault(f"before this event, number {expected} of its shim is missing", event=count)]
        call_id = getattr(getattr(event, "call", None), "call_id", None)
        if call_id is None:
            return []
        owner = owner_of(call_id) or self._free_ids.setdefault(call_id, shim_id)
        if owner == shim_id:
            return []
        return [Fault(f"shim {shim_id} speaks of a call of shim {owner}", count, call_id, OWNERS, [owner, shim_id])]


def _repeated(bundle: Bundle) -> list[Fault]:
    """A shim's numbers went back: whether one of them stands for two events, a ledger of its own finds out."""
    with Rebuilt(keeping=True) as rebuilt:
        for count, line in enumerate(bundle.lines(), 1):
            try:
                rebuilt.replay([line])
            except BadEvent as error:
                return [Fault(str(error), event=count)]
    return []


def _meeting(ledger: Ledger, manifest: Manifest) -> tuple[int, bytes | None]:
    """The last event that bundle and ledger both have, and its hash in the ledger; 0 where it does not know the run."""
    sql = "SELECT run_no, event_count FROM runs WHERE run_id = ?"
    row = ledger.connection.execute(sql, (manifest.run_id,)).fetchone()
    if row is None:
        return 0, None
    last = min(row[1], manifest.event_count)
    return last, hash_at(ledger.connection, row[0], last)

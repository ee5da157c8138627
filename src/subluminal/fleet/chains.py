"""The chain of a run on one machine, followed over lines that a store holds. No I/O: lines are asked for.

What has not arrived is named as a gap, and beyond it the chain is taken up again where a head is known. As on the
machine, an edit, a removal or a reordering shows at the first event that it touches, or at the next head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from subluminal.ledger.store.chain import GENESIS, link
from subluminal.ledger.trace.report import OWNERS, Fault, Report

# (first_n, shim_id, first_seq, count) and (count, hash).
Span = tuple[int, str, int, int]
Head = tuple[int, str]
# (shim_id, first_seq, last_seq) -> by number, (machine, line) of each that is known.
Lines = Callable[[str, int, int], dict[int, list[tuple[str, str]]]]
_PIECE = 2000
_NAMED_CONFLICTS = 20


class _Chain:
    def __init__(self, run_id: str, machine: str, heads: Iterable[Head], owners: dict[str, str]) -> None:
        self._machine, self._owners = machine, owners
        self._heads: dict[int, set[str]] = {}
        for count, text in heads:
            self._heads.setdefault(count, set()).add(text)
        self.place = 0
        self.hash: bytes | None = GENESIS
        self.checked = 0
        self.witnessed = 0
        self.report = Report(run_id, 0, "", [])

    def _fault(self, what: str, event: int, part: str | None = None, shim_ids: list[str] | None = None) -> None:
        fault = Fault(f"{what} (machine {self._machine})", event=event, shim_ids=shim_ids)
        if part is not None:
            fault.part = part
        self.report.faults.append(fault)

    def skip_to(self, n: int) -> None:
        """Nothing is known of the events before n."""
        first = self.place + 1
        which = f"event {first} has" if n - 1 == first else f"events {first} to {n - 1} have"
        self._fault(f"{which} not arrived", first)
        self.place = n - 1
        known = self._heads.get(self.place, set())
        self.hash = bytes.fromhex(next(iter(known))) if len(known) == 1 else None

    def follow(self, candidates: list[tuple[str, str]], shim_id: str, seq: int) -> None:
        n = self.place + 1
        if not candidates:
            self.skip_to(n + 1)
            return
        if len(self.report.faults) < _NAMED_CONFLICTS:
            what = self._conflict(candidates, shim_id, seq)
            if what is not None:
                self._fault(what, n, OWNERS, [shim_id])
        own = [line for machine, line in candidates if machine == self._machine]
        line = (own or [line for _, line in candidates])[0]
        self.place = n
        self.checked += 1
        if self.hash is not None:
            self.hash = link(self.hash, line.encode())
        self._meet_head(n)

    def _conflict(self, candidates: list[tuple[str, str]], shim_id: str, seq: int) -> str | None:
        machines = {machine for machine, _ in candidates}
        different, told = len({line for _, line in candidates}), ", ".join(sorted(machines))
        owner = self._owners.get(shim_id, self._machine)
        if different > 1:
            return f"{different} different lines are known as event {seq} of shim {shim_id}, brought by {told}"
        if owner not in machines and self._machine != owner:
            return f"event {seq} of shim {shim_id} was brought by {told}, and the shim is of machine {owner}"
        return None

    def _meet_head(self, n: int) -> None:
        known = self._heads.get(n)
        if known is None:
            return
        if len(known) > 1:
            self._fault("the machine has told two different chains", n)
            self.hash = None
        elif self.hash is None:
            self.hash = bytes.fromhex(next(iter(known)))
        elif self.hash.hex() not in known:
            self._fault("this event, or one before it, was changed, moved or put in", n)
            self.hash = bytes.fromhex(next(iter(known)))
        else:
            self.witnessed = n

    def end(self) -> Report:
        last = max(self._heads, default=0)
        if last > self.place:
            self.skip_to(last + 1)
        self.report.events = self.checked
        self.report.head = self.hash.hex() if self.hash is not None else ""
        self.report.witnessed = self.witnessed
        return self.report


def verify_chain(
    run_id: str, machine: str, spans: Iterable[Span], heads: Iterable[Head], lines: Lines, owners: dict[str, str]
) -> Report:
    """`spans` by first_n; where two cover the same events, they must say the same of them. `owners`: the machine that
    each shim is of."""
    chain = _Chain(run_id, machine, heads, owners)
    covered: tuple[str, int] = ("", 0)  # shim and (seq - n) of the span that reaches furthest
    for first_n, shim_id, first_seq, count in spans:
        last_n = first_n + count - 1
        if first_n <= chain.place and (shim_id, first_seq - first_n) != covered:
            chain._fault("the machine has told two different events of this place", first_n)
        if last_n <= chain.place:
            continue
        if first_n > chain.place + 1:
            chain.skip_to(first_n)
        at = chain.place + 1
        while at <= last_n:
            to = min(last_n, at + _PIECE - 1)
            known = lines(shim_id, first_seq + at - first_n, first_seq + to - first_n)
            for n in range(at, to + 1):
                seq = first_seq + n - first_n
                chain.follow(known.get(seq, []), shim_id, seq)
            at = to + 1
        covered = (shim_id, first_seq - first_n)
    return chain.end()

"""Which machine a producer is of: the one that was first to send anything of it.

What another machine brings of it is kept and alerts; it may add what the first has not told, for a home can go on under
another name (a volume that outlives its pod), and replaces nothing (`stores.tables`).

Where several collectors claim one producer for different machines within the same moment, ClickHouse lets each find its
own. So what is young is asked for again with every commit, and only what is settled is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from subluminal.contracts.moments import rfc3339
from subluminal.fleet.collector.rows import Batch
from subluminal.fleet.stores.base import Producer, Store
from subluminal.fleet.stores.tables import claim, claimant

_SETTLED_MS = 10_000
# Remembered at once; beyond it all are asked for again.
_MOST = 100_000


class Owners:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._settled: dict[Producer, str] = {}
        self._day = ""

    def sorted_out(self, batches: Sequence[Batch], now_ms: int) -> list[Batch]:
        """Those of machines that the producer is not of, as such."""
        owners = self._owners([each for batch in batches for each in batch.brought()], now_ms)
        return [
            batch if all(owners[producer] == machine for producer, machine in batch.brought()) else batch.aside()
            for batch in batches
        ]

    def _owners(self, brought: list[tuple[Producer, str]], now_ms: int) -> dict[Producer, str]:
        moment, settled = rfc3339(now_ms), rfc3339(now_ms - _SETTLED_MS)
        if moment[:10] != self._day or len(self._settled) > _MOST:
            self._settled, self._day = {}, moment[:10]  # a claim is kept for as long as it was asked for
        asked = {
            producer: (*producer, claim(moment, machine), self._day)
            for producer, machine in reversed(brought)
            if producer not in self._settled
        }
        claims = self._store.claim(list(asked.values())) if asked else {}
        owners = {producer: claimant(text) for producer, text in claims.items()}
        self._settled.update({producer: owners[producer] for producer, text in claims.items() if text < settled})
        return {producer: owners.get(producer) or self._settled[producer] for producer, _ in brought}

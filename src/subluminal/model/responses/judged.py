"""The calls of one answer: what each was judged to be, so that the same call told again gets the same judgement."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from subluminal.contracts.digest import blake2b
from subluminal.model.responses.items import Call
from subluminal.model.responses.remembered import Remembered
from subluminal.model.responses.told import refused_item, shortened
from subluminal.model.words import Emitted, ModelFault

# More than any answer has. What is kept of each is some hundred bytes, or the item of a refusal.
MAX_CALLS = 1_000
# An answer as a whole repeats all items, the request's tools and its instructions.
_WHOLE_TIMES = 4
_WHOLE_BESIDES = 4 << 20
TOO_LARGE = "the call is larger than {} bytes"


def largest_whole(max_call_bytes: int) -> int:
    """Of how many bytes an answer is held, as one text or as the last event of a stream."""
    return _WHOLE_TIMES * max_call_bytes + _WHOLE_BESIDES


class Judged(Struct, eq=False):
    """`told`: the item that stands for it at the client, once it is refused."""

    digest: bytes
    told: bytes | None = None


class Judgements:
    __slots__ = ("_by_id", "_count", "_max_call_bytes", "_remembered", "_seen", "kept", "model", "response_id")

    def __init__(self, max_call_bytes: int, remembered: Remembered) -> None:
        self._max_call_bytes = max_call_bytes
        self._remembered = remembered
        self._by_id: dict[str, list[Judged]] = {}
        self._count = 0
        self.kept = 0  # bytes of refused items
        self._seen: set[bytes] = set()
        self.response_id: str | None = None
        self.model: str | None = None

    def new(
        self,
        call: Call,
        allowed: Callable[[], bytes],
        refused: Callable[[bytes], bytes],
        fault: str | None = None,
        *,
        cut: bool = False,
    ) -> tuple[Judged, Emitted]:
        """`allowed` gives what passes then, `refused` what passes around the item in its place. `cut`: not all of the
        call has been seen."""
        before = self._by_id.setdefault(call.id, [])
        if before and call.id:
            fault = fault or "another call has its call_id"
        self._counted()
        judged = Judged(call.digest)
        before.append(judged)
        large = cut or len(call.item.text) > self._max_call_bytes

        def decided(text: str | None) -> bytes:
            if text is None:
                return allowed()
            judged.told = refused_item(call, text, shortened(call) if large else None)
            self.kept += len(judged.told)
            self._remembered.keep(self.response_id, call.id, call.kind, text)
            return refused(judged.told)

        emitted = Emitted(
            id=call.id,
            kind=call.kind,
            name=call.name,
            arguments=b"{}" if large else call.arguments,
            decided=decided,
            namespace=call.namespace,
            fault=fault or call.fault,
            too_large=TOO_LARGE.format(self._max_call_bytes) if large else None,
        )
        return judged, emitted

    def repeated(self, call: Call, but: list[Judged]) -> Judged | None:
        """The judgement of the same call, told before; none of `but`."""
        for judged in self._by_id.get(call.id, ()):
            if judged.digest == call.digest and not any(judged is other for other in but):
                return judged
        return None

    def sees(self, item: str | bytes) -> bool:
        """Whether an item of the provider's own, by its id or its text, was not seen before."""
        digest = blake2b(item if isinstance(item, bytes) else item.encode("utf-8", "replace"), digest_size=16).digest()
        if digest in self._seen:
            return False
        self._counted()
        self._seen.add(digest)
        return True

    def _counted(self) -> None:
        self._count += 1
        if self._count > MAX_CALLS:
            raise ModelFault("an answer has more calls than are held")

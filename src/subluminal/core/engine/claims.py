"""One call that several doors of a run see (a hook, a shim, the model API) is charged once.

Every door asks every access rule; only what is counted is counted once. Doors see the same call if the client's own id
of it, the server, the tool and the arguments are the same. The first door that lets it through leaves a claim, and the
next door that finds it charges nothing. A door claims an id once: the same id again at the same door is another call,
and a refused call leaves no claim, so that an id is never a way round a limit.

A claim is a mark: when, and which doors. It lasts as long as a person may take to answer the client's question whether
the call may be made.
"""

from __future__ import annotations

from msgspec import Struct

from subluminal.contracts.digest import blake2b
from subluminal.contracts.tool_use import tool_use_id
from subluminal.contracts.vocabulary import TRANSPORTS
from subluminal.core.engine.state import CLOCK_SLACK_MS, KEY_BYTES, MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.rules import Judgement
    from subluminal.core.engine.state import Op

CLAIM_MS = 3_600_000
_DOORS = {transport: 1 << number for number, transport in enumerate(TRANSPORTS)}


class Claim(Struct, eq=False, gc=False):
    """`doors` that have let the call through, ours included. `joined`: there was another before us."""

    key: bytes
    doors: int
    joined: bool

    def op(self, mono_ms: int) -> Op:
        return (MARK, self.key, (mono_ms, self.doors))


def claim_of(judgement: Judgement) -> Claim | None:
    """None: the client gave the call no id, or its arguments were not read."""
    call = judgement.call
    name = tool_use_id(call.call_context)
    read_args_hash = judgement.read_args_hash
    args_hash = read_args_hash() if name is not None else ""
    if name is None or not args_hash:
        return None
    digest = blake2b(digest_size=KEY_BYTES)
    for part in ("claim", name, call.server_name, call.tool_name, args_hash):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw) + raw)
    key: bytes = digest.digest()
    door = _DOORS.get(call.transport, _DOORS["unknown"])
    mark = judgement.state.get(MARK, key)
    if mark is None or mark[1] & door or not -CLOCK_SLACK_MS <= judgement.mono_ms - mark[0] < CLAIM_MS:
        return Claim(key, door, False)
    return Claim(key, mark[1] | door, True)

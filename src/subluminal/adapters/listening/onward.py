"""The headers of a request as a server behind a URL gets them.

What the client may not choose is set: Host, what is asked of the encoding, and headers that are injected. What is ours
stays here: who acts, and the token of this door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from subluminal.adapters.listening.front import OURS
from subluminal.http.heads import Headers, RequestHead, without

if TYPE_CHECKING:
    from collections.abc import Iterable

_DROPPED = OURS | frozenset((b"host", b"content-length", b"expect", b"origin", b"referer"))
# Of a message that is read on its way back, and belongs to no page.
_OF_PAGES = (b"accept-encoding", b"cookie")


def onward(
    head: RequestHead, authority: bytes, injected: Headers, but: Iterable[bytes] = (), *, unread: bool = False
) -> Headers:
    """`but`: what is not passed on either, in lower case. `unread`: nothing of the answer is looked at."""
    dropped = _DROPPED.union(but, (name.lower() for name, _ in injected), () if unread else _OF_PAGES)
    asked = [] if unread else [(b"accept-encoding", b"identity")]
    return [(b"host", authority), *without(head.headers, dropped), *asked, *injected]

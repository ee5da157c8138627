"""Files of an origin over HTTP, within bounds: how long one may take, and (python-tuf counts) how many bytes it has.
On the way it is noted what time the origin says it is.

python-tuf's own fetcher bounds the pause between two bytes only: an origin that sends one byte a second would hold a
machine on an old state for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING

import urllib3
from tuf.api.exceptions import SlowRetrievalError
from tuf.ngclient.urllib3_fetcher import Urllib3Fetcher

from subluminal.fleet.machine.clock import ahead_ms

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

# Between two bytes; and for one file: 40 MB over a slow line.
PAUSE_S = 10
FILE_S = 60.0
_CHUNK_BYTES = 1 << 16


class BoundedFetcher(Urllib3Fetcher):  # type: ignore[misc]
    def __init__(self, user_agent: str, file_s: float = FILE_S) -> None:
        super().__init__(socket_timeout=PAUSE_S, app_user_agent=user_agent)
        self._file_s = file_s
        self.ahead_ms: int | None = None

    def _chunks(self, response: BaseHTTPResponse) -> Iterator[bytes]:
        until = monotonic() + self._file_s
        self.ahead_ms = ahead_ms(response.headers)
        try:
            while chunk := response.read1(_CHUNK_BYTES):
                yield chunk
                if monotonic() > until:
                    raise SlowRetrievalError(f"not whole after {self._file_s:g} s")
        except urllib3.exceptions.TimeoutError as error:
            raise SlowRetrievalError from error
        finally:
            # What is left of an answer that was given up is not read.
            response.close()

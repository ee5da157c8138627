"""One reading of every model API: what passes in an answer, and what a request says.

    request = api.read_request(body)            ModelFault: nobody can say what it means
    answer = api.answer(streamed)               one for each answer
    for piece in answer.feed(data): ...         and `answer.end()` at its end

Pieces come in the order in which they go to the client. An `Emitted` waits for its judgement, and what comes after it
waits behind it; nothing else is held. Whatever passes the client is in some piece: bytes as they are, or what a piece
gives when its turn has come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from subluminal.contracts.members import Misread

# What cannot be read in one way only is told by the one class, whoever read it.
ModelFault = Misread


class Emitted(Struct, eq=False):
    """A tool call in an answer, which the client would carry out.

    `kind` is the API's own word (`tool_use`, `function_call`, `custom_tool_call`, ...), `name` and `namespace` are the
    model's. `arguments` are JSON text, byte for byte as far as the API has JSON; a free-form input is
    `{"input": "..."}`. `fault`: two clients could carry out different things; the arguments may be no JSON then.
    `too_large`: it was not held as a whole. Only the beginning of the arguments may be left, and where the call itself
    is gone `decided(None)` is a refusal too.
    """

    id: str
    kind: str
    name: str
    arguments: bytes
    decided: Callable[[str | None], bytes]  # with None: allowed; else the text of the refusal. What passes now
    namespace: str = ""
    fault: str | None = None
    too_large: str | None = None


class Observed(Struct, eq=False):
    """A call that the provider has carried out itself. `server`: the connector, where the tool is one's.

    Empty `arguments` were not held."""

    id: str
    kind: str
    name: str
    arguments: bytes = b"{}"
    server: str = ""
    result: bytes = b""
    failed: str | None = None  # what it says of its failure


class Usage(Struct, eq=False, omit_defaults=True):
    """What the provider states of one message, in its own numbers; None: it did not say."""

    message_id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    server_tool_requests: int | None = None
    cached_in_input: bool | None = None  # whether `input_tokens` includes the cached ones


class Later(Struct, eq=False):
    """Bytes that depend on judgements before it: asked for when its turn has come."""

    render: Callable[[], bytes]


Piece = bytes | Emitted | Observed | Usage | Later


class Answer(Protocol):
    """One answer as it passes. After a ModelFault nothing more of it may go to the client."""

    @property
    def kept(self) -> int:
        """How many bytes it keeps, roughly: of calls that are not whole, and of what waits behind them."""

    def feed(self, data: bytes) -> list[Piece]: ...
    def end(self) -> list[Piece]: ...


class Returned(Struct, eq=False):
    """The result of a call, as the client tells it. `failed`: what it says of its failure, None: it did not fail."""

    id: str
    content: bytes
    failed: str | None = None


class Offered(Struct, eq=False):
    """A tool that the provider would run itself, as the request defines it: `definition` is that JSON text.

    `server` names a connector, and then `name` is empty. `secrets` stand in the definition: nobody else may see them.
    """

    kind: str
    name: str
    definition: bytes
    server: str = ""
    secrets: list[str] = []


class Request(Struct, eq=False):
    """`body` is what the provider is to get: refused calls in the history as it emitted them, their results in our
    words. The same bytes where there is nothing to restore."""

    body: bytes
    streamed: bool
    model: str = ""
    results: list[Returned] = []
    offered: list[Offered] = []

    def without(self, refused: list[Offered]) -> bytes:
        """`body` with these tools taken out. Of one API: overridden there."""
        raise NotImplementedError


class Api(Protocol):
    """One API. Modules `model.anthropic.api` and `model.responses.api` each have one as `API`."""

    name: str

    def read_request(self, body: bytes) -> Request: ...
    def answer(self, streamed: bool, max_call_bytes: int) -> Answer:
        """`streamed`: as an event stream; else one JSON text. A call of more than `max_call_bytes` is not held."""

    def error(self, status: int, message: str, data: dict[str, object] | None = None) -> bytes:
        """A body of an error in this API's form, `data` as its `subluminal` member."""

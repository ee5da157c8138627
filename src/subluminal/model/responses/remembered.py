"""Refused calls of which the provider keeps the history itself.

A client that sends `previous_response_id` sends no history, so that its answer to a refused call comes alone: neither
the model's call nor our reason stands beside it. They are remembered here, by the response that they were in, for as
long as there is room: the client's next request comes at once or never. What is not remembered any more (another
process, another day) goes to the provider in the client's words. Of a `conversation`, nothing says which response an
answer belongs to, and nothing is put back.
"""

from __future__ import annotations

MAX_RESPONSES = 1_024
# A reason is a sentence or two; a response with more refused calls than this is no agent's.
MAX_CALLS = 64


class Remembered:
    __slots__ = ("_responses",)

    def __init__(self) -> None:
        self._responses: dict[str, dict[str, tuple[str, str]]] = {}

    def keep(self, response_id: str | None, call_id: str, kind: str, text: str) -> None:
        if not response_id:
            return
        calls = self._responses.pop(response_id, {})
        if len(calls) < MAX_CALLS:
            calls[call_id] = (kind, text)
        self._responses[response_id] = calls  # the latest stands last
        if len(self._responses) > MAX_RESPONSES:
            del self._responses[next(iter(self._responses))]

    def of(self, response_id: str | None) -> dict[str, tuple[str, str]]:
        """By call_id: the kind of the call, and why it was refused."""
        return self._responses.get(response_id or "", {})

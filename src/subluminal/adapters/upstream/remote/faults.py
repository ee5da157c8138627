"""Why a message has no answer: one sentence for the client, with nothing of what was sent and no more of the URL than
its origin."""

from __future__ import annotations


class Fault(Exception):
    """`sentence` is for a person; `code` is that of the JSON-RPC error where it is not the usual one."""

    def __init__(self, sentence: str, code: int | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code


class NoAnswer(Fault):
    """The server could not be reached, or its answer has no end."""

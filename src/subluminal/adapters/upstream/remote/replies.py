"""Who waits for which answer, and what the client is told.

A reply goes on if somebody waits for it, and ends that wait, on whatever stream it comes. One that nobody waits for is
dropped: the client has its answer already, or never asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from subluminal.adapters.upstream.remote.answers import Answer
from subluminal.adapters.upstream.remote.faults import Fault
from subluminal.adapters.upstream.remote.held import Held, Message
from subluminal.adapters.upstream.remote.messages import Outgoing, in_utf_8, read_incoming
from subluminal.adapters.upstream.remote.pipes import LineWriter
from subluminal.contracts.jsontext import quote
from subluminal.mcp.refusal import SERVER_GONE


class Post:
    """A message on its way to the server. `open` are the ids that have no answer yet, raw, under their keys.

    `ours`: it was sent by ourselves in the client's name, and the client has had its answer before.
    """

    __slots__ = ("answer", "cancelled", "error", "open", "ours", "outgoing", "result", "settled", "started", "stream")

    def __init__(self, outgoing: Outgoing, *, ours: bool = False) -> None:
        self.outgoing = outgoing
        self.ours = ours
        self.open = dict(outgoing.ids)
        self.cancelled = False  # the client waits no more
        self.answer: Answer | None = None
        self.result: bytes | None = None  # of its last reply
        self.error: bytes | None = None
        self.stream: Answer | None = None  # where its reply comes, if not as its own answer
        self.started = asyncio.Event()  # it is on a connection, or will never be
        self.settled = asyncio.Event()
        if not self.open:
            self.settled.set()


class Replies:
    """`learned(post)` is told of a result before the client is."""

    def __init__(self, writer: LineWriter, name: str) -> None:
        self._writer = writer
        self._name = name
        self._waiting: dict[bytes, list[Post]] = {}
        self.learned: Callable[[Post], None] = lambda post: None

    def expect(self, post: Post) -> None:
        for key in post.open:
            self._waiting.setdefault(key, []).append(post)

    def find(self, key: bytes) -> Post | None:
        posts = self._waiting.get(key)
        return posts[0] if posts else None

    def waiting(self) -> list[Post]:
        return list({id(post): post for posts in self._waiting.values() for post in posts}.values())

    def forget(self, post: Post) -> None:
        for key in list(post.open):
            self._answered(post, key)

    async def deliver(self, message: Message, post: Post | None) -> None:
        """A whole message of the server, on the stream of `post` or on one of nobody's."""
        if isinstance(message, Held):
            message.finish()
            if message.fault is not None:
                raise Fault(f"a message of the server {message.fault}.")
        else:
            message = in_utf_8(message)
        incoming = read_incoming(message)
        if not incoming.readable:
            return
        replies = incoming.replies
        if post is not None and list(replies) == [b"null"] and len(post.open) == 1 and incoming.error is not None:
            # Refused before its id was read; whose answer it is, the connection tells.
            await self._fail_with(post, incoming.error)
            return
        wanted = incoming.has_more
        for key, result in replies.items():
            owner = post if post is not None and key in post.open else self.find(key)
            if owner is None:
                continue
            self._answered(owner, key)
            owner.result, owner.error = result, incoming.error
            self.learned(owner)
            wanted = wanted or not owner.ours
        if wanted:
            await self._writer.write_line(message)

    async def fail(self, post: Post, fault: Fault) -> None:
        """Every request in it is answered with an error."""
        code = SERVER_GONE if fault.code is None else fault.code
        sentence = quote(f"{self._name}: {fault.sentence}")
        await self._fail_with(post, f'{{"code":{code},"message":{sentence}}}'.encode("utf-8", "replace"))

    async def _fail_with(self, post: Post, error: bytes) -> None:
        post.error = error
        for key, raw in list(post.open.items()):
            self._answered(post, key)
            if not post.ours and not post.cancelled:
                await self._writer.write_line(b'{"jsonrpc":"2.0","id":' + raw + b',"error":' + error + b"}")

    async def refuse(self, post: Post, error: bytes) -> None:
        """The server's own error, which it sent beside a status that is no success."""
        await self._fail_with(post, error)

    def _answered(self, post: Post, key: bytes) -> None:
        del post.open[key]
        posts = self._waiting.get(key, [])
        if post in posts:
            posts.remove(post)
            if not posts:
                del self._waiting[key]
        if not post.open:
            post.settled.set()

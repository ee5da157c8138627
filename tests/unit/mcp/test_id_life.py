"""The life of ids, against a reference model: whatever is sent in whatever order, every reply ends its own call.

The model is what a reader of the specification would write on paper: which request has an id, and how many replies
are still due for it. `make fuzz` runs it with many more examples.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from harness.exchange import Talk

TIMEOUT_MS = 100
IDS = st.sampled_from([b"1", b"2", b'"1"', b"null", b"1.0", b'"\\u0031"', b"-0"])
SAME = {b"1.0": b"1", b'"\\u0031"': b'"1"', b"-0": b"0"}
METHODS = st.sampled_from(["tools/call", "tools/call", "ping", "tools/list", "x/y"])
HOW = st.sampled_from(["held", "large", "batch"])
OUTCOMES = {"OK": b'"result":{"content":[]}', "ERROR": b'"error":{"code":1,"message":"no"}'}


def key(raw: bytes) -> bytes:
    return SAME.get(raw, raw)


class IdLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.talk = Talk()
        self.open: dict[bytes, tuple[str, int] | None] = {}  # a call's name and when it was sent; None: no call
        self.due: Counter[bytes] = Counter()  # replies to requests that were given up
        self.ends: list[tuple[str, str]] = []
        self.sent = 0

    @initialize(mode=st.sampled_from(["guardrails", "control", "observe"]))
    def begin(self, mode: str) -> None:
        self.refuses = mode != "observe"
        self.talk = Talk(mode=mode, timeout_ms=TIMEOUT_MS)

    # -- the client

    @rule(raw=IDS, method=METHODS, how=HOW)
    def request(self, raw: bytes, method: str, how: str) -> None:
        self.sent += 1
        name = f"t{self.sent}" if method == "tools/call" else f"({method})"
        params = b'{"name":"%s","arguments":{}}' % name.encode()
        line = b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}' % (raw, method.encode(), params)
        taken = key(raw) in self.open or self.due[key(raw)] > 0
        out = self._send(line, how)
        if taken and self.refuses:
            assert [side for side, _ in out] == ["client"]
            (answer,) = json.loads(b"[%s]" % out[0][1].strip(b"[]"))
            assert answer["id"] == json.loads(raw)
            assert answer["error"]["data"]["subluminal"]["reason_code"] == "AMBIGUOUS_MESSAGE"
            self.ends.append((name, "ERROR"))
            return
        assert [side for side, _ in out] == ["server"]
        assert line in out[0][1]
        if taken:
            self._mix_up(key(raw), name)
        else:
            self.open[key(raw)] = (name, self.talk.at_ns) if method == "tools/call" else None

    def _mix_up(self, id: bytes, name: str) -> None:
        if id in self.open:
            first = self.open.pop(id)
            self.due[id] += 1
            if first is not None:
                self.ends.append((first[0], "CANCELLED"))
        self.due[id] += 1
        self.ends.append((name, "CANCELLED"))

    def _send(self, line: bytes, how: str) -> list[tuple[str, Any]]:
        if how == "large":
            return self.talk.client_large(line)
        return self.talk.client(b"[%s]" % line if how == "batch" else line)

    @rule(raw=IDS)
    def cancel(self, raw: bytes) -> None:
        line = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}' % raw
        assert self.talk.client(line) == [("server", line)]
        self._give_up(key(raw), "CANCELLED")

    def _give_up(self, id: bytes, status: str) -> None:
        if id in self.open:
            call = self.open.pop(id)
            self.due[id] += 1
            if call is not None:
                self.ends.append((call[0], status))

    @rule(ms=st.sampled_from([10, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.talk.wait(ms)
        self.talk.tick()
        limit = self.talk.at_ns - TIMEOUT_MS * 1_000_000
        for id, call in list(self.open.items()):
            if call is not None and call[1] < limit:
                self._give_up(id, "TIMEOUT")

    @rule(raw=IDS)
    def the_client_answers_a_request_of_the_server(self, raw: bytes) -> None:
        line = b'{"jsonrpc":"2.0","id":%s,"result":{}}' % raw
        assert self.talk.client(line) == [("server", line)]

    # -- the server

    @rule(raw=IDS, how=HOW, outcome=st.sampled_from(sorted(OUTCOMES)))
    def reply(self, raw: bytes, how: str, outcome: str) -> None:
        line = b'{"jsonrpc":"2.0","id":%s,%s}' % (raw, OUTCOMES[outcome])
        if how == "large":
            self.talk.server_large(line)
        else:
            sent = b"[%s]" % line if how == "batch" else line
            assert self.talk.server(sent) == [("client", sent)]
        id = key(raw)
        if id in self.open:
            call = self.open.pop(id)
            if call is not None:
                self.ends.append((call[0], outcome))
        elif self.due[id]:
            self.due[id] -= 1

    @rule(raw=IDS, how=HOW)
    def the_server_asks_under_an_id_of_its_own(self, raw: bytes, how: str) -> None:
        line = b'{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{}}' % raw
        if how == "large":
            self.talk.server_large(line)
        else:
            assert self.talk.server(line) == [("client", line)]

    # -- always

    @invariant()
    def every_call_has_ended_as_the_model_says(self) -> None:
        assert self.talk.ends() == self.ends
        assert self.talk.exchange.calls_open == sum(call is not None for call in self.open.values())

    def teardown(self) -> None:
        self.talk.abandon()
        started = Counter(e["call"]["call_id"] for e in self.talk.events if e["type"] == "tool_call_start")
        ended = Counter(e["call"]["call_id"] for e in self.talk.events if e["type"] == "tool_call_end")
        assert started == ended
        assert set(started.values()) <= {1}


TestIdLife = IdLife.TestCase
TestIdLife.settings = settings(stateful_step_count=30)

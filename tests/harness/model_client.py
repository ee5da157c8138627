"""`sub proxy messages` in a test, and an agent that asks its model there: the loop of every client.

with messages_proxy(tmp_path, policy, upstream=model.url) as door:
    agent = ModelAgent(door, ["Bash"])
    agent.ask("List the files.")
    agent.executed, agent.history
door.events.events()            after the block it has ended and every event is written
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.proxy import SECONDS, Answer, Proxy
from harness.shim import isolated_env, write_policy
from harness.sink import EventFile

PATH = "/v1/messages"
MAX_TURNS = 20


@contextmanager
def messages_proxy(
    place: Path,
    policy: dict[str, Any] | str | Path | None = None,
    *,
    upstream: str,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    stderr: int | None = None,
) -> Iterator[Proxy]:
    events = EventFile(place / "events.jsonl")
    words = [sys.executable, "-m", "subluminal", "proxy", "messages", "--json", "--upstream", upstream]
    words += ["--events", events.argument, *options]
    words += [] if policy is None else ["--policy", str(write_policy(place, policy))]
    process = subprocess.Popen(
        words,
        env=isolated_env(place, **(env or {})),
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline() or b"{}")
        door = Proxy(int(ready["listening"].rpartition(":")[2]), PATH, events, process)
        yield door
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == door.expected_status
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


class Refused(Exception):
    """The API answered with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status}: {answer.body[:500]!r}")
        self.answer = answer


class ModelAgent:
    """`tools`: the names it has; `failing`: those that fail, and with what. All others are unknown to it."""

    def __init__(
        self, door: Proxy, tools: Iterable[str], failing: Mapping[str, str] | None = None, *, stream: bool = True
    ) -> None:
        self._door = door
        self._tools = set(tools)
        self._failing = dict(failing or {})
        self.stream = stream
        self.history: list[dict[str, Any]] = []
        self.executed: list[tuple[str, Any]] = []

    def ask(self, said: str) -> str:
        """Until the model calls no more tools; what it said last."""
        self.history.append({"role": "user", "content": said})
        for _ in range(MAX_TURNS):
            content = self.turn()
            called = [block for block in content if block["type"] == "tool_use"]
            if not called:
                return "".join(block.get("text", "") for block in content)
            self.history.append({"role": "user", "content": [self._carry_out(block) for block in called]})
        raise AssertionError("the model does not come to an end")

    def turn(self) -> list[dict[str, Any]]:
        """One request; its answer is kept in the history."""
        answer = self._door.post(self.request())
        if answer.status != 200:
            raise Refused(answer)
        content = read_content(answer)
        self.history.append({"role": "assistant", "content": content})
        return content

    def request(self) -> dict[str, Any]:
        return {"model": "scripted", "max_tokens": 100, "stream": self.stream, "messages": self.history}

    def _carry_out(self, block: dict[str, Any]) -> dict[str, Any]:
        name = block["name"]
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": block["id"]}
        if name in self._failing:
            self.executed.append((name, block["input"]))
            return {**result, "content": self._failing[name], "is_error": True}
        if name not in self._tools:
            return {**result, "content": f"Error: No such tool available: {name}", "is_error": True}
        self.executed.append((name, block["input"]))
        return {**result, "content": f"{name} is done"}


def read_content(answer: Answer) -> list[dict[str, Any]]:
    """As a client reads it: the blocks of a message, streamed or whole."""
    if not answer.header("content-type").startswith("text/event-stream"):
        content: list[dict[str, Any]] = answer.json()["content"]
        return content
    blocks: dict[int, dict[str, Any]] = {}
    spelled: dict[int, str] = {}
    for event in answer.events():
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                blocks[event["index"]]["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                spelled[event["index"]] = spelled.get(event["index"], "") + delta["partial_json"]
        elif event["type"] == "content_block_stop" and blocks[event["index"]]["type"] == "tool_use":
            blocks[event["index"]]["input"] = json.loads(spelled.get(event["index"]) or "{}")
    return [blocks[index] for index in sorted(blocks)]


def results(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What a model is shown of its calls."""
    blocks = [
        block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return [block for block in blocks if block["type"] == "tool_result"]


def called(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls in the history that a model is shown."""
    blocks = [
        block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return [block for block in blocks if block["type"] == "tool_use"]

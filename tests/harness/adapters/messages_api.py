"""The model API: a scripted model emits each call, an agent carries it out and tells the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from harness.adapters.hook import told_in_the_record
from harness.adapters.http import IDENTITY
from harness.adapters.in_process import as_its_own_process
from harness.adapters.interface import Adapter, Outcome, Session, Setting
from harness.http_servers import Heard, Wire
from harness.model_client import ModelAgent, Refused, called, messages_proxy, read_content, results
from harness.model_server import Block, Model, block_events, calls, message_events, says, scripted_model, text
from harness.proxy import Answer, Proxy
from harness.sink import EventFile
from subluminal.host.run.tool_notes import RunToolNotes


class UnderWay:
    """An answer that the model began before anything was decided: by it, calls may come after the end of a run."""

    def __init__(self, door: Proxy, model: Model) -> None:
        self._to_say: SimpleQueue[Block | None] = SimpleQueue()
        model.add(self._say)
        self._connection = door.connect()
        self._connection.send(door.request(b'{"stream":true,"model":"m","max_tokens":9,"messages":[]}'))
        assert self._connection.head()[0] == 200
        self._said = 0

    def _say(self, heard: Heard, wire: Wire) -> None:
        wire.stream()
        begin, *_ = message_events()
        wire.send(begin)
        index = 0
        while (block := self._to_say.get()) is not None:
            wire.send(b"".join(block_events(index, block)))
            index += 1

    def call(self, block: Block) -> Block:
        """What the client gets of a call."""
        self._to_say.put(block)
        seen = b""
        while b"content_block_stop" not in seen or not seen.endswith(b"\n\n"):
            seen += self._connection.read_chunk()
        (got,) = read_content(Answer(200, {"content-type": ["text/event-stream"]}, seen))
        return got

    def close(self) -> None:
        self._to_say.put(None)
        self._connection.close()


class ModelSession(Session):
    def __init__(self, door: Proxy, model: Model, under_way: UnderWay, setting: Setting, *, stream: bool) -> None:
        self._model = model
        self._under_way = under_way
        self._setting = setting
        self.events: EventFile = door.events
        self._calls = 0
        failing = {self._name(tool): why for tool, why in setting.failing.items()}
        self._agent = ModelAgent(door, map(self._name, setting.tools), failing, stream=stream)

    def _name(self, tool: str) -> str:
        return f"mcp__{self._setting.server_name}__{tool}"

    @property
    def executed(self) -> list[str]:
        return [name.rpartition("__")[2] for name, _ in self._agent.executed]

    def call_text(self, tool: str, arguments: str) -> Outcome:
        self._calls += 1
        self._model.add(says(calls(self._name(tool), arguments, f"toolu_{self._calls}")), says(text("Done.")))
        before = len(self.executed)
        try:
            self._agent.ask("Go on.")
        except Refused as refused:  # the run is over, and its model is asked no more
            assert refused.answer.json()["subluminal"]["action"] == "TERMINATE_RUN"
            asked = self._agent.history[-2]["content"]
            block = asked[0] if isinstance(asked, list) and asked[0]["type"] == "tool_use" else None
            block = block or self._under_way.call(calls(self._name(tool), arguments, f"toolu_{self._calls}"))
            assert block["name"].startswith("subluminal_refused__")
            return told_in_the_record(self.events, block["input"]["refused"])
        shown = results(self._model.requests[-1])[-1]
        emitted = called(self._model.requests[-1])[-1]
        assert (emitted["id"], emitted["name"]) == (shown["tool_use_id"], self._name(tool)), "as the model wrote it"
        if len(self.executed) > before:
            return Outcome(failed=bool(shown.get("is_error")))
        return told_in_the_record(self.events, _text(shown["content"]))


def _text(content: object) -> str:
    return content if isinstance(content, str) else content[0]["text"]  # type: ignore[index, no-any-return]


class MessagesApi(Adapter):
    transport = "messages_api"

    def __init__(self, name: str, *, stream: bool) -> None:
        self.name = name
        self._stream = stream

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        env = {"SUB_RUN_ID": "run-1", **setting.env}
        with as_its_own_process(setting.place, env):
            # As a shim of the same run has heard it: without one, nothing is known of a server's tools.
            RunToolNotes(env["SUB_RUN_ID"], setting.server_name).add(dict.fromkeys(setting.all_tools, frozenset()))
        with (
            scripted_model() as model,
            messages_proxy(setting.place, setting.policy, upstream=model.url, env=dict(setting.env)) as door,
        ):
            door.headers = {header: env[name] for name, header in IDENTITY.items() if name in env}
            under_way = UnderWay(door, model)
            try:
                yield ModelSession(door, model, under_way, setting, stream=self._stream)
            finally:
                under_way.close()

"""A scriptable MCP stdio server: a real process, standard library only, quick to start.

Run as `python fake_server.py --script JSON`, or build the command with `fake_server(...)`. Everything a tool server may
do, well or badly, is a word in the script. Unknown words are refused, so that a typing error cannot make a test pass.

Server script (all optional)
    tools           {name: behaviour}; "*" is the behaviour of names not listed
    initialize      members to lay over the initialize result; the revision offered is accepted unless named here
    start_delay_ms  wait before reading anything
    require_env     names that must be set, else exit 78
    stderr_bytes    noise on stderr at start
    record          file that receives every line as it was read, byte for byte
    executed        file that receives one JSON line per tool call carried out
    pid_file        file that receives "ROLE PID" for this process and each grandchild
    grandchildren   {"count", "ignore_signals", "hold_stdio", "setsid"}: processes forked at start
    ignore          any of SIGINT, SIGTERM, SIGHUP, EOF
    linger_ms       time between EOF and exit; `exit_code` of that exit
    crash_on_call   {"n", "exit" | "signal"}: die when the n-th tools/call arrives
    methods         {method: {"result": ...} | {"error": ...}}: answers to other methods, such as tasks/get
    greet           messages sent as soon as the server starts; `on_initialized` the same after that notification
    parser          "python" (last duplicate key wins), "fold" (keys match in any case, as in Go's encoding/json)
    split_on_cr     a bare CR ends a line too (as a text-mode reader with universal newlines does)

Tool behaviour (all optional; members that produce a result are tried in the order given here)
    sequence        [behaviour, ...]: one per call to this tool, the last one for good
    delay_ms, hold_until (answer only when N calls to this tool are outstanding), never (no answer at all)
    stderr_bytes, progress (N notifications if the caller gave a token), notify (messages sent before the answer)
    raw, raw_after  text written as is before / after the answer; `raw_b64`, `raw_after_b64` the same for any bytes
    ask             [raw id, ...]: sampling requests with these ids; the answer waits for all replies and reports them
    stop_reading_ms stop reading stdin (back-pressure)
    crash           {"exit" | "signal", "when": "before" | "partial" | "after"}
    close_stdout    close stdout instead of answering
    error           a JSON-RPC error object        is_error      text of an isError result
    result          a whole result                 result_bytes  a text of N bytes
    echo            size and SHA-256 of the line and of the arguments
    echo_args       the arguments themselves       env           {name: SHA-256 of its value or null}
    env_names       names of the environment       leak_env      the value of a variable, in clear
    reply_id        raw JSON text used as the id   reply_twice   answer twice
    chunk           write the answer in pieces of N bytes
    annotations, description, input_schema: for tools/list
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it would be a fifth of the start
    from typing import Any

# fmt: off
SERVER_WORDS = frozenset([
    "tools", "initialize", "start_delay_ms", "require_env", "stderr_bytes", "record", "executed", "pid_file",
    "grandchildren", "ignore", "linger_ms", "exit_code", "crash_on_call", "methods", "greet", "on_initialized",
    "parser", "split_on_cr",
])
TOOL_WORDS = frozenset([
    "sequence", "delay_ms", "hold_until", "never", "stderr_bytes", "progress", "notify", "raw", "raw_after",
    "raw_b64", "raw_after_b64", "ask", "stop_reading_ms", "crash", "close_stdout", "error", "is_error", "result",
    "result_bytes", "echo", "echo_args", "env", "env_names", "leak_env", "reply_id", "reply_twice", "chunk",
    "annotations", "description", "input_schema",
])
# fmt: on
CHUNK_PAUSE_S = 0.001


def fake_server(**script: Any) -> list[str]:
    """The command that runs this file with the script. -S and -E: quick, and deaf to the caller's Python settings."""
    from harness.programs import compiled

    check_script(script)
    return [sys.executable, "-S", "-E", compiled(__file__), "--script", json.dumps(script)]


def check_script(script: dict[str, Any]) -> None:
    unknown = set(script) - SERVER_WORDS
    for behaviour in script.get("tools", {}).values():
        for each in (behaviour, *behaviour.get("sequence", ())):
            unknown |= set(each) - TOOL_WORDS
    if unknown:
        raise ValueError(f"unknown words in the fake server's script: {', '.join(sorted(unknown))}")


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


class RawNumber(str):
    """A number of the message, kept as written, so that an id such as 1.50 is answered as 1.50."""


def id_text(request_id: Any) -> str:
    return str(request_id) if isinstance(request_id, RawNumber) else json.dumps(request_id)


def plain(value: Any) -> Any:
    """Arguments with RawNumber turned into numbers again."""
    if isinstance(value, RawNumber):
        return json.loads(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


class Server:
    def __init__(self, script: dict[str, Any]) -> None:
        check_script(script)
        self.script = script
        self.tools: dict[str, dict[str, Any]] = script.get("tools", {"echo": {"echo": True}})
        self.ignored = frozenset(script.get("ignore", ()))
        self.calls = 0
        self.write_lock = threading.Lock()
        self.state = threading.Condition()
        self.outstanding: dict[str, int] = {}
        self.replies: dict[str, Any] = {}
        self.turns: dict[str, int] = {}
        self.record = self._log("record")
        self.executed = self._log("executed")

    def _log(self, word: str) -> int | None:
        path = self.script.get(word)
        return None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    # --- output

    def write(self, data: bytes, chunk: int = 0) -> None:
        try:
            with self.write_lock:
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view[:chunk] if chunk else view) :]
                    if chunk:
                        time.sleep(CHUNK_PAUSE_S)
        except OSError:
            if "EOF" not in self.ignored:
                os._exit(0)

    def send(self, message: Any) -> None:
        self.write(json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")

    def noise(self, amount: int) -> None:
        line = b"the server has something to say\n"
        left = amount
        while left > 0:
            left -= os.write(2, (line * (1 + left // len(line)))[: min(left, 65536)])

    # --- life

    def run(self) -> None:
        self._prepare()
        for message in self.script.get("greet", ()):
            self.send(message)
        for line in self._lines():
            self._receive(line)
        if "EOF" in self.ignored:
            while True:
                signal.pause()
        time.sleep(self.script.get("linger_ms", 0) / 1000)
        os._exit(self.script.get("exit_code", 0))

    def _prepare(self) -> None:
        for name in self.ignored - {"EOF"}:
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        if "SIGINT" not in self.ignored:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._note_pid("server", os.getpid())
        missing = [name for name in self.script.get("require_env", ()) if name not in os.environ]
        if missing:
            os.write(2, f"missing environment variable: {', '.join(missing)}\n".encode())
            os._exit(78)
        self._fork_grandchildren(**self.script.get("grandchildren", {}))
        self.noise(self.script.get("stderr_bytes", 0))
        time.sleep(self.script.get("start_delay_ms", 0) / 1000)

    def _note_pid(self, role: str, pid: int) -> None:
        log = self._log("pid_file")
        if log is not None:
            os.write(log, f"{role} {pid}\n".encode())
            os.close(log)

    def _fork_grandchildren(
        self, count: int = 0, ignore_signals: bool = True, hold_stdio: bool = True, setsid: bool = False
    ) -> None:
        for _ in range(count):
            pid = os.fork()
            if pid:
                self._note_pid("grandchild", pid)
                continue
            if setsid:
                os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN if ignore_signals else signal.SIG_DFL)
            if not hold_stdio:
                os.closerange(0, 3)
            while True:
                signal.pause()

    def _lines(self) -> Any:
        held = bytearray()
        while data := os.read(0, 1 << 20):
            searched = len(held)  # a long line arrives in many pieces; looking at each byte once keeps it linear
            held += data
            while (end := held.find(b"\n", searched)) >= 0:
                line = bytes(held[: end + 1])
                del held[: end + 1]
                searched = 0
                yield from self._split(line)
        if held:
            yield from self._split(bytes(held))

    def _split(self, line: bytes) -> list[bytes]:
        if self.record is not None:
            view = memoryview(line)
            while view:
                view = view[os.write(self.record, view) :]
        return line.split(b"\r") if self.script.get("split_on_cr") else [line]

    def die(self, how: dict[str, Any]) -> None:
        if "signal" in how:
            number = getattr(signal, how["signal"])
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.pause()
        os._exit(how.get("exit", 1))

    # --- messages

    def _parse(self, line: bytes) -> Any:
        def fold(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            return {key.lower(): value for key, value in pairs}

        hook = fold if self.script.get("parser") == "fold" else None
        return json.loads(line.decode("utf-8", "replace"), parse_float=RawNumber, object_pairs_hook=hook)

    def _receive(self, line: bytes) -> None:
        try:
            message = self._parse(line)
        except (ValueError, RecursionError):
            return
        if isinstance(message, list):
            answers = [answer for item in message if (answer := self._answer_inline(item, line)) is not None]
            if answers:
                self.write(b"[" + b",".join(answers) + b"]\n")
        elif isinstance(message, dict):
            self._dispatch(message, line)

    def _dispatch(self, message: dict[str, Any], line: bytes) -> None:
        method = message.get("method")
        if method is None:
            with self.state:
                self.replies[id_text(message.get("id"))] = plain(message)
                self.state.notify_all()
        elif method == "tools/call":
            self._call(message, line)
        elif (answer := self._answer_inline(message, line)) is not None:
            self.write(answer + b"\n")

    def _answer_inline(self, message: Any, line: bytes) -> bytes | None:
        """Everything that needs no waiting; inside a batch, tool calls as well."""
        if not isinstance(message, dict):
            return None
        method, params = message.get("method"), message.get("params") or {}
        if method == "notifications/initialized":
            for extra in self.script.get("on_initialized", ()):
                self.send(extra)
        if "id" not in message or method is None:
            if method == "tools/call":
                self._outcome(message, line, self._next_behaviour(message))
            return None
        if method == "initialize":
            return self._reply(message, {"result": self._initialized(plain(params))})
        if method == "tools/list":
            return self._reply(message, {"result": {"tools": self._tool_list()}})
        if method == "ping":
            return self._reply(message, {"result": {}})
        if method == "tools/call":
            return self._reply(message, self._outcome(message, line, self._next_behaviour(message)))
        if method in self.script.get("methods", {}):
            return self._reply(message, self.script["methods"][method])
        return self._reply(message, {"error": {"code": -32601, "message": f"unknown method {method}"}})

    def _reply(self, message: dict[str, Any], outcome: dict[str, Any], raw_id: str | None = None) -> bytes:
        body = json.dumps(outcome, separators=(",", ":"), ensure_ascii=False)
        request_id = id_text(message["id"]) if raw_id is None else raw_id
        return f'{{"jsonrpc":"2.0","id":{request_id},{body[1:]}'.encode("utf-8", "surrogatepass")

    def _initialized(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "fake-server", "version": "1"},
            **self.script.get("initialize", {}),
        }

    def _tool_list(self) -> list[dict[str, Any]]:
        listed = []
        for name, behaviour in self.tools.items():
            if name != "*":
                tool = {"name": name, "inputSchema": behaviour.get("input_schema", {"type": "object"})}
                tool.update({word: behaviour[word] for word in ("annotations", "description") if word in behaviour})
                listed.append(tool)
        return listed

    # --- tool calls

    def _next_behaviour(self, message: dict[str, Any]) -> dict[str, Any]:
        name = str((message.get("params") or {}).get("name"))
        behaviour = self.tools.get(name) or self.tools.get("*") or {}
        if "sequence" in behaviour:
            turn = self.turns.get(name, 0)
            self.turns[name] = turn + 1
            behaviour = behaviour["sequence"][min(turn, len(behaviour["sequence"]) - 1)]
        return behaviour

    def _call(self, message: dict[str, Any], line: bytes) -> None:
        self.calls += 1
        crash = self.script.get("crash_on_call")
        if crash and crash["n"] == self.calls:
            self.die(crash)
        behaviour = self._next_behaviour(message)
        if behaviour.get("stop_reading_ms"):
            time.sleep(behaviour["stop_reading_ms"] / 1000)
        if behaviour.get("hold_until"):
            name = message["params"]["name"]
            with self.state:
                self.outstanding[name] = self.outstanding.get(name, 0) + 1
                self.state.notify_all()
        if behaviour.keys() & {"delay_ms", "hold_until", "ask"}:
            threading.Thread(target=self._carry_out, args=(message, line, behaviour), daemon=True).start()
        else:
            self._carry_out(message, line, behaviour)

    def _carry_out(self, message: dict[str, Any], line: bytes, behaviour: dict[str, Any]) -> None:
        self._before_answer(message, behaviour)
        outcome = self._outcome(message, line, behaviour)
        crash = behaviour.get("crash", {})
        if crash.get("when", "before") == "before" and crash:
            self.die(crash)
        if behaviour.get("close_stdout"):
            os.close(1)
            return
        if not behaviour.get("never") and "id" in message:
            reply = self._reply(message, outcome, behaviour.get("reply_id")) + b"\n"
            if crash.get("when") == "partial":
                self.write(reply[: len(reply) // 2])
                self.die(crash)
            for _ in range(2 if behaviour.get("reply_twice") else 1):
                self.write(reply, behaviour.get("chunk", 0))
        self.write(scripted_bytes(behaviour, "raw_after"))
        if crash:
            self.die(crash)

    def _before_answer(self, message: dict[str, Any], behaviour: dict[str, Any]) -> None:
        self.noise(behaviour.get("stderr_bytes", 0))
        time.sleep(behaviour.get("delay_ms", 0) / 1000)
        if behaviour.get("hold_until"):
            name = message["params"]["name"]
            with self.state:
                self.state.wait_for(lambda: self.outstanding[name] >= behaviour["hold_until"])
        token = plain(((message.get("params") or {}).get("_meta") or {}).get("progressToken"))
        if token is not None:
            for step in range(behaviour.get("progress", 0)):
                progress = {"progressToken": token, "progress": step + 1}
                self.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        for extra in behaviour.get("notify", ()):
            self.send(extra)
        self.write(scripted_bytes(behaviour, "raw"))
        self._ask(behaviour.get("ask", ()))

    def _ask(self, raw_ids: list[str]) -> None:
        for raw_id in raw_ids:
            request = (
                f'{{"jsonrpc":"2.0","id":{raw_id},"method":"sampling/createMessage","params":{{"messages":[]}}}}\n'
            )
            self.write(request.encode())
        with self.state:
            self.state.wait_for(lambda: all(raw_id in self.replies for raw_id in raw_ids))

    def _outcome(self, message: dict[str, Any], line: bytes, behaviour: dict[str, Any]) -> dict[str, Any]:
        params = message.get("params") or {}
        if self.executed is not None:
            entry = {"tool": params.get("name"), "bytes": len(line)}
            os.write(self.executed, json.dumps(entry).encode() + b"\n")
        if "error" in behaviour:
            return {"error": behaviour["error"]}
        return {"result": self._result(behaviour, plain(params.get("arguments")), line)}

    def _result(self, behaviour: dict[str, Any], args: Any, line: bytes) -> Any:
        if "is_error" in behaviour:
            return text_result(behaviour["is_error"], isError=True)
        if "result" in behaviour:
            return behaviour["result"]
        if "result_bytes" in behaviour:
            return text_result("x" * behaviour["result_bytes"])
        if "ask" in behaviour:
            return text_result(json.dumps([self.replies[raw_id] for raw_id in behaviour["ask"]]))
        return text_result(self._report(behaviour, args, line))

    def _report(self, behaviour: dict[str, Any], args: Any, line: bytes) -> str:
        if behaviour.get("echo"):
            encoded = json.dumps(args, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
            data = encoded.encode("utf-8", "surrogatepass")
            sizes = {"line_bytes": len(line), "args_bytes": len(data)}
            return json.dumps({**sizes, "line_sha256": sha256(line), "args_sha256": sha256(data)})
        if behaviour.get("echo_args"):
            return json.dumps(args)
        if "env" in behaviour:
            values = {name: os.environ.get(name) for name in behaviour["env"]}
            return json.dumps({name: value and sha256(value.encode()) for name, value in values.items()})
        if behaviour.get("env_names"):
            return json.dumps(sorted(os.environ))
        if "leak_env" in behaviour:
            return f"the value is {os.environ.get(behaviour['leak_env'])}"
        return "ok"


def scripted_bytes(behaviour: dict[str, Any], word: str) -> bytes:
    if word in behaviour:
        return str(behaviour[word]).encode()
    if f"{word}_b64" in behaviour:
        import base64

        return base64.b64decode(behaviour[f"{word}_b64"])
    return b""


def main(argv: list[str]) -> None:
    if len(argv) != 2 or argv[0] != "--script":
        sys.exit("usage: fake_server.py --script JSON|@FILE")
    text = argv[1]
    if text.startswith("@"):
        with open(text[1:], encoding="utf-8") as source:
            text = source.read()
    Server(json.loads(text)).run()


if __name__ == "__main__":
    main(sys.argv[1:])

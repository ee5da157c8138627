"""A server behind the shim behaves byte for byte as without it: both directions, in order, whatever the sizes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.shim import Shim, isolated_env, shim_command
from harness.waiting import GENEROUS_S, wait_for

SEED = 20260728
MESSAGES = int(os.environ.get("SUB_TEST_TRANSPARENCY", "1500"))

# Sends back every line as it came, and counts nothing: what returns is what arrived.
MIRROR = """
import os
held = b""
while data := os.read(0, 1 << 16):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
"""


def mirror_shim(tmp_path: Path, events: str = "none", **env: str) -> tuple[list[str], dict[str, str]]:
    command = shim_command("mirror", [sys.executable, "-S", "-c", MIRROR], events=events)
    return command, isolated_env(tmp_path, **env)


def random_text(rng: random.Random, longest: int) -> str:
    alphabet = 'abc \\"/\t{}[]:,é\u2028\u2029\x85😀\x7f\u0000\u001f'
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(longest)))


def random_message(rng: random.Random, number: int) -> bytes:
    """Valid messages of every kind; none of them ambiguous."""
    request_id = rng.choice([number, f"id-{number}", -number, 10**20 + number, f"é{number}"])
    args = {
        random_text(rng, 9) + str(n): rng.choice([None, True, 1.5e300, -(10**30), random_text(rng, 200)])
        for n in range(rng.randrange(4))
    }
    bodies: list[dict[str, object]] = [
        {
            "id": request_id,
            "method": "tools/call",
            "params": {"name": random_text(rng, 12).replace("\0", "") or "x", "arguments": args},
        },
        {
            "id": request_id,
            "method": rng.choice(["ping", "tools/list", "unknown/" + random_text(rng, 8)]),
            "params": args,
        },
        {"method": "notifications/" + random_text(rng, 8), "params": args},
        {"id": request_id, "result": args},
        {"id": request_id, "error": {"code": -1, "message": random_text(rng, 50)}},
        {"id": request_id, "method": "sampling/createMessage", "params": {"messages": [args]}},
    ]
    body = rng.choice(bodies)
    items = [("jsonrpc", "2.0"), *body.items()]
    rng.shuffle(items)
    spaces = rng.choice([(",", ":"), (", ", ": "), (" ,", "\t:")])
    text = json.dumps(dict(items), separators=spaces, ensure_ascii=rng.random() < 0.5)
    return (
        rng.choice([b"", b"", b" ", b"\t"])
        + text.encode()
        + rng.choice([b"\n", b"\n", b"\r\n", b" \n", b"\n\n", b"\n\r\n"])
    )


def test_random_messages_pass_both_ways_byte_for_byte_and_in_order(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    command, env = mirror_shim(tmp_path)
    sent = b"".join(random_message(rng, number) for number in range(MESSAGES))
    with Agent(command, env, tmp_path, timeout=60) as agent:
        at = 0
        while at < len(sent):
            size = rng.choice([1, 2, 7, 100, 4096, 70_000, 300_000])
            agent.send_raw(sent[at : at + size], wait=False)
            if rng.random() < 0.3:
                agent._move(0)
            at += size
        agent.pump_until(lambda: sum(map(len, agent.received)) >= len(sent), what="everything to come back")
        agent.finish()
        assert b"".join(agent.received) == sent, f"seed {SEED}"


SIZES = [1, 4095, 4096, 65_535, 65_536, 262_143, 262_144, 1_048_575, 1_048_576, 1_048_577, 3_000_000]


@pytest.mark.parametrize("mode", ["observe", "guardrails"])
def test_messages_around_the_size_of_every_buffer_pass_whole(tmp_path: Path, mode: str) -> None:
    bundle = {
        "policy_id": "p", "version": "1", "mode": mode, "defaults": {"decision_on_error": "BLOCK"}, "selectors": {},
        "rules": [],
    }  # fmt: skip
    command, env = mirror_shim(tmp_path, SUB_POLICY_JSON=json.dumps(bundle))
    rng = random.Random(SEED)
    lines = []
    for number, size in enumerate(SIZES):
        for ending in (b"\n", b"\r\n"):
            bulk = base64.b64encode(rng.randbytes(size))[:size].decode()
            name = "notifications/x" if number % 2 else "tools/call"
            message = {
                "jsonrpc": "2.0",
                "id": len(lines),
                "method": name,
                "params": {"name": "t", "arguments": {"d": bulk}},
            }
            lines.append(json.dumps(message).encode() + ending)
    sent = b"".join(lines)
    with Agent(command, env, tmp_path, timeout=60) as agent:
        agent.send_raw(sent, wait=False)
        agent.pump_until(lambda: sum(map(len, agent.received)) >= len(sent), what="everything to come back")
        agent.finish()
        got = b"".join(agent.received)
        assert len(got) == len(sent)
        assert hashlib.sha256(got).digest() == hashlib.sha256(sent).digest()


def test_many_large_calls_outstanding_both_ways_do_not_deadlock(tmp_path: Path) -> None:
    script = fake_server(tools={"big": {"hold_until": 64, "result_bytes": 10_240}})
    setup = Shim(tmp_path, "big", script)
    with setup.start(timeout=60) as agent:
        agent.initialize()
        wanted = [agent.start_call("big", {"data": "x" * 10_240}, wait=False) for _ in range(64)]
        assert all("result" in reply for reply in agent.replies(wanted))


def test_a_client_that_does_not_read_stops_the_flow_and_then_gets_all_of_it(tmp_path: Path) -> None:
    script = fake_server(tools={"big": {"result_bytes": 200_000}})
    setup = Shim(tmp_path, "big", script)
    with setup.start(timeout=60) as agent:
        agent.initialize()
        before = agent.memory_kib()
        for number in range(100):
            line = {
                "jsonrpc": "2.0",
                "id": f"c{number}",
                "method": "tools/call",
                "params": {"name": "big", "arguments": {}},
            }
            assert agent._stdin is not None
            os.write(agent._stdin, json.dumps(line).encode() + b"\n")
        agent.pump_until(lambda: True)
        assert agent.memory_kib() - before < 12 * 1024
        replies = agent.replies([f"c{number}" for number in range(100)])
        assert all(len(reply["result"]["content"][0]["text"]) == 200_000 for reply in replies)


def test_a_last_line_without_a_newline_arrives_as_it_was_sent(tmp_path: Path) -> None:
    for size in (10, 1_500_000):
        command, env = mirror_shim(tmp_path)
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {"d": "x" * size}}).encode()
        with Agent(command, env, tmp_path) as agent:
            agent.send_raw(line)
            agent.finish()
            assert agent._incoming == line
            assert agent.received == []


def test_a_last_call_without_a_newline_is_judged_and_recorded(tmp_path: Path) -> None:
    for size in (10, 1_500_000):
        record = tmp_path / f"stream-{size}"
        setup = Shim(
            tmp_path, f"s{size}", fake_server(tools={"*": {}}, record=str(record)), policy="deny_above_allow.yaml"
        )
        with setup.start() as agent:
            agent.send_raw(
                json.dumps(
                    {"id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {"d": "x" * size}}}
                ).encode()
            )
            agent.finish()
        decided = setup.events.wait_type("tool_call_decision")["decision"]["action"]
        assert (decided == "ALLOW") == (record.exists() and record.stat().st_size > 0)


JUNK = [
    b"\x00\x01\xff\xfe\r\r\n",
    b"plain words\n",
    b"[[[[\n",
    b'{"id":1\n',
    b"\n\n \n",
    "\u2028\x85".encode() + b"\n",
    bytes(range(11, 256)) + b"\n",
]


def test_junk_from_the_server_passes_untouched_and_does_no_harm(tmp_path: Path) -> None:
    junk = b"".join(JUNK)
    script = fake_server(tools={"t": {"raw_b64": base64.b64encode(junk).decode()}})
    with Shim(tmp_path, "junk", script).start() as agent:
        agent.initialize()
        before = len(agent.received)
        assert "result" in agent.call("t")
        got = b"".join(agent.received[before:])
        assert got.startswith(junk)


def test_a_reply_cut_off_by_the_servers_death_is_passed_on_and_the_call_answered_on_a_line_of_its_own(
    tmp_path: Path,
) -> None:
    script = fake_server(tools={"t": {"result_bytes": 1000, "crash": {"exit": 3, "when": "partial"}}})
    setup = Shim(tmp_path, "dies", script)
    with setup.start() as agent:
        agent.initialize()
        agent.start_call("t", id="x")
        reply = agent.reply("x")
        assert reply["error"]["code"] == -32000
        assert agent.wait_exit() == 3
    (end,) = setup.events.events_of("tool_call_end")
    assert (end["status"], end["error"]["class"]) == ("ERROR", "transport")


def test_a_complete_reply_whose_newline_never_came_is_recorded_as_an_answer(tmp_path: Path) -> None:
    server = 'import os,sys;sys.stdin.buffer.readline();os.write(1,b\'{"jsonrpc":"2.0","id":1,"result":{}}\')'
    setup = Shim(tmp_path, "last", [sys.executable, "-S", "-c", server])
    with setup.start() as agent:
        agent.start_call("t", id=1)
        agent.wait_exit()
        assert bytes(agent._incoming) == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    (end,) = setup.events.events_of("tool_call_end")
    assert end["status"] == "OK"


def test_everything_the_server_says_on_stderr_arrives(tmp_path: Path) -> None:
    server = "import os;[os.write(2,b'%06d\\n'%n) for n in range(40000)]"
    setup = Shim(tmp_path, "loud", [sys.executable, "-S", "-c", server])
    with setup.start() as agent:
        agent.wait_exit()
        lines = agent.stderr.splitlines()
    assert lines == [f"{number:06d}" for number in range(40_000)]


LINES = 40_000
SAYS_MUCH = f"import os;[os.write(2,b'%0130d\\n'%n) for n in range({LINES})]"  # 5 MiB
EVENTS_OR_NOT = pytest.mark.parametrize("events", ["none", "stderr"])


def read_slowly(fd: int) -> bytes:
    """Much more slowly than a server writes: by fits and starts, like a program on a loaded machine."""
    parts = []
    while part := os.read(fd, 40_000):
        parts.append(part)
        time.sleep(0.01)
    return b"".join(parts)


@EVENTS_OR_NOT
def test_all_of_a_servers_stderr_reaches_a_slow_reader_on_a_loaded_machine(tmp_path: Path, events: str) -> None:
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
    command = shim_command("loud", [sys.executable, "-S", "-c", SAYS_MUCH], events=events)
    process = subprocess.Popen(
        command,
        env=isolated_env(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = read_slowly(process.stderr.fileno()).splitlines()
        assert process.wait(GENEROUS_S) == 0
    finally:
        for each in (process, *busy):
            each.kill()
            each.communicate()
    assert [line for line in said if not line.startswith(b"{")] == [b"%0130d" % number for number in range(LINES)]


@EVENTS_OR_NOT
def test_a_reader_of_stderr_that_stops_never_stops_the_server_and_is_told_what_it_missed(
    tmp_path: Path, events: str
) -> None:
    server = SAYS_MUCH + f";open({str(tmp_path / 'done')!r},'w').close();os.read(0,1);os.write(2,b'last words\\n')"
    command = shim_command("loud", [sys.executable, "-S", "-c", server], events=events)
    process = subprocess.Popen(
        command,
        env=isolated_env(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for((tmp_path / "done").exists, what="a server that has said it all, to nobody")
        assert process.stderr is not None and process.stdin is not None
        os.set_blocking(process.stderr.fileno(), False)
        said = b""

        def told() -> bool:
            nonlocal said
            said += process.stderr.read() or b""  # type: ignore[union-attr]
            return b"nobody was reading\n" in said

        wait_for(told, what="word of what is missing")
        process.stdin.close()
        os.set_blocking(process.stderr.fileno(), True)
        said += process.stderr.read()
        assert process.wait(GENEROUS_S) == 0
    finally:
        process.kill()
        process.wait()
    lines = [line for line in said.splitlines(keepends=True) if not line.startswith(b"{")]
    [note] = [line for line in lines if b"nobody was reading" in line]
    missing = int(note.split()[1])
    others = b"".join(lines).replace(b"\n" + note, b"")
    assert len(others) + missing == LINES * 131 + len("last words\n")
    assert lines[-1] == b"last words\n", "from then on it has everything again"


def test_a_grandchild_that_writes_for_ever_does_not_keep_the_shim(tmp_path: Path) -> None:
    server = "import os,sys\nif os.fork():\n    sys.exit(0)\nwhile True:\n    os.write(1,b'noise\\n'*100)"
    setup = Shim(tmp_path, "noisy", [sys.executable, "-S", "-c", server])
    with setup.start() as agent:
        assert agent.wait_exit(10) == 0


def test_the_server_does_not_inherit_the_descriptor_of_the_events(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    server = f"import os,sys\ntry:\n    os.fstat({writer})\nexcept OSError:\n    sys.exit(5)"
    command = shim_command("nosy", [sys.executable, "-S", "-c", server], events=f"fd:{writer}")
    with Agent(command, isolated_env(tmp_path), tmp_path, pass_fds=[writer]) as agent:
        assert agent.wait_exit() == 5
    os.close(writer)
    assert b'"run_end"' in os.read(reader, 1 << 16)
    os.close(reader)


def test_events_that_a_stalled_reader_never_took_are_told_of_and_kept_and_it_has_no_torn_line(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    command = shim_command("notes", fake_server(), events=f"fd:{writer}")
    with Agent(command, isolated_env(tmp_path), tmp_path, pass_fds=[writer]) as agent:
        os.close(writer)
        agent.initialize()
        for number in range(60):
            agent.call("echo", {"n": number, "text": "x" * 3000})
        agent.finish()
        said = agent.stderr
    with os.fdopen(reader, "rb") as file:
        there = file.read()
    (journal,) = (tmp_path / "sub" / "spool").glob("*.jsonl")
    events = [json.loads(line) for line in (there + journal.read_bytes()).splitlines()]
    assert there.endswith(b"\n")
    assert [event["source"]["seq"] for event in events] == list(range(1, len(events) + 1))
    kept = len(journal.read_bytes().splitlines())
    assert f"descriptor {writer} was not read to the end: {kept} events went to the spool" in said

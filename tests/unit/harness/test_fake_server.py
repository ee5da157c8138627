"""The fake server does what its script says, alone, without a shim."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.processes import assert_no_processes, is_alive
from harness.waiting import WaitedInVain


def agent(**script: object) -> Agent:
    return Agent(fake_server(**script), timeout=10)


def test_a_typing_error_in_a_script_is_refused() -> None:
    with pytest.raises(ValueError, match="dealy_ms"):
        fake_server(tools={"slow": {"dealy_ms": 5}})


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_it_accepts_every_revision_offered(revision: str) -> None:
    with agent() as client:
        assert client.initialize(revision)["protocolVersion"] == revision


def test_it_lists_tools_under_their_exact_names_with_annotations() -> None:
    with agent(tools={"linear_create_issue": {"annotations": {"readOnlyHint": True}}, "*": {}}) as client:
        (tool,) = client.request("tools/list")["result"]["tools"]
    assert tool["name"] == "linear_create_issue"
    assert tool["annotations"] == {"readOnlyHint": True}


def test_echo_reports_size_and_hash_of_exactly_what_it_read() -> None:
    line = b'{"jsonrpc":"2.0","id":"x", "method":"tools/call","params":{"name":"echo","arguments":{"a":"\xc3\xa9"}}}\n'
    with agent() as client:
        client.send_raw(line)
        report = json.loads(client.reply("x")["result"]["content"][0]["text"])
    assert report["line_bytes"] == len(line)
    assert report["line_sha256"] == hashlib.sha256(line).hexdigest()
    assert report["args_sha256"] == hashlib.sha256('{"a":"é"}'.encode()).hexdigest()


@pytest.mark.parametrize("raw_id", ["1.50", "12345678901234567890123", '"7"', "-0.0"])
def test_ids_are_answered_as_they_were_written(raw_id: str) -> None:
    with agent() as client:
        client.send_raw(f'{{"jsonrpc":"2.0","id":{raw_id},"method":"ping"}}\n'.encode())
        client.pump_until(lambda: bool(client.received))
    assert client.received == [f'{{"jsonrpc":"2.0","id":{raw_id},"result":{{}}}}\n'.encode()]


def test_hundreds_of_large_calls_can_be_outstanding_without_a_deadlock() -> None:
    with agent() as client:
        ids = [client.start_call("echo", {"data": "x" * 20_000}, wait=False) for _ in range(300)]
        sizes = {json.loads(reply["result"]["content"][0]["text"])["args_bytes"] for reply in client.replies(ids)}
    assert sizes == {len('{"data":""}') + 20_000}


def test_hold_until_answers_only_when_that_many_calls_are_outstanding() -> None:
    with agent(tools={"join": {"hold_until": 3}}) as client:
        ids = [client.start_call("join") for _ in range(2)]
        assert client.request("ping")["result"] == {}
        with pytest.raises(WaitedInVain):
            client.reply(ids[0], timeout=0.1)
        ids.append(client.start_call("join"))
        assert len(client.replies(ids)) == 3


def test_delayed_tools_do_not_hold_up_quick_ones() -> None:
    with agent(tools={"slow": {"delay_ms": 300}, "quick": {}}) as client:
        slow = client.start_call("slow")
        client.call("quick")
        with pytest.raises(WaitedInVain):
            client.reply(slow, timeout=0.01)
        client.reply(slow)


def test_a_sequence_gives_each_call_its_own_behaviour() -> None:
    steps = [{"result": {"resultType": "input_required", "requestState": "s"}}, {"is_error": "no"}]
    with agent(tools={"ask": {"sequence": steps}}) as client:
        assert client.call("ask")["result"]["resultType"] == "input_required"
        assert client.call("ask")["result"]["isError"] is True
        assert client.call("ask")["result"]["isError"] is True


def test_errors_methods_progress_and_raw_bytes_come_as_scripted() -> None:
    tools = {
        "fail": {"error": {"code": -32000, "message": "broken"}},
        "long": {"progress": 2, "raw": '{"a":1}\n', "raw_after_b64": "/w==", "reply_twice": True, "chunk": 7},
    }
    with agent(tools=tools, methods={"tasks/get": {"result": {"status": "working"}}}) as client:
        assert client.call("fail")["error"] == {"code": -32000, "message": "broken"}
        assert client.request("tasks/get")["result"] == {"status": "working"}
        client.call("long", _meta={"progressToken": "t"})
        client.start_request("ping")
        client.pump_until(lambda: client.received[-1].endswith(b'"result":{}}\n'))
        progress = [message["params"] for message in client.messages if "params" in message]
    assert progress == [{"progressToken": "t", "progress": 1}, {"progressToken": "t", "progress": 2}]
    assert b'{"a":1}\n' in client.received
    assert client.received[-1].startswith(b"\xff{")


def test_it_asks_the_client_and_waits_for_the_replies() -> None:
    with agent(tools={"think": {"ask": ["1", '"1"']}}) as client:
        call = client.start_call("think", id=1)
        client.pump_until(lambda: len(client.messages) == 2)
        assert [message["id"] for message in client.messages] == [1, "1"]
        for message in list(client.messages):
            client.send({"jsonrpc": "2.0", "id": message["id"], "result": {"role": "assistant"}})
        answers = json.loads(client.reply(call)["result"]["content"][0]["text"])
    assert [answer["id"] for answer in answers] == [1, "1"]


def test_batches_are_answered_as_batches() -> None:
    with agent(tools={"a": {}}) as client:
        client.send([{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "a"}} for n in (1, 2)])
        client.replies([1, 2])
    assert len(client.received) == 1


def test_record_and_executed_show_what_arrived(tmp_path: Path) -> None:
    record, executed = tmp_path / "record", tmp_path / "executed"
    raw = b'{"id":1,"jsonrpc":"2.0",  "method":"tools/call","params":{"name":"a"}}\n[not json\n'
    with agent(record=str(record), executed=str(executed)) as client:
        client.send_raw(raw)
        client.reply(1)
        client.finish()
    assert record.read_bytes() == raw
    assert json.loads(executed.read_text())["tool"] == "a"


def test_other_parsers_read_what_a_strict_one_would_not(tmp_path: Path) -> None:
    smuggled = b'{"method":"x","params":\r{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}\r}\n'
    with agent(split_on_cr=True) as client:
        client.send_raw(smuggled)
        assert "result" in client.reply(1)
    with agent(parser="fold") as client:
        client.send_raw(b'{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{"name":"a"}}\n')
        assert "result" in client.reply(1)


@pytest.mark.parametrize(
    ("crash", "code"), [({"exit": 3}, 3), ({"signal": "SIGSEGV"}, -signal.SIGSEGV), ({"exit": 4, "when": "after"}, 4)]
)
def test_it_crashes_as_told(crash: dict[str, object], code: int) -> None:
    with agent(tools={"die": {"crash": crash}}) as client:
        client.start_call("die")
        assert client.wait_exit() == code
        assert len(client.received) == (1 if crash.get("when") == "after" else 0)


def test_it_crashes_on_the_nth_call() -> None:
    with agent(crash_on_call={"n": 3, "exit": 9}) as client:
        client.call("echo")
        client.call("echo")
        client.start_call("echo")
        assert client.wait_exit() == 9


def test_environment_is_required_and_reported_without_the_value(tmp_path: Path) -> None:
    tools = {"token": {"env": ["TOKEN", "ABSENT"]}, "names": {"env_names": True}}
    command = fake_server(require_env=["TOKEN"], tools=tools)
    with Agent(command, env={"PATH": os.environ["PATH"]}) as client:
        assert client.wait_exit() == 78
    with Agent(command, env={"PATH": os.environ["PATH"], "TOKEN": "tree"}) as client:
        expected = {"TOKEN": hashlib.sha256(b"tree").hexdigest(), "ABSENT": None}
        assert json.loads(client.call_text("token")) == expected
        assert "TOKEN" in json.loads(client.call_text("names"))


def test_stderr_noise_is_collected_on_the_side() -> None:
    with agent(stderr_bytes=300_000, tools={"talk": {"stderr_bytes": 200_000}}) as client:
        client.call("talk")
        client.finish()
    assert len(client.stderr) == 500_000


def test_a_stubborn_server_ignores_signals_and_eof() -> None:
    with agent(ignore=["SIGINT", "SIGTERM", "SIGHUP", "EOF"]) as client:
        client.initialize()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            client.signal(number)
        client.close_stdin()
        client.settle(0.2)
        assert is_alive(client.pid)
    assert_no_processes(client.marker, within=0)


def test_grandchildren_outlive_the_server_and_are_found_by_their_marker(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    with agent(grandchildren={"count": 2}, pid_file=str(pid_file)) as client:
        client.initialize()
        assert len(client.descendants()) == 2
        client.signal(signal.SIGKILL)
        client.wait_exit()
        noted = dict.fromkeys(int(line.split()[1]) for line in pid_file.read_text().splitlines())
        assert set(client.tree()) == set(noted) - {client.pid}
        with pytest.raises(AssertionError, match=r"in vain for the end of every process .*fake_server\.py"):
            assert_no_processes(client.marker, within=0.05)
    assert_no_processes(client.marker, within=0)

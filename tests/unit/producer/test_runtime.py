"""A producer inside somebody else's process: its journal, ledgerd, settings and ends."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.in_process import POLICY, isolate
from harness.ledger import ledgerd, spool_of, sub_environment
from harness.waiting import wait_for
from subluminal.adapters.in_process.calls import _told
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.gate.record import CallRecord
from subluminal.host.run.state import SharedState
from subluminal.producer import state_queue
from subluminal.producer.runtime import TRANSPORT, Runtime


def tool_call(tool: str = "look") -> ToolCall:
    return ToolCall("notes", tool, b"{}", 2, TRANSPORT)


def ask(runtime: Runtime, call: ToolCall) -> CallRecord:
    return runtime.ask(call, lambda code, message, data: (message, len(message)))[0]


def test_calls_reach_the_ledger_by_way_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(tmp_path, monkeypatch)
    monkeypatch.delenv("SUB_EVENTS")
    home = tmp_path / "sub"
    spool_of(home)
    with ledgerd(home):
        runtime = Runtime(POLICY, server_name="notes")
        record = ask(runtime, tool_call())
        (journal,) = (home / "spool").glob("*.jsonl")
        assert journal.read_bytes().count(b"\n") == 4, "on record before the tool runs"
        runtime.settle(record, "OK", latency_ms=1)

        def calls() -> Any:
            with sqlite3.connect(f"file:{home}/ledger.db?mode=ro", uri=True) as database:
                return database.execute("select tool_name, decision, status from tool_calls").fetchall()

        wait_for(lambda: calls() == [("look", "ALLOW", "OK")], what="the call in the ledger")
        runtime.close()


def test_it_opens_once_ends_once_and_opens_anew_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = isolate(tmp_path, monkeypatch)
    runtime = Runtime(POLICY)
    runtime.close()
    assert not Path(events.path).exists(), "a runtime that was never used leaves no trace"
    with runtime:
        pass
    with runtime:
        pass
    runtime.close()
    runtime.close()
    assert events.types() == ["run_start", "policy_loaded", "run_end"]
    ask(runtime, tool_call())
    runtime.close()
    assert len({event["source"]["shim_id"] for event in events.events()}) == 2


def test_what_a_project_may_not_set_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    isolate(tmp_path, monkeypatch)
    (tmp_path / ".subluminal").mkdir()
    (tmp_path / ".subluminal" / "config.toml").write_text("[shim]\nmax_preview_bytes = 999999\n")
    runtime = Runtime(POLICY)
    with runtime:
        pass
    runtime.close()
    assert "may only make settings stricter" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_is_said_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    isolate(tmp_path, monkeypatch)
    runtime = Runtime(POLICY, events="file:/nonexistent/events.jsonl")
    assert ask(runtime, tool_call()).decision.action == "ALLOW"
    runtime.close()
    assert "events could not be recorded" in capsys.readouterr().err


def test_a_refused_continuation_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = isolate(tmp_path, monkeypatch)
    runtime = Runtime(POLICY)
    record = ask(runtime, tool_call())
    with runtime as producer:
        producer.state.terminate("STOP", "stopped by the operator")
        producer.gate.judge_again(record, tool_call(), 1, 1)
        producer.gate.refusal(record)
        producer.gate.settle_refused(record, 1, 1, 10)
    runtime.close()
    assert [event["decision"]["action"] for event in events.events_of("tool_call_decision")] == [
        "ALLOW",
        "TERMINATE_RUN",
    ]
    assert len(events.events_of("tool_call_end")) == 1


def test_waiting_for_the_runs_state_never_stops_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(tmp_path, monkeypatch)
    runtime = Runtime(POLICY)
    with runtime:
        pass
    holder = SharedState.open("run-1")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> str:
        busy = asyncio.create_task(others())
        holder.begin()
        waiting = asyncio.create_task(runtime.turn(_told))
        while turns < 200:
            await asyncio.sleep(0)
        assert not waiting.done(), "another process holds the state"
        holder.abandon()
        await waiting
        busy.cancel()
        return ask(runtime, tool_call()).decision.action

    assert asyncio.run(run()) == "ALLOW"
    holder.begin()  # what was locked for the judgement was let go with it
    holder.abandon()
    runtime.close()


def test_a_state_that_nobody_lets_go_of_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(tmp_path, monkeypatch)
    monkeypatch.setattr(state_queue, "LOCK_WAIT_SECONDS", 0.3)
    runtime = Runtime(POLICY)
    with runtime:
        pass
    holder = SharedState.open("run-1")
    holder.begin()
    waits: list[float] = []

    async def wait(start: Any, seconds: float) -> None:
        waits.append(seconds)
        await _told(start, seconds)

    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("the loop was blocked"))
    asyncio.run(runtime.turn(wait))
    record = ask(runtime, tool_call("search"))
    assert record.decision.reason_code == "EVALUATION_ERROR"
    assert waits, "it waited, once, and without blocking"
    holder.abandon()
    runtime.close()


def test_several_wait_at_once_and_one_who_leaves_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(tmp_path, monkeypatch)
    runtime = Runtime(POLICY)
    with runtime:
        pass
    holder = SharedState.open("run-1")
    judged: list[str] = []

    async def call() -> None:
        await runtime.turn(_told)
        judged.append(ask(runtime, tool_call()).decision.action)

    async def run() -> None:
        holder.begin()
        impatient = asyncio.create_task(runtime.turn(_told))
        calls = [asyncio.create_task(call()) for _ in range(5)]
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        holder.abandon()
        await asyncio.gather(*calls)

    asyncio.run(run())
    assert judged == ["ALLOW"] * 5
    alone = asyncio.run(cancelled_while_waiting(runtime, holder))
    assert alone, "the place in the queue went with who left it"
    runtime.close()


async def cancelled_while_waiting(runtime: Runtime, holder: Any) -> bool:
    holder.begin()
    waiting = asyncio.create_task(runtime.turn(_told))
    while not runtime._waiting:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    holder.abandon()
    holder.begin()
    holder.abandon()
    return True


FORKING_HOST = """
import fcntl, os, sys
from subluminal.adapters.in_process.calls import _told
from subluminal.contracts.toolcall import ToolCall
from subluminal.producer.runtime import Runtime

def fork_and(work):
    pid = os.fork()
    if pid == 0:
        work()
        sys.stdout.flush()
        sys.exit(0)  # with all that runs at exit
    assert os.waitpid(pid, 0)[1] == 0

def call(runtime):
    record = runtime.ask(ToolCall("s", "look", b"{}", 2, "in_process"), None)[0]
    runtime.settle(record, "OK", latency_ms=1)

runtime = Runtime(None, server_name="s")
call(runtime)
"""
IS_FREE = """
def is_free(path):
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass  # ledgerd could lock it, and has taken it in
    return True
"""


def forking_host(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    home = tmp_path / "sub"
    spool_of(home)
    source = FORKING_HOST + IS_FREE + script
    command = [sys.executable, "-c", source]
    with ledgerd(home):
        return subprocess.run(command, env=sub_environment(home), capture_output=True, text=True, timeout=60)


def test_a_forked_child_is_silent_whatever_its_parent_had_closed(tmp_path: Path) -> None:
    """As a host does that makes itself a daemon: it closes all it does not know, opens files of its own, and forks."""
    done = forking_host(
        tmp_path,
        "highest = max(map(int, os.listdir('/proc/self/fd')))\n"
        "os.closerange(3, highest + 1)\n"
        "mine = os.open(__import__('tempfile').gettempdir(), os.O_RDONLY)\n"
        "fork_and(lambda: os.fstat(mine))\n"
        "os._exit(0)\n",
    )
    assert (done.returncode, done.stderr) == (0, ""), "and the number that was the journal's is the host's own file"


def test_a_forked_child_takes_nothing_of_its_parents_and_is_a_producer_of_its_own(tmp_path: Path) -> None:
    done = forking_host(
        tmp_path,
        "fork_and(lambda: call(runtime))\n"
        "call(runtime)\n"
        "journal = runtime._producer.sink.path\n"
        "assert not is_free(journal), 'the lock of the parent is its own'\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.close(writer)\n"
        "    os.read(reader, 1)  # until the parent has closed its run\n"
        "    print(is_free(journal))\n"
        "    sys.exit(0)\n"
        "os.close(reader)\n"
        "runtime.close()\n"
        "os.close(writer)\n"
        "os.wait()\n",
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "True\n"), "no child holds on to it"

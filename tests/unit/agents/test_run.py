"""The run protocol, with real processes: events in order, one completion, and an end that leaves nobody behind."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.processes import MARKER_VARIABLE, assert_no_processes, new_marker, processes_with
from harness.waiting import GENEROUS_S, wait_for_async
from subluminal.agents import stream
from subluminal.agents.base import RunRequest
from subluminal.agents.claude_code import ClaudeCode
from subluminal.agents.codex import Codex
from subluminal.agents.generic import Generic
from subluminal.agents.run import KILLED_DRAIN_S, SERVERS_GRACE_S, TERM_GRACE_S, AgentRun
from subluminal.agents.stream import MAX_HELD_EVENTS
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent
from subluminal.contracts.errors import AgentError


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    return new_marker()


def fake_agent(code: str, *, kind: type[ClaudeCode] | type[Codex] = ClaudeCode, **options: Any) -> AgentRun:
    """A back end whose program is a Python script; the options and the prompt are only arguments to it."""

    class Scripted(kind):  # type: ignore[misc,valid-type]
        def command(self, request: RunRequest) -> list[str]:
            return [sys.executable, "-u", "-c", code, *super().command(request)]

    return Scripted().run(RunRequest("do it", **options))


SAY = 'print(\'{"type":"system","subtype":"init"}\', flush=True)\n'
RESULT = 'print(\'{"type":"result","subtype":"success","is_error":false,"result":"answer"}\', flush=True)\n'


async def collect(run: AgentRun) -> tuple[list[AgentEvent], AgentCompletion]:
    events = [event async for event in run.events]
    return events, await run.completion()


def test_events_come_in_order_and_the_completion_after_exit_and_drain() -> None:
    async def case() -> None:
        run = fake_agent("import sys, time\n" + SAY * 3 + RESULT + "sys.stdout.close(); time.sleep(0.3)")
        events, completion = await collect(run)
        assert [event.message for event in events] == ["system init"] * 3 + ["result success"]
        assert (completion.status, completion.exit_code, completion.final_text) == ("SUCCEEDED", 0, "answer")

    asyncio.run(case())


def test_a_non_zero_exit_is_a_completion_and_not_an_exception() -> None:
    async def case() -> None:
        _, completion = await collect(fake_agent("raise SystemExit(3)"))
        assert (completion.status, completion.exit_code, completion.message) == ("FAILED", 3, "exited with 3")

    asyncio.run(case())


def test_death_by_a_signal_is_told_as_such() -> None:
    async def case() -> None:
        _, completion = await collect(fake_agent("import os; os.kill(os.getpid(), 9)"))
        assert (completion.status, completion.exit_code, completion.message) == ("FAILED", -9, "ended by signal 9")

    asyncio.run(case())


def test_an_agent_that_reports_failure_has_failed_even_with_exit_code_0() -> None:
    async def case() -> None:
        code = 'print(\'{"type":"result","subtype":"error_max_turns","is_error":true}\')'
        _, completion = await collect(fake_agent(code))
        assert (completion.status, completion.exit_code) == ("FAILED", 0)
        assert completion.message == "the agent reported failure: error_max_turns"

    asyncio.run(case())


def test_a_program_that_does_not_exist_is_one_error_event_and_a_failed_completion() -> None:
    async def case() -> None:
        events, completion = await collect(ClaudeCode().run(RunRequest("hi", program="/nowhere/claude")))
        assert [(event.kind.value, event.message) for event in events] == [
            ("Error", "cannot start claude: No such file or directory")
        ]
        assert (completion.status, completion.exit_code) == ("FAILED", None)
        assert completion.message == events[0].message

    asyncio.run(case())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prompt": "  \n"}, "blank"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": "a", "timeout_s": -1}, "timeout"),
        ({"prompt": "a", "timeout_s": float("nan")}, "timeout"),
        ({"prompt": "a", "args": ["--output-format", "text"]}, "--output-format"),
        ({"prompt": "a", "args": ["--output-format=text"]}, "--output-format"),
        ({"prompt": "a", "env": {"A=B": "c"}}, "A=B"),
        ({"prompt": "a\ud800"}, "Unicode"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_started(options: dict[str, Any], reason: str) -> None:
    async def case() -> None:
        with pytest.raises(AgentError, match=reason):
            ClaudeCode().run(RunRequest(**options))

    asyncio.run(case())


def test_the_codex_prompt_that_means_stdin_is_refused() -> None:
    async def case() -> None:
        with pytest.raises(AgentError, match="standard input"):
            Codex().run(RunRequest("-"))

    asyncio.run(case())


def test_the_command_lines_keep_a_prompt_that_looks_like_an_option_a_prompt() -> None:
    request = RunRequest("--dangerously-skip-permissions", args=["--allowedTools", "a", "b"])
    assert ClaudeCode().command(request) == [
        *["claude", "-p", "--output-format", "stream-json", "--verbose"],
        *["--allowedTools", "a", "b", "--", "--dangerously-skip-permissions"],
    ]
    assert Codex().command(RunRequest("resume")) == ["codex", "exec", "--json", "--", "resume"]
    assert Generic().command(RunRequest("hi", program="echo", args=["-n"])) == ["echo", "-n", "hi"]


def test_a_consumer_that_never_reads_still_gets_the_completion_and_is_told_what_was_dropped() -> None:
    async def case() -> None:
        count = MAX_HELD_EVENTS * 20
        run = fake_agent(f"for _ in range({count}): " + SAY)
        completion = await asyncio.wait_for(run.completion(), 20)
        assert completion.status == "SUCCEEDED"
        assert completion.data["events_dropped"] == count - MAX_HELD_EVENTS

    asyncio.run(case())


def test_a_consumer_that_breaks_off_still_gets_the_completion() -> None:
    async def case() -> None:
        run = fake_agent(f"for _ in range({MAX_HELD_EVENTS * 20}): " + SAY + RESULT)
        async for _ in run.events:
            break
        completion = await asyncio.wait_for(run.completion(), 20)
        assert (completion.status, completion.final_text) == ("SUCCEEDED", "answer")

    asyncio.run(case())


@pytest.mark.parametrize("in_another_task", [False, True])
def test_waiting_for_the_completion_while_reading_does_not_hang(
    in_another_task: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PATIENCE_S", 0.3)

    async def case() -> None:
        run = fake_agent(f"for _ in range({MAX_HELD_EVENTS * 20}): " + SAY)
        async for _ in run.events:
            waiting = run.completion()
            completion = await (asyncio.create_task(waiting) if in_another_task else waiting)
            assert completion.status == "SUCCEEDED"
            assert completion.data["events_dropped"] > 0
            break

    asyncio.run(asyncio.wait_for(case(), 20))


def test_a_slow_reader_loses_nothing_while_another_task_waits_for_the_completion() -> None:
    async def case() -> None:
        count = MAX_HELD_EVENTS * 4
        run = fake_agent(f"for _ in range({count}): " + SAY)
        reader = run.events.__aiter__()
        await reader.__anext__()
        waiting = asyncio.create_task(run.completion())
        seen = 1
        async for _ in reader:
            seen += 1
            if seen % 100 == 0:
                full = seen > count - MAX_HELD_EVENTS  # what is left cannot fill it any more
                await wait_for_async(lambda: full or run.events.blocked, what="a full buffer")  # noqa: B023
        assert seen == count
        assert "events_dropped" not in (await waiting).data

    asyncio.run(case())


def test_the_completion_resolves_once_and_can_be_asked_for_again() -> None:
    async def case() -> None:
        run = fake_agent(RESULT)
        first, second = await asyncio.gather(run.completion(), run.completion())
        run.cancel()
        assert first is second is await run.completion()
        assert first.status == "SUCCEEDED"

    asyncio.run(case())


# Three more that will not go, each of which says so before anything is said to us.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, says = os.pipe()
ignore = "import os, signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN);"
ignore += f"os.write({says}, b'.'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", ignore], pass_fds=[says])
subprocess.Popen([sys.executable, "-c", ignore], pass_fds=[says], process_group=0)
subprocess.Popen([sys.executable, "-c", ignore], pass_fds=[says], start_new_session=True)
for _ in range(3): os.read(ready, 1)
"""
STUBBORN = FAMILY + SAY + "time.sleep(600)"


def test_cancel_ends_the_stream_at_once_and_every_process_within_two_seconds(marker: str) -> None:
    async def case() -> None:
        run = fake_agent(STUBBORN, env={MARKER_VARIABLE: marker})
        events = run.events.__aiter__()
        await events.__anext__()
        assert len(processes_with(marker)) == 4
        run.cancel()
        run.cancel()
        with pytest.raises(StopAsyncIteration):
            await events.__anext__()
        assert len(processes_with(marker)) == 4, "the stream has ended, and they have not"
        completion = await run.completion()
        assert TERM_GRACE_S + SERVERS_GRACE_S + KILLED_DRAIN_S < 2, "all the waits there are"
        assert completion.status == "CANCELLED"
        assert processes_with(marker) == []

    asyncio.run(case())


def test_an_agent_that_ends_in_good_order_on_term_is_given_the_time(marker: str, tmp_path: Path) -> None:
    async def case() -> None:
        code = (
            "import signal, sys, time\n"
            "def end(*_):\n"
            f"    open({str(tmp_path / 'clean')!r}, 'w').close(); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\n" + SAY + "time.sleep(600)"
        )
        run = fake_agent(code, env={MARKER_VARIABLE: marker})
        async for _ in run.events:
            run.cancel()
        completion = await run.completion()
        assert (completion.status, completion.exit_code) == ("CANCELLED", 0)
        assert (tmp_path / "clean").exists()

    asyncio.run(case())


def test_cancel_wins_over_an_exit_that_has_not_been_told_yet(marker: str) -> None:
    async def case() -> None:
        # The agent is gone, but a background process keeps its output open: exited, not yet drained.
        code = (
            "import subprocess, sys\n"
            + SAY
            + "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
        )
        run = fake_agent(code, env={MARKER_VARIABLE: marker})
        async for _ in run.events:
            await wait_for_async(lambda: len(processes_with(marker)) == 1, what="the end of the agent")
            run.cancel()
        assert (await run.completion()).status == "CANCELLED"
        assert processes_with(marker) == []

    asyncio.run(case())


def test_cancel_before_the_start_wins_too(marker: str) -> None:
    async def case() -> None:
        run = fake_agent("import time; time.sleep(600)", env={MARKER_VARIABLE: marker})
        run.cancel()
        events, completion = await collect(run)
        assert (events, completion.status) == ([], "CANCELLED")
        assert processes_with(marker) == []

    asyncio.run(case())


@pytest.mark.parametrize("half_line", ["", "print('half', end='')\n"])
def test_a_background_process_that_holds_the_output_open_does_not_hold_up_the_completion(
    marker: str, half_line: str
) -> None:
    async def case() -> None:
        leave = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
        run = fake_agent("import subprocess, sys\n" + RESULT + half_line + leave, env={MARKER_VARIABLE: marker})
        events, completion = await collect(run)
        assert (completion.status, completion.final_text) == ("SUCCEEDED", "answer")
        told = [event.message for event in events]
        assert told == ["result success", *(["a line of 4 bytes is not JSON"] if half_line else [])]
        # It was the agent's own wish to leave it running.
        [left] = processes_with(marker)
        os.kill(left, 9)

    asyncio.run(case())


def test_the_timeout_takes_the_whole_family_down_and_says_so_at_the_end_of_the_stream(marker: str) -> None:
    async def case() -> None:
        run = fake_agent(SAY + FAMILY + "time.sleep(600)", env={MARKER_VARIABLE: marker}, timeout_s=2.5)
        events, completion = await collect(run)
        assert [event.message for event in events] == ["system init", "timed out after 2.5 s"]
        assert events[-1].kind == "Error"
        assert (completion.status, completion.message) == ("TIMEOUT", "timed out after 2.5 s")
        assert processes_with(marker) == []

    asyncio.run(case())


def test_leaving_the_context_ends_the_run(marker: str) -> None:
    async def case() -> None:
        async with fake_agent(SAY + "import time; time.sleep(600)", env={MARKER_VARIABLE: marker}) as run:
            async for _ in run.events:
                break
        assert processes_with(marker) == []
        assert (await run.completion()).status == "CANCELLED"

    asyncio.run(case())


def test_closing_the_event_loop_leaves_no_process(marker: str) -> None:
    async def case() -> None:
        run = fake_agent(SAY + "import time; time.sleep(600)", env={MARKER_VARIABLE: marker})
        async for _ in run.events:
            break

    asyncio.run(case())
    gc.collect()
    assert_no_processes(marker)


def test_the_agent_reads_the_null_device_and_its_own_variables_and_ours_stay_as_they_are() -> None:
    async def case() -> None:
        code = (
            "import json, os, sys\n"
            "print(json.dumps({'type': 'result', 'subtype': 'success', 'is_error': False,"
            " 'result': repr((sys.stdin.read(), os.environ['SUB_RUN_ID'], os.getsid(0) == os.getpid()))}))"
        )
        before = dict(os.environ)
        _, completion = await collect(fake_agent(code, env={"SUB_RUN_ID": "run-1"}))
        assert completion.final_text == "('', 'run-1', True)"
        assert dict(os.environ) == before

    asyncio.run(case())


def test_a_flood_on_stderr_neither_blocks_the_agent_nor_appears_anywhere() -> None:
    async def case() -> None:
        code = "import sys\nfor _ in range(2000): sys.stderr.write('leak-me ' * 128)\n" + RESULT
        events, completion = await collect(fake_agent(code))
        assert completion.data["stderr_bytes"] == 2000 * 128 * 8
        assert "leak-me" not in repr((events, completion))

    asyncio.run(case())


def test_a_line_cut_off_by_death_is_an_error_that_names_its_size() -> None:
    async def case() -> None:
        code = (
            "import os, sys\n"
            + SAY
            + 'sys.stdout.write(\'{"type":"assis\'); sys.stdout.flush(); os.kill(os.getpid(), 9)'
        )
        events, completion = await collect(fake_agent(code))
        assert [event.message for event in events] == ["system init", "a line of 14 bytes is not JSON"]
        assert completion.exit_code == -9

    asyncio.run(case())


def test_a_fault_in_a_mapper_ends_as_a_failed_run_and_not_as_a_hang() -> None:
    class Faulty(ClaudeCode):
        def command(self, request: RunRequest) -> list[str]:
            return [sys.executable, "-c", "print('x' * 1000000)"]

        def mapper(self) -> Any:
            mapper = super().mapper()
            mapper.feed = None  # type: ignore[method-assign,assignment]
            return mapper

    async def case() -> None:
        events, completion = await asyncio.wait_for(collect(Faulty().run(RunRequest("hi"))), GENEROUS_S)
        assert [event.message for event in events] == ["fault in the claude_code mapper: TypeError"]
        assert completion.status == "FAILED"

    asyncio.run(case())


def test_the_generic_back_end_reports_status_only_and_never_a_line() -> None:
    async def case() -> None:
        code = "import sys; print('secret one'); print(); print(sys.argv[-1])"
        run = Generic().run(RunRequest("the prompt", program=sys.executable, args=["-c", code]))
        events, completion = await collect(run)
        assert [(event.kind.value, event.message) for event in events] == [
            ("Status", "line 1: 10 bytes"),
            ("Status", "line 2: 10 bytes"),
        ]
        assert "secret" not in repr((events, completion))
        assert completion.status == "SUCCEEDED"

    asyncio.run(case())


def test_the_generic_back_end_needs_a_program() -> None:
    async def case() -> None:
        with pytest.raises(AgentError, match="needs a program"):
            Generic().run(RunRequest("hi"))

    asyncio.run(case())

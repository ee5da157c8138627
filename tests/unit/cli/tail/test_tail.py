"""`sub tail`: from the shim through journal, daemon and ledger to what a person sees."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from harness.command_line import SUB, run_sub, stored
from harness.driver import Agent
from harness.fake_server import fake_server
from harness.ledger import EventMaker, create_journal, ledgerd, sub_environment
from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from harness.shim import shim_command
from harness.terminal import TerminalProgram
from harness.waiting import wait_for

POLICY = {
    "policy_id": "tail-demo",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "ask-first",
            "kind": "deny",
            "enabled": True,
            "severity": "warn",
            "match": {"tool_name": {"glob": ["push*"]}},
            "effect": {
                "action": "REJECT_WITH_HINT",
                "message": "Pushing is not allowed.",
                "hint_text": "Open a pull request.",
                "suggested_args": {"branch": "feature"},
            },
        }
    ],
}
TAIL = [*SUB, "tail"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Whatever a test starts carries its marker, a daemon that is still starting included, and ends with the test."""
    marker = new_marker()
    monkeypatch.setenv(MARKER_VARIABLE, marker)
    (tmp_path / "sub").mkdir(mode=0o700)
    yield tmp_path / "sub"
    kill_marked(marker)


class Journal:
    """A producer with a journal of its own, as a shim has it."""

    def __init__(self, home, run_id: str, shim_id: str) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.events = EventMaker(run_id, shim_id)
        self._file = create_journal(str(home / "spool"), shim_id)

    def write(self, *lines: bytes) -> None:
        os.write(self._file, b"".join(line + b"\n" for line in lines))

    def close(self) -> None:
        os.close(self._file)


@contextmanager
def journal(home, run_id: str = "run-1", shim_id: str = "shim-1"):
    made = Journal(home, run_id, shim_id)
    try:
        made.write(made.events.run_start())
        yield made
    finally:
        made.close()


@contextmanager
def tail_lines(home, *options: str):
    """A tail whose output is a pipe: gives a function that waits for so many lines."""
    process = subprocess.Popen(
        [*TAIL, *options],
        env=sub_environment(home, PYTHONUTF8="1", TZ="UTC"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    os.set_blocking(process.stdout.fileno(), False)
    got = bytearray()

    def lines(count: int) -> list[str]:
        def enough() -> bool:
            got.extend(process.stdout.read() or b"")
            return got.count(b"\n") >= count

        try:
            wait_for(enough, what=f"{count} lines")
        except AssertionError as error:
            error.add_note(f"there are: {got.decode()}")
            raise
        return got[: got.rindex(b"\n")].decode().splitlines()

    try:
        yield process, lines
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def followed(shim: Journal, lines) -> int:
    """Wait until new calls are followed: of one made before, only its last state is told. How many lines that took."""
    shim.write(*shim.events.call(tool="warm-up"))

    def has_ended(line: str) -> bool:
        """A row names its members whatever their values: its state is what counts."""
        return "warm-up" in line and (json.loads(line)["state"] == "ended" if line.startswith("{") else "OK" in line)

    count = 1
    while not has_ended((text := lines(count))[-1]):
        count = len(text) + 1
    return len(text)


def on_terminal(home, *options: str, **size: int) -> TerminalProgram:
    return TerminalProgram([*TAIL, *options], env=sub_environment(home, PYTHONUTF8="1", TZ="UTC"), **size)


def first_line_of(program: TerminalProgram, word: str) -> str:
    """Two columns at least: it may be being drawn again."""
    return next((row for row in program.screen.rows if word in row), "- -")


# -- a person at a terminal -------------------------------------------------------------------------------------------


def test_a_call_through_a_real_shim_changes_in_place_until_it_has_ended(home, tmp_path):
    server = fake_server(tools={"build": {"hold_until": 2}, "push_branch": {}, "read": {"echo": True}})
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(POLICY))
    env = sub_environment(home, SUB_RUN_ID="run-real", SUB_AGENT_ID="builder")
    with on_terminal(home) as program, Agent(shim_command("ci", server, policy=policy), env=env) as agent:
        agent.initialize()
        slow = agent.start_call("build", {"target": "all"})
        program.wait_for("run-real · builder", "running…")
        agent.call("push_branch", {"branch": "main"})
        agent.call("read", {"path": "README"})
        program.wait_for("ci/read", "hint: Open a pull request.", 'try: {"branch":"feature"}')
        program.wait_until(lambda: first_line_of(program, "ci/build").split()[1] == "running…", "the slow one's line")
        agent.call("build", {"target": "some"})  # the second releases both
        agent.reply(slow)
        program.wait_until(lambda: first_line_of(program, '"all"').split()[1] == "OK", "the end")
        program.wait_for("ci/read", '"some"')  # lines below are drawn again, and may come in pieces
        assert program.screen.text.count('"all"') == 1
        places = [program.screen.text.index(name) for name in ("ci/build", "ci/push_branch", "hint:", "ci/read")]
        assert places == sorted(places)
        agent.finish()
        program.wait_for("run-real SUCCEEDED: 4 calls, 1 blocked")
        assert program.interrupt() == 0


def test_a_line_that_has_scrolled_out_is_left_alone_and_the_end_is_told_below(home):
    with journal(home) as shim, on_terminal(home, lines=10) as program:
        shim.write(shim.events.start("slow"), shim.events.decision())
        program.wait_for("git/slow")
        slow = dict(shim.events.reference)
        for number in range(15):
            shim.write(*shim.events.call(tool=f"quick{number}"))
        program.wait_for("git/quick14")
        shim.events.reference = slow
        shim.write(shim.events.end())
        program.wait_until(lambda: program.screen.text.count("git/slow") == 2, "the second line")
        rows = [row for row in program.screen.rows if "git/slow" in row]
        assert [row.split()[1] for row in rows] == ["running…", "OK"]


def test_after_a_change_of_width_what_stands_there_is_left_alone(home):
    with journal(home) as shim, on_terminal(home, columns=100) as program:
        shim.write(shim.events.start("slow"), shim.events.decision())
        program.wait_for("git/slow")
        slow = dict(shim.events.reference)
        program.resize(60, 30)
        program.screen.columns = 100  # a line that was on its way may still have the old width
        wait_for(lambda: _is_narrow(shim, program), what="lines of the new width")
        shim.events.reference = slow
        shim.write(shim.events.end())
        program.wait_until(lambda: program.screen.text.count("git/slow") == 2, "the second line")
        assert first_line_of(program, "git/slow").split()[1] == "running…"


def _is_narrow(shim: Journal, program: TerminalProgram) -> bool:
    shim.write(*shim.events.call(tool="other", preview="x" * 500))
    program.pump(0.2)
    return any("git/other" in row and len(row) == 60 for row in program.screen.rows)


def test_keys_are_not_echoed_while_it_draws_and_are_again_afterwards(home):
    with on_terminal(home) as program:
        wait_for(lambda: not program.echoes(), what="quiet input")
        assert program.interrupt() == 0
        assert program.echoes()


def test_after_a_stop_what_the_shell_may_have_moved_is_left_alone(home):
    with journal(home) as shim, on_terminal(home) as program:
        shim.write(shim.events.start("slow"), shim.events.decision())
        program.wait_for("git/slow")
        program.process.send_signal(signal.SIGSTOP)
        program.process.send_signal(signal.SIGCONT)
        shim.write(shim.events.end())
        program.wait_until(lambda: program.screen.text.count("git/slow") == 2, "the second line")
        assert not program.echoes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_when_told_to(home, number):
    with tail_lines(home) as (process, _), journal(home) as shim:
        shim.write(*shim.events.call())
        wait_for(lambda: process.stdout.read(), what="the first line")
        process.send_signal(number)
        assert process.wait(20) == 0
        assert b"Traceback" not in process.stderr.read()


def test_wide_characters_and_long_arguments_fit_the_terminal(home):
    maker = EventMaker("run-wide", "shim-1")
    calls = maker.call(tool="ファイルを読む" * 3, preview='{"道":"' + "長" * 200 + '"}') + maker.call(
        tool="e\u0301" * 80
    )
    stored(home, [maker.run_start(), *calls])
    with on_terminal(home, columns=50) as program:
        program.wait_for("…")
        program.wait_for("e\u0301")


# -- pipes and programs -----------------------------------------------------------------------------------------------


def test_a_pipe_gets_one_plain_line_per_call_when_it_has_ended(home):
    with tail_lines(home) as (_, lines), journal(home) as shim:
        followed(shim, lines)
        shim.write(shim.events.start("slow"), shim.events.decision())
        slow = dict(shim.events.reference)
        shim.write(*shim.events.call("BLOCK", tool="rm"))
        assert lines(3)[2].split()[1] == "BLOCK"
        shim.events.reference = slow
        shim.write(shim.events.end())
        text = lines(5)
        del text[1]
    assert text[0] == "── run run-1 · repo-fixer · claude · dev · guardrails"
    assert text[2].strip() == "DENYLIST_MATCH by rule deny-writes: Writes are denied."
    assert text[3].split()[1:] == ["OK", "3", "ms", "git/slow", '{"path":"."}', slow["call_id"]]
    assert "\x1b" not in "".join(text)


def test_json_has_one_object_for_each_change_of_state(home):
    with tail_lines(home, "--json") as (_, lines), journal(home) as shim:
        before = followed(shim, lines)
        shim.write(*shim.events.call("BLOCK", tool="rm"))
        changes = [json.loads(line) for line in lines(before + 3)[before:]]
    assert [(c["state"], c["decision"], c["status"]) for c in changes] == [
        ("started", None, None),
        ("decided", "BLOCK", None),
        ("ended", "BLOCK", "ERROR"),
    ]
    assert changes[2]["reason_code"] == "DENYLIST_MATCH" and changes[2]["args_preview"] == '{"path":"."}'


def test_a_call_that_two_doors_see_is_told_once_by_the_one_that_speaks_for_it(home):
    with ledgerd(home), tail_lines(home, "--json") as (_, lines), journal(home, shim_id="hook") as hook:
        began = followed(hook, lines)
        with journal(home, shim_id="shim") as shim:
            at_hook, at_shim = hook.events, shim.events
            hook.write(at_hook.seen("hook", "toolu_1"), at_hook.decision())
            lines(began + 2)
            shim.write(at_shim.seen("mcp_stdio", "toolu_1"), at_shim.decision(), at_shim.end())
            hook.write(at_hook.end())
            lines(began + 3)
            hook.write(at_hook.seen("hook", "toolu_2"), at_hook.decision())
            lines(began + 5)
            shim.write(at_shim.seen("mcp_stdio", "toolu_2"), at_shim.decision("BLOCK"), at_shim.end("ERROR"))
            lines(began + 7)
            hook.write(at_hook.end("ERROR"), *at_hook.call())
            told = [json.loads(line) for line in lines(began + 10)[began:]]
    shown = [(call["tool_use_id"], call["transport"], call["decision"], call["state"]) for call in told]
    assert shown == [
        ("toolu_1", "hook", None, "started"),
        ("toolu_1", "hook", "ALLOW", "decided"),
        ("toolu_1", "hook", "ALLOW", "ended"),
        ("toolu_2", "hook", None, "started"),
        ("toolu_2", "hook", "ALLOW", "decided"),
        ("toolu_2", "mcp_stdio", "BLOCK", "decided"),
        ("toolu_2", "mcp_stdio", "BLOCK", "ended"),
        *((None, "mcp_stdio", decision, state) for decision, state in ((None, "started"), ("ALLOW", "decided"))),
        (None, "mcp_stdio", "ALLOW", "ended"),
    ]


def test_a_call_that_three_doors_see_is_told_once_and_the_refusal_of_any_speaks(home):
    with ledgerd(home), tail_lines(home, "--json") as (_, lines), journal(home, shim_id="model") as model:
        began = followed(model, lines)
        with journal(home, shim_id="hook") as hook, journal(home, shim_id="shim") as shim:
            first, second, third = model.events, hook.events, shim.events
            model.write(first.seen("messages_api", "toolu_1"), first.decision())
            lines(began + 2)
            hook.write(second.seen("hook", "toolu_1"), second.decision())
            shim.write(third.seen("mcp_stdio", "toolu_1"), third.decision("BLOCK"), third.end("ERROR"))
            lines(began + 4)
            hook.write(second.end("ERROR"))
            model.write(first.end("ERROR"), *first.call())
            told = [json.loads(line) for line in lines(began + 7)[began:]]
    assert [(call["tool_use_id"], call["transport"], call["decision"], call["state"]) for call in told] == [
        ("toolu_1", "messages_api", None, "started"),
        ("toolu_1", "messages_api", "ALLOW", "decided"),
        ("toolu_1", "mcp_stdio", "BLOCK", "decided"),
        ("toolu_1", "mcp_stdio", "BLOCK", "ended"),
        *((None, "mcp_stdio", decision, state) for decision, state in ((None, "started"), ("ALLOW", "decided"))),
        (None, "mcp_stdio", "ALLOW", "ended"),
    ]


def test_events_are_the_exact_lines(home):
    with tail_lines(home, "--events") as (_, lines), journal(home) as shim:
        sent = shim.events.call()
        shim.write(*sent)
        assert [line.encode() for line in lines(4)[1:]] == sent


def test_conditions_hold_for_what_was_and_what_comes(home):
    maker = EventMaker("run-0", "shim-0")
    stored(home, [maker.run_start(), *maker.call("BLOCK", tool="rm"), *maker.call(tool="ls"), maker.run_end()])
    with tail_lines(home, "--json", "--decision", "BLOCK", "--tool", "r*") as (_, lines), journal(home) as shim:
        lines(1)
        shim.write(*shim.events.call(tool="rm"), *shim.events.call("BLOCK", tool="cp"))
        shim.write(*shim.events.call("BLOCK", tool="rmdir"))
        found = [json.loads(line) for line in lines(3)]
    assert [(c["tool_name"], c["state"]) for c in found] == [("rm", "ended"), ("rmdir", "decided"), ("rmdir", "ended")]


def test_a_glob_finds_the_same_tools_in_what_was_and_what_comes_and_in_a_query(home):
    """`[!p]` is one character that is no p: the dialect of policies."""
    maker = EventMaker("run-0", "shim-0")
    stored(home, [maker.run_start(), *maker.call(tool="git_push"), *maker.call(tool="git_status")])
    glob = ["--tool", "git_[!p]*"]
    found = run_sub(home, "query", "--json", *glob).stdout.splitlines()
    assert [json.loads(line)["tool_name"] for line in found] == ["git_status"]
    with tail_lines(home, "--json", *glob) as (_, lines), journal(home) as shim:
        assert json.loads(lines(1)[0])["tool_name"] == "git_status"
        shim.write(*shim.events.call(tool="git_push"), *shim.events.call(tool="git_log"))
        assert {json.loads(line)["tool_name"] for line in lines(4)[1:]} == {"git_log"}


def test_it_has_the_filters_of_a_query(home):
    maker = EventMaker("run-0", "shim-0")
    stored(home, [maker.run_start(), *maker.call("BLOCK", tool="rm"), *maker.call(status="ERROR", tool="ls")])
    options = ["--status", "ERROR", "--agent", "repo-fixer", "--text", "GIT", "--since", "2020-01-01"]
    with tail_lines(home, "--json", *options) as (_, lines), journal(home) as shim:
        lines(1)
        shim.write(*shim.events.call("BLOCK", tool="rm"), *shim.events.call(tool="ls"))
        shim.write(*shim.events.call(status="ERROR", tool="cp"))
        found = [json.loads(line) for line in lines(2)]
    assert [(c["tool_name"], c["state"]) for c in found] == [("ls", "ended"), ("cp", "ended")]


def test_events_are_filtered_by_what_is_known_of_their_call(home):
    maker = EventMaker("run-0", "shim-0")
    stored(home, [maker.run_start(), *maker.call("BLOCK", tool="rm"), *maker.call(tool="ls"), maker.run_end()])
    asked = {
        ("--decision", "BLOCK"): ["tool_call_decision", "tool_call_end"],
        ("--type", "run_*"): ["run_start", "run_end"],
        ("--status", "OK", "--type", "tool_call_end"): ["tool_call_end"],
        ("--env", "prod"): [],
    }
    for options, types in asked.items():
        found = run_sub(home, "tail", "--no-follow", "--events", *options).stdout.splitlines()
        assert [json.loads(line)["type"] for line in found] == types
    with tail_lines(home, "--events", "--decision", "BLOCK") as (_, lines), journal(home) as shim:
        lines(2)
        shim.write(*shim.events.call(tool="cp"), *shim.events.call("BLOCK", tool="mv"))
        told = [json.loads(line) for line in lines(4)[2:]]
    assert [(e["call"]["tool_name"], e["type"]) for e in told] == [
        ("mv", "tool_call_decision"),
        ("mv", "tool_call_end"),
    ]


def test_only_the_run_that_was_asked_for(home):
    maker = EventMaker("run-old", "shim-0")
    stored(home, maker.whole_run(1))
    with tail_lines(home, "--json", "--run", "run-o") as (_, lines), journal(home, "run-new", "shim-2") as other:
        lines(1)
        other.write(*other.events.call())
        with journal(home, "run-old", "shim-3") as shim:
            shim.write(*shim.events.call(tool="again"))
            found = [json.loads(line) for line in lines(4)]
    assert {c["run_id"] for c in found} == {"run-old"}


def test_runs_are_set_apart_and_a_call_of_an_earlier_one_is_tagged(home):
    with tail_lines(home) as (_, lines), journal(home, "run-aaaa", "shim-1") as one:
        one.write(*one.events.call(tool="first"))
        lines(2)
        with journal(home, "run-bbbb", "shim-2") as two:
            two.write(*two.events.call(tool="second"))
            lines(4)
            one.write(*one.events.call(tool="third"))
            text = lines(5)
    assert [line.startswith("── run") for line in text] == [True, False, True, False, False]
    assert "[aaaa] git/third" in text[4] and "[" not in text[3].split("git/second")[0]


def test_no_follow_prints_the_last_calls_and_ends(home):
    maker = EventMaker("run-1", "shim-1")
    stored(home, [*maker.whole_run(20)[:-1], maker.start("hangs"), maker.decision()])
    result = run_sub(home, "tail", "--no-follow", "-n", "3")
    assert result.returncode == 0
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["OK", "OK", "running…"]
    assert len(run_sub(home, "tail", "--no-follow", "-n", "5", "--events").stdout.splitlines()) == 5
    assert run_sub(home, "tail", "--no-follow", "--lines", "0").stdout == ""


# -- trouble ----------------------------------------------------------------------------------------------------------


def test_without_any_ledger_it_waits_and_says_once_what_to_do(home):
    with tail_lines(home) as (process, lines):
        os.set_blocking(process.stderr.fileno(), False)
        said = bytearray()
        wait_for(lambda: said.extend(process.stderr.read() or b"") or b"run your agent" in said, what="the message")
        with journal(home) as shim:
            shim.write(*shim.events.call())
            assert "git/git_status" in lines(2)[1]
        said.extend(process.stderr.read() or b"")
        assert said.count(b"\n") == 1


def test_a_daemon_that_is_killed_is_started_again_and_nothing_is_missed(home):
    with ledgerd(home) as daemon, tail_lines(home, "--json") as (_, lines), journal(home) as shim:
        before = followed(shim, lines)
        daemon.kill()
        daemon.wait()
        shim.write(*shim.events.call(tool="two"))
        shim.write(*shim.events.call(tool="three"))
        found = [json.loads(line) for line in lines(before + 6)[before:]]
    assert [(c["tool_name"], c["state"]) for c in found] == [
        (tool, state) for tool in ("two", "three") for state in ("started", "decided", "ended")
    ]


def test_a_ledger_of_a_newer_version_ends_it_with_a_sentence(home):
    stored(home, [])
    with sqlite3.connect(home / "ledger.db") as database:
        database.execute("PRAGMA user_version = 99")
    result = run_sub(home, "tail")
    assert result.returncode == 2 and "newer Subluminal" in result.stderr and "Traceback" not in result.stderr


def test_control_sequences_are_shown_and_never_obeyed(home):
    maker = EventMaker("run-\x1b[31m", "shim-1")
    evil = "a\x1b[2J\x07\u009b1A\r\n"
    error = {"class": "upstream_error", "message": evil, "code": evil}
    hint = {"hint_text": "h" + evil, "suggested_args": {evil: evil}, "retry_advice": evil, "hint_kind": "OTHER"}
    explain = {"summary": evil, "reason_code": evil}
    refused = [maker.start(evil, evil, preview=evil), maker.decision("REJECT_WITH_HINT", hint=hint, explain=explain)]
    stored(home, [maker.run_start(), *refused, maker.start("b"), maker.decision(), maker.end("ERROR", error=error)])
    with on_terminal(home) as program:  # its screen fails on any control it does not know
        program.wait_for("git/b", r"hint: ha\x1b[2J\x07\x9b1A")
        assert program.interrupt() == 0
    assert not set(run_sub(home, "tail", "--no-follow").stdout) & set("\x1b\x07\u009b\r")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--json", "--events"], "exclude each other"),
        (["-n", "-1"], "--lines must be"),
        (["--run", "x"], "no run 'x'"),
        (["--type", "run_end"], "--type goes with --events"),
        (["--tool", "[z-a]"], "has the range z-a"),
        (["--since", "soon"], "'soon' is no time"),
    ],
)
def test_a_mistake_gets_a_sentence(home, options, sentence):
    stored(home, EventMaker("run-1", "shim-1").whole_run(1))
    result = run_sub(home, "tail", "--no-follow", *options)
    assert result.returncode == 2 and sentence in result.stderr and "Traceback" not in result.stderr


def test_a_reader_that_goes_away_ends_it(home):
    process = subprocess.Popen(
        TAIL, env=sub_environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    process.stdout.close()
    assert process.wait(20) == 0


def test_a_call_is_on_its_way_out_soon_after_it_was_made(home):
    """The budget is 100 ms on a free machine, about what the start of a process takes there."""
    with ledgerd(home), tail_lines(home, "--json") as (process, lines), journal(home) as shim:
        taken, starts = [], []
        before = followed(shim, lines)
        for number in range(8):
            shim.write(*shim.events.call(tool=f"t{number}"))
            began = time.monotonic()
            _ring(home)
            starts.append(time.monotonic() - began)
            lines(before + 3 * (number + 1))
            taken.append(time.monotonic() - began)
        assert statistics.median(taken) < 4 * statistics.median(starts), (taken, starts)
        assert process.poll() is None


def _ring(home) -> None:
    script = "from subluminal.host.record.doorbell import Doorbell; Doorbell(True).ring()"
    subprocess.run([sys.executable, "-c", script], env=sub_environment(home), check=True)

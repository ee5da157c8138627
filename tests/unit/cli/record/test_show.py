"""`sub show` and `sub help`, run as a user runs them."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256

import pytest

from harness.command_line import SUB, run_sub, stored
from harness.ledger import BASE_MS, POLICY, EventMaker, sub_environment
from harness.terminal import TerminalProgram
from subluminal.cli.about.help import TOPICS, topic_text
from subluminal.cli.commands import COMMANDS
from subluminal.contracts.vocabulary import REASON_CODES

HINT = {"hint_text": "Use a branch.", "suggested_args": {"b": 1}, "retry_advice": "Once.", "hint_kind": "ARG_FIX"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One run of two shims, with everything that a timeline can hold; and an earlier one."""
    home = tmp_path_factory.mktemp("show") / "sub"
    git = EventMaker("run-now", "shim-git")
    sh = EventMaker("run-now", "shim-sh", start_ms=BASE_MS + 1000)
    agent = EventMaker("run-now", "agent-1", start_ms=BASE_MS + 3000)
    begin = git.run_start()
    start = json.loads(git.start("git_push", preview='{"branch":"main"}'))
    start["call"]["call_context"] = {"claudecode/toolUseId": "toolu_1"}
    load = {"ok": False, "origin": "policy.yaml", "error": "line 3"}
    breaker = {
        "rule_id": "too-many",
        "reason_code": "BREAKER_ERRORS",
        "scope": "tool",
        "threshold": 3,
        "window_ms": 1000,
    }
    secret = {"inject_as": "TOKEN", "secret_ref": "gh", "source": "env", "success": True}
    lines = [begin, json.dumps(start).encode(), git.decision("REJECT_WITH_HINT", hint=HINT), git.end("ERROR")]
    lines += [sh.run_start(), sh.event("policy_loaded", policy=POLICY, load=load)]
    lines += sh.call(tool="make", server="shell")
    lines += [sh.event("breaker_trip", call=sh.reference, breaker=breaker), sh.event("secret_injection", secret=secret)]
    lines += [sh.start("sleep", "shell"), sh.decision()]
    for number, said in enumerate(
        [
            {"kind": "TextOutput", "text": "I will "},
            {"kind": "TextOutput", "text": "push now."},
            {"kind": "ToolCall", "data": {"phase": "start", "id": "toolu_1", "name": "mcp__git__git_push"}},
            {"kind": "ToolCall", "data": {"phase": "start", "id": "toolu_2", "name": "Bash"}},
            {"kind": "Error", "message": "it failed"},
        ]
    ):
        lines.append(agent.event("agent_event", agent={"agent_kind": "claude_code", "channel": str(number), **said}))
    stored(home, EventMaker("run-before", "shim-0", start_ms=BASE_MS - 99_000).whole_run(1) + lines + [git.run_end()])
    return home


def shown(home, *options: str) -> str:
    result = run_sub(home, "show", *options)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_a_run_is_a_timeline_of_calls_and_of_what_happened_between(home):
    text = shown(home, "run-now")
    assert text.splitlines()[0] == "run run-now  RUNNING"
    wanted = [
        "repo-fixer (claude, dev), for ann",
        "3: 2 allowed, 1 blocked, 0 throttled, 0 errors",
        "git (guardrails, policy team-default 1.2.0)",
        "REJECT               git/git_push",
        "DENYLIST_MATCH by rule deny-writes: Writes are denied.",
        "hint: Use a branch.",
        "git SUCCEEDED",
        "shell (guardrails, policy team-default 1.2.0)",
        "not loaded from policy.yaml: line 3",
        "OK             3 ms  shell/make",
        "too-many tripped (BREAKER_ERRORS, scope tool)",
        "gh given as TOKEN",
        "running…             shell/sleep",
        "I will push now.",
        "uses Bash",
        "it failed",
    ]
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)


def test_a_tool_call_that_agent_and_shim_both_report_is_told_once(home):
    assert "mcp__git__git_push" not in shown(home, "run-now")
    timeline = json.loads(shown(home, "last", "--json"))["timeline"]
    reported = next(item for item in timeline if (item.get("agent") or {}).get("data", {}).get("id") == "toolu_1")
    assert reported["call_id"] == "shim-git-1"


def test_last_is_the_run_that_began_last(home):
    assert shown(home, "last") == shown(home, "run-now")


def test_json_is_one_object_with_the_run_and_its_timeline(home):
    run = json.loads(shown(home, "run-now", "--json"))
    assert (run["run_id"], run["calls_total"], len(run["producers"])) == ("run-now", 3, 3)
    kinds = [item["kind"] for item in run["timeline"]]
    assert kinds.count("call") == 3 and "breaker_trip" in kinds
    assert [item["at"] for item in run["timeline"]] == sorted(item["at"] for item in run["timeline"])


def test_a_call_is_shown_with_everything_known(home):
    text = shown(home, "shim-git-1")
    for words in (
        "call shim-git-1  REJECT",
        "git/git_push",
        "REJECT_WITH_HINT by rule deny-writes, severity warn",
        "DENYLIST_MATCH: Writes are denied.",
        "Use a branch.",
        '{"b":1}',
        f"team-default 1.2.0 {'a' * 64}",
        "170 bytes in, 220 bytes out",
        f"{1:064x}",
        "claudecode/toolUseId toolu_1",
        '    "branch": "main"',
        "  clean",
    ):
        assert words in text
    call = json.loads(shown(home, "shim-git-1", "--json"))
    assert call["policy"]["policy_id"] == "team-default" and call["hint"]["hint_kind"] == "ARG_FIX"
    assert [event["type"] for event in call["events"]] == ["tool_call_start", "tool_call_decision", "tool_call_end"]


def test_the_beginning_of_an_id_will_do(home):
    assert shown(home, "run-n") == shown(home, "run-now")
    assert shown(home, "shim-g") == shown(home, "shim-git-1")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("run-", "More than one run or call begins with 'run-': run-before, run-now."),
        ("shim-sh", "begins with 'shim-sh': shim-sh-1, shim-sh-2."),
        ("nothing", "There is no run or call 'nothing' in the ledger."),
        ("", "More than one run or call begins with ''"),
    ],
)
def test_an_id_that_does_not_single_one_out_is_an_error(home, target, sentence):
    result = run_sub(home, "show", target)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr


def test_one_call_id_in_two_runs_is_told_apart_by_the_run(tmp_path):
    for run_id in ("run-a", "run-b"):
        stored(tmp_path / "sub", EventMaker(run_id, "same").whole_run(1))
    result = run_sub(tmp_path / "sub", "show", "same-1")
    assert result.returncode == 2 and "Several runs have a call 'same-1': run-a, run-b." in result.stderr
    assert "run-b (repo-fixer" in shown(tmp_path / "sub", "same-1", "--run", "run-b")


def test_control_sequences_are_shown_and_never_obeyed_and_lines_fit(tmp_path):
    home = tmp_path / "sub"
    maker = EventMaker("run-\x1b[2J", "shim-1")
    evil = "ツ\x1b[31m\u009b2J\r" * 30
    hint = {"hint_text": evil, "suggested_args": {evil: evil}, "retry_advice": evil, "hint_kind": "OTHER"}
    agent = {"agent_kind": "x", "kind": "TextOutput", "text": evil}
    lines = [maker.run_start(meta={evil: evil}), maker.start(evil, evil, preview=evil)]
    lines += [maker.decision("REJECT_WITH_HINT", hint=hint), maker.end("ERROR", preview="two\nlines\t" + evil)]
    stored(home, [*lines, maker.event("agent_event", agent=agent)])
    for target in ("last", "shim-1-1"):
        command = [*SUB, "show", target]
        with TerminalProgram(command, env=sub_environment(home, PYTHONUTF8="1"), columns=70, lines=200) as program:
            program.wait_for("ツ")
            assert program.end() == 0
            for _ in range(5):
                program.pump(0.02)
        assert not set(run_sub(home, "show", target).stdout) & set("\x1b\u009b\r\t")


def test_an_empty_or_missing_ledger_gets_a_sentence(tmp_path):
    missing = run_sub(tmp_path / "sub", "show", "last")
    stored(tmp_path / "sub", [])
    empty = run_sub(tmp_path / "sub", "show", "last")
    assert missing.returncode == empty.returncode == 2
    assert "holds no run yet" in missing.stderr and missing.stderr == empty.stderr


# -- said once, and truly ------------------------------------------------------------------------------------------


def dedupe(maker):
    """A refusal whose hint, written by nobody, says what the reason says."""
    summary = "The same call went through 2 s ago. Use its result."
    explain = {"summary": summary, "reason_code": "DUPLICATE_CALL"}
    hint = {**HINT, "hint_text": "Use its result.", "suggested_args": None, "retry_advice": summary}
    error = {"class": "policy_block", "message": "refused"}
    return [
        maker.start("fetch"),
        maker.decision("REJECT_WITH_HINT", explain=explain, hint=hint),
        maker.end("ERROR", error=error),
    ]


def test_a_sentence_is_told_once_and_refusals_that_are_alike_are_one(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    stored(tmp_path / "sub", [maker.run_start(), *(line for _ in range(3) for line in dedupe(maker)), maker.run_end()])
    text = run_sub(tmp_path / "sub", "show").stdout
    assert text.count("Use its result.") == 1 and text.count("git/fetch") == 1
    assert "3 times, the last at" in text and "(shim-1-3)" in text
    one = run_sub(tmp_path / "sub", "show", "shim-1-2").stdout
    assert one.count("Use its result.") == 1


def test_a_latency_of_no_whole_millisecond_is_not_called_nothing(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    end = json.loads([maker.run_start(), maker.start(), maker.decision(), maker.end()][-1])
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), maker.start(), maker.decision()]
    lines.append(json.dumps({**end, "latency_ms": 0, "overhead_us": 17398}).encode())
    stored(tmp_path / "sub", lines)
    shown = run_sub(tmp_path / "sub", "show", "shim-1-1").stdout
    assert "<1 ms at the server, 17.4 ms in the shim (judging, passing on both ways)" in shown
    assert "<1 ms" in run_sub(tmp_path / "sub", "query").stdout


def test_a_run_whose_policy_did_not_load_is_not_said_to_observe(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    explain = {"summary": "The policy is invalid.", "reason_code": "POLICY_INVALID"}
    lines = [maker.run_start(mode="observe"), maker.start(), maker.decision("BLOCK", rule_id=None, explain=explain)]
    stored(tmp_path / "sub", lines)
    for command in (["show"], ["tail", "--no-follow"]):
        told = run_sub(tmp_path / "sub", *command)
        assert "not loaded: every call" in told.stdout and "observe" not in told.stdout.splitlines()[0]


def test_a_policy_that_is_read_again_says_what_changed(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    new = {**POLICY, "policy_version": "1.3.0", "policy_hash": "b" * 64}
    load = {"ok": True, "origin": "user"}
    loads = [maker.event("policy_loaded", policy=policy, load=load) for policy in (POLICY, POLICY, new)]
    stored(tmp_path / "sub", [maker.run_start(), *maker.call(), *loads])
    told = [line for line in run_sub(tmp_path / "sub", "show").stdout.splitlines() if "  policy " in line[8:20]]
    assert [line.split("git: ")[1] for line in told if "git: " in line] == [
        "team-default 1.2.0 loaded",
        "team-default read again, unchanged",
        "team-default 1.2.0 to 1.3.0 (aaaaaaaa to bbbbbbbb)",
    ]


def test_a_policy_that_is_read_again_names_the_rules_that_differ(tmp_path):
    old, new = ["kept", "edited", "gone"], ["kept", "edited", *(f"new-{n}" for n in range(5))]
    texts = [
        json.dumps({"rules": [{"rule_id": rule, "is": number if rule == "edited" else 0} for rule in ids]})
        for number, ids in enumerate((old, new))
    ]
    hashes = [sha256(text.encode()).hexdigest() for text in texts]
    maker = EventMaker("run-1", "shim-1")
    load = {"ok": True, "origin": "user"}
    loads = [maker.event("policy_loaded", policy={**POLICY, "policy_hash": name}, load=load) for name in hashes]
    stored(tmp_path / "sub", [maker.run_start(), *maker.call(), *loads])

    def told(*kept: str) -> str:
        with closing(sqlite3.connect(tmp_path / "sub" / "ledger.db")) as ledger, ledger:
            ledger.executemany(
                "UPDATE policy_versions SET rules_json = ? WHERE rules_hash = ?", zip(kept, hashes, strict=True)
            )
        return run_sub(tmp_path / "sub", "show").stdout

    assert f"team-default 1.2.0, changed ({hashes[0][:8]} to {hashes[1][:8]})" in told(texts[0], texts[0]), (
        "not its text"
    )
    assert "1.2.0, changed (added new-0, new-1, new-2 and 2 more; removed gone; changed edited)" in told(*texts)
    item = json.loads(run_sub(tmp_path / "sub", "show", "--json").stdout)["timeline"][-1]
    assert item["rules"]["removed"] == ["gone"] and item["before"]["policy_hash"] == hashes[0]


# -- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_a_text_that_fits_a_page(home, topic):
    result = run_sub(home, "help", topic)
    assert result.returncode == 0 and topic_text(topic) in result.stdout
    assert len(topic_text(topic).splitlines()) < 45
    assert max(map(len, topic_text(topic).splitlines())) <= 120


def test_every_command_a_topic_names_exists():
    named = set()
    for topic in TOPICS:
        for line in topic_text(topic).splitlines():
            for after in line.split("sub ")[1:]:
                word = after.split()[0].strip("`:;,)")
                assert word in COMMANDS or not word.isalpha(), (topic, line)
                named.add(word)
    assert len(named & set(COMMANDS)) >= 8, "the topics send the reader to commands"


def test_every_reason_code_is_explained():
    text = topic_text("reason-codes")
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2].isupper()] == list(
        REASON_CODES
    )


def test_help_knows_commands_too_and_says_what_there_is(home):
    assert "Usage: sub show [OPTIONS] [TARGET]" in run_sub(home, "help", "show").stdout
    assert "Usage: sub policy init" in run_sub(home, "help", "policy", "init").stdout
    everything = run_sub(home, "help").stdout
    assert all(name in everything for name in (*TOPICS, "tail", "query"))
    wrong = run_sub(home, "help", "nonsense")
    assert wrong.returncode == 2 and "quickstart" in wrong.stderr
    below = run_sub(home, "help", "policy", "nonsense")
    assert below.returncode == 2 and "sub policy --help" in below.stderr


def test_bare_help_runs_without_a_home(tmp_path):
    result = run_sub(tmp_path / "none", "help", "quickstart", HOME="/nonexistent")
    assert result.returncode == 0 and sys.version_info >= (3, 11)


def test_what_one_shim_reports_stays_in_its_order_though_the_clock_was_set_back(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), *maker.call(tool="first")]
    maker.ms -= 3_600_000
    lines += [*maker.call(tool="second"), maker.run_end()]
    stored(tmp_path / "sub", lines)
    text = run_sub(tmp_path / "sub", "show", "run-1", "--no-sync").stdout
    assert text.index("git/first") < text.index("git/second") < text.index("git SUCCEEDED")

"""`sub query` and `sub runs`, run as a user runs them on a real ledger."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import sqlite3
import subprocess
import sys

import pytest

from harness.command_line import run_sub, stored
from harness.ledger import BASE_MS, EventMaker, spool_of, sub_environment, timestamp
from harness.processes import MARKER_VARIABLE, kill_marked, new_marker
from harness.terminal import TerminalProgram
from harness.waiting import wait_for
from subluminal.cli.record.query import QUERY

WOULD = {
    "action": "BLOCK",
    "rule_id": "no-ls",
    "severity": "warn",
    "explain": {"summary": "No listing.", "reason_code": "DENYLIST_MATCH"},
}
# engineering-spec §11.3
SPEC_COLUMNS = [
    "call_id", "run_id", "server_name", "tool_name", "args_hash", "decision", "rule_id", "status", "latency_ms",
    "bytes_in", "bytes_out", "preview_truncated", "created_at",
]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two runs: three calls of git an hour before four of shell, two refused, one failed, one still running."""
    home = tmp_path_factory.mktemp("query") / "sub"
    git = EventMaker("run-git", "shim-git")
    shell = EventMaker("run-shell", "shim-sh", start_ms=BASE_MS + 3_600_000)
    lines = git.whole_run(3)
    lines += [
        shell.run_start(),
        shell.start(tool="ls", server="shell"),
        shell.decision(would=WOULD),
        shell.end(),
        *shell.call("BLOCK", tool="rm", server="shell"),
    ]
    lines += shell.call("THROTTLE", tool="curl", server="shell")
    lines += [
        shell.start("make", "shell", preview='{"target":"caf\\u00e9 ' + "x" * 5000 + ' needle"}'),
        shell.decision(),
    ]
    lines += shell.call(status="ERROR", tool="make", server="shell")
    stored(home, lines)
    return home


def rows(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_has_the_columns_of_the_specification_first(home):
    found = rows(run_sub(home, "query", "--json"))
    assert found
    for row in found:
        assert list(row)[: len(SPEC_COLUMNS)] == SPEC_COLUMNS


def test_calls_come_newest_first(home):
    times = [row["created_at"] for row in rows(run_sub(home, "query", "--json"))]
    assert len(times) == 8
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("options", "tools"),
    [
        (["--run", "run-git"], ["git_status"] * 3),
        (["--run", "last"], ["make", "make", "curl", "rm", "ls"]),
        (["--run", "run-g", "--run", "run-s", "--tool", "git*"], ["git_status"] * 3),
        (["--server", "shell", "--decision", "BLOCK"], ["rm"]),
        (["--decision", "block", "--decision", "THROTTLE"], ["curl", "rm"]),
        (["--status", "ERROR", "--decision", "ALLOW"], ["make"]),
        (["--status", "PENDING"], ["make"]),
        (["--tool", "l?"], ["ls"]),
        (["--rule", "deny-writes"], ["curl", "rm"]),
        (["--reason", "DENYLIST_MATCH", "--tool=rm"], ["rm"]),
        (["--since", timestamp(BASE_MS + 3_000_000), "--tool", "ls"], ["ls"]),
        (["--until", timestamp(BASE_MS + 3_000_000)], ["git_status"] * 3),
        (["--since", "1m"], []),
        (["--since", "today"], []),
        (["--until", "yesterday", "--tool", "ls"], ["ls"]),
        (["--agent", "repo-fixer", "--client", "claude", "--env", "dev", "--tool", "rm"], ["rm"]),
        (["--agent", "somebody-else"], []),
        (["--args-hash", f"{2:064x}", "--server", "git"], ["git_status"]),
        (["--text", "NEEDLE"], ["make"]),
        (["--text", "café"], ["make"]),
        (["--text", "Writes are denied"], ["curl", "rm"]),
        (["--text", "100%"], []),
        (["--tool", "[!g]*", "--server", "shell", "--decision", "ALLOW"], ["make", "make", "ls"]),
        (["--status", "ERROR"], ["make"]),
        (["--severity", "warn"], ["curl", "rm"]),
        (["--error-class", "policy_block", "--principal", "ann"], ["curl", "rm"]),
        (["--min-latency", "4"], []),
        (["--run", "last~1"], ["git_status"] * 3),
        (["--run-id", "-git"], ["git_status"] * 3),
        (["--agent-id", "repo-fixer", "--server-name", "shell", "--rule-id", "deny-writes"], ["curl", "rm"]),
        (["--decision", "thr"], ["curl"]),
        (["--reason-code=DENYLIST_MATCH", "--min-latency-ms", "0", "--tool-name", "rm"], ["rm"]),
        (["--would", "block"], ["ls"]),
        (["--args-hash", f"{2:064x}", "--args-hash", f"{3:064x}", "--server", "git"], ["git_status"] * 2),
    ],
)
def test_conditions_narrow_and_alternatives_widen(home, options, tools):
    assert [row["tool_name"] for row in rows(run_sub(home, "query", "--json", *options))] == tools


def test_the_count_is_that_of_the_rows(home):
    assert run_sub(home, "query", "--count", "--server", "shell").stdout == "5\n"
    assert rows(run_sub(home, "query", "--count", "--json", "--tool", "nothing")) == [{"count": 0}]


def test_pages_follow_on_each_other(home):
    every = rows(run_sub(home, "query", "--json", "--limit", "0"))
    first = run_sub(home, "query", "--json", "--limit", "5")
    for cursor in (first.stderr.split("--cursor ")[1].split(",")[0], rows(first)[-1]["cursor"]):
        second = run_sub(home, "query", "--json", "--limit", "5", "--cursor", cursor)
        assert rows(first) + rows(second) == every
        assert second.stderr == ""
    assert rows(run_sub(home, "query", "--json", "--cursor", every[1]["cursor"])) == every[2:]


def test_runs_go_on_after_any_row(home):
    every = rows(run_sub(home, "runs", "--json"))
    assert rows(run_sub(home, "runs", "--json", "--cursor", every[0]["cursor"])) == every[1:] != []


def test_csv_reads_back_as_the_same_rows(home):
    read = list(csv.DictReader(io.StringIO(run_sub(home, "query", "--csv").stdout)))
    expected = rows(run_sub(home, "query", "--json"))
    assert [row["call_id"] for row in read] == [row["call_id"] for row in expected]
    assert read[0]["rule_id"] == "" and read[0]["preview_truncated"] == "false" and read[0]["tags"] == "[]"


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+cmd",
    "-2+3",
    "@SUM(A1)",
    "\t=1+1",
    "\n=1+1",
    " =1+1",
    "＝1+1",
    "＋1",
    "－1+1",
    "＠SUM(A1)",
    "'=1+1",
    "''=1+1",
]


def test_no_cell_of_a_csv_is_run_by_a_spreadsheet_and_taking_the_apostrophe_away_gives_the_value_back(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    plain = ["-32601", "+1.5", "'quoted'", "a=b", "x\n=y"]  # in quotes, a line break begins no row
    names = [*FORMULAS, *plain]
    stored(tmp_path / "sub", [maker.run_start(), *(line for name in names for line in maker.call(tool=name))])
    shown = run_sub(tmp_path / "sub", "query", "--csv", "--limit", "0").stdout
    read = list(csv.DictReader(io.StringIO(shown, newline="")))[::-1]
    for name, row in zip(names, read, strict=True):
        assert row["tool_name"] == (name if name in plain else "'" + name)
        assert float(row["latency_ms"]) == 3, "numbers are numbers"


def test_what_would_be_obeyed_or_hidden_is_visible_in_a_csv(tmp_path):
    maker = EventMaker("run-1", "shim-1")
    stored(tmp_path / "sub", [maker.run_start(), *maker.call(tool="a\r=1+1\u202e\u009b\u2028\u200b\ufeff=1\u3000é")])
    shown = run_sub(tmp_path / "sub", "query", "--csv").stdout
    assert next(csv.DictReader(io.StringIO(shown)))["tool_name"] == r"a\r=1+1\u202e\x9b\u2028\u200b\ufeff=1" + "\u3000é"


def test_groups_have_counts_and_quantiles(home):
    groups = rows(run_sub(home, "query", "--group-by", "server,decision", "--json"))
    found = {(row["server_name"], row["decision"]): row for row in groups}
    assert found["git", "ALLOW"]["calls"] == 3
    assert found["git", "ALLOW"]["latency_ms_p50"] == found["git", "ALLOW"]["latency_ms_p95"] == 3
    assert (found["shell", "ALLOW"]["errors"], found["shell", "BLOCK"]["blocked"]) == (1, 1)
    assert sum(row["calls"] for row in groups) == 8


def test_a_group_without_an_end_has_no_latency(home):
    (group,) = rows(run_sub(home, "query", "--group-by", "status", "--status", "PENDING", "--json"))
    assert (group["status"], group["calls"], group["latency_ms_p50"], group["latency_ms_avg"]) == (None, 1, None, None)


def test_the_table_is_for_people(home):
    lines = run_sub(home, "query", "--server", "shell").stdout.splitlines()
    assert lines[0].split() == ["TIME", "RESULT", "LATENCY", "TOOL", "ARGS", "RULE", "REASON", "RUN", "CALL"]
    assert any("BLOCK" in line and "shell/rm" in line and "deny-writes" in line for line in lines)
    assert any("running" in line and "shell/make" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def shown(home, columns, *arguments):
    """What stands on a terminal of this width."""
    command = [sys.executable, "-m", "subluminal", *arguments]
    with TerminalProgram(command, env=sub_environment(home, PYTHONUTF8="1"), columns=columns) as program:
        program.wait_until(lambda: program.process.poll() is not None, "the end")
        program.pump(0)
        assert program.process.returncode == 0
    return program.screen.rows


OURS = "019a8f3e6d1b00112233445566aa"


@pytest.fixture(scope="module")
def real_ids(tmp_path_factory):
    """Two runs with ids as they are made."""
    home = tmp_path_factory.mktemp("ids") / "sub"
    lines = []
    for end in ("bb", "cc"):
        maker = EventMaker(f"run-{OURS[:-2]}{end}", f"s{OURS[:-2]}{end}")
        lines += [maker.run_start(), *maker.call("BLOCK", tool="delete_everything", server="files"), maker.run_end()]
    stored(home, lines)
    return home


def test_eighty_columns_hold_rule_arguments_and_a_call_that_can_be_asked_for(real_ids):
    head, *lines = shown(real_ids, 80, "query")
    assert head.split() == ["TIME", "RESULT", "TOOL", "ARGS", "RULE", "CALL"]
    assert [line.split()[-1] for line in lines if line] == ["66cc-1", "66bb-1"]
    assert all('{"path"' in line and "deny-writes" in line for line in lines if line)
    for name in ("66cc-1", f"s{OURS[:-2]}cc-1", f"s{OURS[:-2]}cc"):
        assert json.loads(run_sub(real_ids, "show", name, "--json").stdout)["run_id"].endswith("cc")


def test_eighty_columns_hold_the_runs(real_ids):
    head, *lines = shown(real_ids, 80, "runs")
    assert {"RUN", "AGENT", "STATUS", "STARTED", "CALLS", "BLOCKED", "ERRORS"} <= set(head.split())
    assert [line.split()[0] for line in lines if line] == ["5566cc", "5566bb"]
    assert rows(run_sub(real_ids, "query", "--run", "5566bb", "--json"))[0]["run_id"].endswith("bb")


def test_wide_shows_everything_whole(real_ids):
    head, *lines = shown(real_ids, 400, "query", "--wide")
    assert head.split()[-2:] == ["RUN", "CALL"] and f"run-{OURS[:-2]}cc" in lines[0]


def test_columns_are_chosen_by_title_or_key_for_people_and_programs(real_ids):
    assert shown(real_ids, 80, "query", "--columns", "tool,args_hash,args")[0].split() == [
        "TOOL",
        "ARGS",
        "HASH",
        "ARGS",
    ]
    (row, _) = rows(run_sub(real_ids, "query", "--columns", "tool,args,run_id", "--json"))
    assert row == {"tool_name": "delete_everything", "args_preview": '{"path":"."}', "run_id": f"run-{OURS[:-2]}cc"}
    assert run_sub(real_ids, "runs", "--columns", "run,calls", "--csv").stdout.startswith("run_id,calls_total\n")


def test_runs_are_found_by_their_calls_and_go_by_the_same_filters(home):
    def found(*options):
        return [row["run_id"] for row in rows(run_sub(home, "runs", "--json", *options))]

    assert found("--decision", "block") == found("--tool", "curl", "--severity", "warn") == ["run-shell"]
    assert (
        found("--server", "git")
        == found("--run", "last~1")
        == found("--text", "clean", "--run", "run-g")
        == ["run-git"]
    )
    assert found("--server", "nobody") == [] and len(found("--agent-id", "repo-fixer")) == 2


def test_a_plot_has_a_bar_for_each_step_of_time_and_the_same_as_rows(home):
    shown_rows = rows(run_sub(home, "query", "--plot", "--json"))
    assert sum(row["calls"] for row in shown_rows) == 8 and [row["step"] for row in shown_rows] == ["minute"] * 2
    head, first, second = run_sub(home, "query", "--plot").stdout.splitlines()
    assert head.split() == ["TIME", "CALLS", "CALLS", "REFUSED", "P95"]
    assert "█" in first and "▒" not in first and first.split()[-4:] == ["3", "0", "3", "ms"]
    assert "▒" in second and second.split()[-4:-2] == ["5", "2"] and second.count("█") + second.count("▒") == 40
    assert run_sub(home, "query", "--plot", "--count").returncode == 2


def test_runs_have_a_spark_line_where_there_is_room(home):
    head, *lines = shown(home, 200, "runs")
    assert "ACTIVITY" in head and "█" in lines[0] and "█" in lines[1]


def test_a_terminal_gets_colour_and_lines_that_fit(home):
    env = sub_environment(home, PYTHONUTF8="1")
    with TerminalProgram([sys.executable, "-m", "subluminal", "query"], env=env, columns=90) as program:
        program.wait_for("git/git_status")
        assert program.end() == 0
    assert b"\x1b[31m" in program.raw  # a refusal in red


def test_force_color_asks_for_it_in_a_pipe_and_no_color_goes_before(home):
    assert "\x1b[31m" in run_sub(home, "query", FORCE_COLOR="1").stdout
    assert "\x1b" not in run_sub(home, "query", FORCE_COLOR="0").stdout
    assert "\x1b" not in run_sub(home, "query", FORCE_COLOR="1", NO_COLOR="").stdout


def test_no_color_is_obeyed_on_a_terminal(home):
    env = sub_environment(home, PYTHONUTF8="1", NO_COLOR="")
    with TerminalProgram([sys.executable, "-m", "subluminal", "query"], env=env) as program:
        program.wait_for("git/git_status")
        assert program.end() == 0
    assert b"\x1b" not in program.raw


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--json", "--csv"], "exclude each other"),
        (["--count", "--group-by", "tool"], "exclude each other"),
        (["--group-by", "tool,colour"], "Cannot group by colour."),
        (["--group-by", ","], "Cannot group by nothing."),
        (["--since", "yesterday-ish"], "'yesterday-ish' is no time."),
        (["--limit", "-1"], "must not be negative"),
        (["--limit", "many"], "'many' is not a valid integer"),
        (["--cursor", "x"], "'x' is no cursor."),
        (["--decision", "MAYBE"], "'MAYBE' is not"),
        (["--decision", "t"], "'t' is not one of 'ALLOW', 'BLOCK', 'THROTTLE', 'REJECT_WITH_HINT', 'TERMINATE_RUN'"),
        (["--columns", "tool,colour"], "There is no column 'colour'."),
        (["--columns", "tool", "--count"], "--columns is about calls"),
        (["--run", "last~2"], "holds only 2 runs"),
        (["--nope"], "No such option"),
        (["--run", "run-"], "More than one run begins with 'run-': run-git, run-shell."),
        (["--run", "zzz"], "There is no run 'zzz'"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_two(home, options, sentence):
    result = run_sub(home, "query", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_nothing_found_is_told_on_stderr(home):
    result = run_sub(home, "query", "--tool", "nothing")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "No call matches.\n")


@pytest.mark.parametrize(
    "command",
    [
        ["query"], ["query", "--json"], ["query", "--csv", "--tool", "x"], ["query", "--group-by", "tool"],
        ["runs"], ["runs", "--json", "--status", "FAILED"], ["tail", "--no-follow"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_there", [False, True])
def test_before_the_first_call_there_is_nothing_and_one_line_says_what_to_do_first(tmp_path, command, is_there):
    if is_there:
        stored(tmp_path / "sub", [])
    result = run_sub(tmp_path / "sub", *command)
    assert (result.returncode, result.stdout) == (0, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Nothing has been recorded yet.") and "`sub import`" in line
    assert (tmp_path / "sub").exists() is is_there  # looking creates nothing


def test_the_count_of_nothing_is_zero(tmp_path):
    assert run_sub(tmp_path / "sub", "query", "--count").stdout == "0\n"


def test_the_latest_run_of_a_fresh_home_is_not_there(tmp_path):
    for command in (["show"], ["show", "last"], ["query", "--run", "last"]):
        result = run_sub(tmp_path / "sub", *command)
        assert (result.returncode, result.stdout) == (2, "")
        assert "holds no run yet" in result.stderr and "sub help quickstart" in result.stderr


def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path):
    stored(tmp_path / "sub", [])
    with sqlite3.connect(tmp_path / "sub" / "ledger.db") as database:
        database.execute("PRAGMA user_version = 99")
    for command in (["query"], ["runs"], ["show", "last"], ["tail", "--no-follow"]):
        result = run_sub(tmp_path / "sub", *command)
        assert result.returncode == 2
        assert "newer Subluminal" in result.stderr and "Traceback" not in result.stderr


def test_a_file_that_is_no_database_gets_a_sentence(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"this is no database at all" * 100)
    for command in (["query"], ["runs"], ["show", "last"], ["tail", "--no-follow"]):
        result = run_sub(tmp_path, *command)
        assert result.returncode == 2
        assert "cannot be read" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_gets_a_sentence(home, tmp_path):
    stored(tmp_path / "sub", [])
    (tmp_path / "sub" / "ledger.db").chmod(0)
    result = run_sub(tmp_path / "sub", "query")
    assert result.returncode == 2 and "cannot be read" in result.stderr


def test_control_sequences_from_servers_are_shown_and_never_obeyed(tmp_path):
    maker = EventMaker("run-\x1b[2J", "shim-1")
    evil = "rm\x1b]0;owned\x07\u009b31m\u202e\n"
    stored(tmp_path / "sub", [maker.run_start(), *maker.call("BLOCK", tool=evil, server="s\x1b[31m")])
    for command in (["query"], ["runs"], ["query", "--group-by", "tool,run"]):
        result = run_sub(tmp_path / "sub", *command)
        assert result.returncode == 0
        assert not set(result.stdout) & set("\x1b\x07\u009b\u202e")
    for_programs = run_sub(tmp_path / "sub", "query", "--json")
    assert rows(for_programs)[0]["tool_name"] == evil, "equal in value, and escaped:"
    assert not set(for_programs.stdout) & set("\x1b\x07\u009b\u202e")
    for flag in ("--json", "--csv"):
        command = [sys.executable, "-m", "subluminal", "query", flag]
        with TerminalProgram(command, env=sub_environment(tmp_path / "sub", PYTHONUTF8="1"), columns=5000) as program:
            program.wait_for("owned")
            assert program.end() == 0


def test_what_lies_in_the_spool_is_taken_in_first(tmp_path, monkeypatch):
    home = tmp_path / "sub"
    marker = new_marker()
    monkeypatch.setenv(MARKER_VARIABLE, marker)
    maker = EventMaker("run-spool", "shim-9")
    (spool_of(home) / "shim-9.jsonl").write_bytes(b"".join(line + b"\n" for line in maker.whole_run(2)))
    assert run_sub(home, "query", "--no-sync", "--count").stdout == "0\n"
    try:
        wait_for(lambda: run_sub(home, "query", "--count").stdout == "2\n", what="the calls of the spool")
    finally:
        kill_marked(marker)


def test_runs_are_listed_with_their_counts(home):
    found = rows(run_sub(home, "runs", "--json"))
    assert [(row["run_id"], row["status"], row["calls_total"]) for row in found] == [
        ("run-shell", "RUNNING", 5),
        ("run-git", "SUCCEEDED", 3),
    ]
    assert found[0]["duration_ms"] is None and found[1]["duration_ms"] > 0
    assert [row["run_id"] for row in rows(run_sub(home, "runs", "--json", "--status", "SUCCEEDED"))] == ["run-git"]
    assert rows(run_sub(home, "runs", "--json", "--agent", "nobody")) == []
    lines = run_sub(home, "runs", "--limit", "1").stdout.splitlines()
    assert lines[0].split()[:4] == ["RUN", "AGENT", "CLIENT", "ENV"]
    assert lines[1].split()[0] == "run-shell" and len(lines) == 2


def test_a_reader_that_goes_away_is_no_error(home):
    process = subprocess.Popen(
        [sys.executable, "-m", "subluminal", "query", "--json"],
        env=sub_environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(20) == 0
    process.stderr.close()


def test_a_query_imports_nothing_heavy(home):
    script = (
        "import sys; from subluminal.cli.light import run;"
        " run(['query', '--json', '--decision', 'BLOCK', '--since', '9999w']);"
        " print(sorted(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=sub_environment(home), capture_output=True, text=True, check=True
    )
    loaded = set(ast.literal_eval(result.stderr.splitlines()[-1]))
    assert "sqlite3" in loaded
    assert not loaded & {"click", "msgspec", "rich", "aiohttp", "asyncio", "socket", "subprocess", "argparse", "yaml"}


@pytest.mark.parametrize(
    "line", [["--run", "a", "--run=b", "--json"], ["--limit", "3", "--text=--json"], ["--text", "-x", "--count"]]
)
def test_the_quick_parser_and_click_understand_the_same(line):
    quick = QUERY.parse(line)
    context = QUERY.click_command().make_context("query", list(line))
    assert quick == context.params

"""`sub run --headless`: where events go, what fails the job, what the bundle holds, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from harness.command_line import run_sub
from harness.headless import NO_DELETE, Job, bundle_of, decisions, json_lines, rule
from harness.ledger import EventMaker
from harness.processes import MARKER_VARIABLE, assert_no_processes, new_marker
from harness.waiting import wait_for
from subluminal.contracts.events import decode_event
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.runs.verdict import Strictness, judge

CALLS = [["fs", "read", {"path": "a"}], ["fs", "delete_file", {"path": "b"}]]


def test_events_stream_on_stdout_and_the_agents_words_go_to_stderr(tmp_path: Path) -> None:
    done = Job(tmp_path, "--events", "-", policy=NO_DELETE, say="hello from the agent", calls=CALLS).run()
    events = json_lines(done.stdout)
    assert done.returncode == 0
    assert decisions(events) == [("read", "ALLOW"), ("delete_file", "BLOCK")]
    assert "hello from the agent" in done.stderr
    assert {event["type"] for event in events} >= {"run_start", "tool_call_start", "tool_call_end", "run_end"}


def test_without_events_on_stdout_the_agents_stdout_passes_through_untouched(tmp_path: Path) -> None:
    done = Job(tmp_path, "--events", "events.jsonl", policy=NO_DELETE, say="hello", calls=CALLS).run()
    assert done.stdout.splitlines()[0] == "hello"
    assert decisions(json_lines((tmp_path / "events.jsonl").read_text())) == [
        ("read", "ALLOW"),
        ("delete_file", "BLOCK"),
    ]


def test_ci_makes_a_run_headless_and_gives_it_the_providers_identity(tmp_path: Path) -> None:
    events = json_lines(Job(tmp_path, "--events", "-", calls=CALLS).run().stdout)
    assert {event["env"] for event in events} == {"ci"}
    assert {event["client"] for event in events} == {"headless"}
    assert {event["principal"] for event in events} == {"octocat"}
    workload = {"ci_provider": "github_actions", "job_id": "4711", "repo": "octo/hello", "branch": "main"}
    assert all(event["workload"] == workload for event in events)
    assert len({event["run_id"] for event in events}) == 1


def test_a_headless_run_starts_no_daemon_and_leaves_its_record_for_one(tmp_path: Path) -> None:
    done = Job(tmp_path, policy=NO_DELETE, calls=CALLS).run()
    home = tmp_path / "sub"
    assert "2 calls: 1 allowed, 1 refused" in done.stderr
    assert not (home / "ledgerd.pid").exists() and not (home / "ledger.db").exists()
    assert list((home / "headless").iterdir()) == []
    journals = list((home / "spool").glob("*.jsonl"))
    told = [event for journal in journals for event in json_lines(journal.read_bytes())]
    assert sorted(decisions(told)) == [("delete_file", "BLOCK"), ("read", "ALLOW")]


def test_no_headless_is_refused_where_an_option_needs_it(tmp_path: Path) -> None:
    done = Job(tmp_path, "--no-headless", "--strict").run()
    assert done.returncode == 2
    assert "--strict needs a headless run" in done.stderr


class TestStrict:
    def test_a_refused_call_fails_the_job_though_the_agent_ends_with_0(self, tmp_path: Path) -> None:
        done = Job(tmp_path, "--strict", policy=NO_DELETE, calls=CALLS).run()
        assert done.returncode == 1
        report = done.stderr
        assert "BLOCK  fs/delete_file" in report
        assert "rule no-delete (critical)" in report and "files are kept" in report
        assert "to do:" in report and "the job fails: 1 call refused" in report

    def test_a_reader_of_the_report_that_has_gone_does_not_cost_the_exit_code(self, tmp_path: Path) -> None:
        job = Job(tmp_path, "--strict", policy=NO_DELETE, calls=CALLS, exit=7)
        reader, writer = os.pipe()
        os.close(reader)
        options = {"env": job.env, "cwd": job.folder, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        done = subprocess.run(job.command, stderr=writer, timeout=60, **options)
        os.close(writer)
        assert done.returncode == 7
        assert b"sub:" not in done.stdout, "nor is it told where data belongs"

    def test_a_clean_run_passes(self, tmp_path: Path) -> None:
        done = Job(tmp_path, "--strict", policy=NO_DELETE, calls=CALLS[:1]).run()
        assert done.returncode == 0
        assert "the job fails" not in done.stderr

    def test_the_agents_own_exit_code_is_kept_if_it_is_not_0(self, tmp_path: Path) -> None:
        assert Job(tmp_path, "--strict", policy=NO_DELETE, calls=CALLS, exit=7).run().returncode == 7

    @pytest.mark.parametrize(
        ("severity", "fail_on", "max_blocked", "failed"),
        [
            ("warn", "critical", None, False),
            ("critical", "critical", None, True),
            ("warn", "warn", None, True),
            ("info", "warn", None, False),
            ("info", "any", None, True),
            ("critical", None, 1, False),
            ("critical", None, 0, True),
            ("warn", "warn", 1, False),
        ],
    )
    def test_thresholds(self, severity: str, fail_on: str | None, max_blocked: int | None, failed: bool) -> None:
        events = EventMaker("run", "shim")
        facts = RunFacts("run")
        for line in (events.start(), events.decision("BLOCK", severity=severity)):
            facts.add(decode_event(line))
        assert judge(facts, [], False, Strictness(False, fail_on, max_blocked)).failed is failed

    def test_a_threshold_alone_makes_the_run_headless_and_strict(self, tmp_path: Path) -> None:
        job = Job(tmp_path, "--max-blocked", "0", policy=NO_DELETE, calls=CALLS)
        del job.env["CI"]
        assert job.run().returncode == 1

    def test_a_hint_is_a_violation_and_its_text_is_what_to_do(self, tmp_path: Path) -> None:
        policy = bundle_of(rule("r", "deny", "delete*", action="BLOCK", message="use archive instead"), mode="control")
        done = Job(tmp_path, "--strict", policy=policy, calls=CALLS).run()
        assert done.returncode == 1
        assert "REJECT_WITH_HINT  fs/delete_file" in done.stderr and "use archive instead" in done.stderr

    def test_a_throttled_call_is_none(self, tmp_path: Path) -> None:
        limit = {"capacity": 1, "refill_tokens": 1, "refill_period_ms": 600_000, "backoff_ms": 5}
        policy = bundle_of(rule("r", "rate_limit", "*", scope="run", on_limit="THROTTLE", **limit))
        done = Job(tmp_path, "--strict", policy=policy, calls=CALLS).run()
        assert done.returncode == 0 and "1 throttled" in done.stderr

    def test_a_terminated_run_fails_the_job(self, tmp_path: Path) -> None:
        policy = bundle_of(rule("r", "budget", "*", scope="run", limit_calls=1, on_exceed="TERMINATE_RUN"))
        done = Job(tmp_path, "--strict", policy=policy, calls=CALLS).run()
        assert done.returncode != 0
        assert "TERMINATE_RUN  fs/delete_file" in done.stderr

    def test_a_policy_that_does_not_load_fails_the_job_before_any_call(self, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("rules: [")
        done = Job(tmp_path, "--strict", "--policy", "broken.yaml", calls=[]).run()
        assert done.returncode == 1
        assert "a policy could not be loaded" in done.stderr

    def test_observe_mode_refuses_nothing_and_says_what_it_would_refuse(self, tmp_path: Path) -> None:
        policy = bundle_of(rule("r", "deny", "delete*", action="BLOCK"), mode="observe")
        done = Job(tmp_path, "--strict", policy=policy, calls=CALLS).run()
        assert done.returncode == 0
        assert "only observed: 1 would have been refused" in done.stderr

    def test_a_shim_that_records_elsewhere_cannot_hide_its_calls(self, tmp_path: Path) -> None:
        job = Job(tmp_path, "--strict", "--bundle", "trace", policy=NO_DELETE, calls=CALLS)
        spec = json.loads(job.command[-1])
        spec["servers"]["fs"][4:4] = ["--events", "none"]
        job.command[-1] = json.dumps(spec)
        done = job.run()
        assert done.returncode == 1
        assert "2 more calls were judged than were recorded" in done.stderr

    def test_an_agent_that_cuts_its_record_does_not_pass(self, tmp_path: Path) -> None:
        cut = (
            "import glob, os, time\n"
            "while not os.path.getsize('trace/events.jsonl'): time.sleep(0.01)\n"
            "for path in glob.glob('trace/journals/*'): os.truncate(path, 10)\n"
        )
        job = Job(tmp_path, "--strict", "--bundle", "trace", policy=NO_DELETE)
        job.command = [*job.command[: job.command.index("--") + 1], job.command[0], "-c", cut]
        done = job.run()
        assert done.returncode == 1
        assert "was cut or replaced while the run was on" in done.stderr


class TestBundle:
    def test_it_holds_record_and_reports_and_is_accepted_everywhere(self, tmp_path: Path) -> None:
        done = Job(tmp_path, "--strict", "--bundle", "trace", policy=NO_DELETE, calls=CALLS).run()
        trace = tmp_path / "trace"
        assert done.returncode == 1
        assert {path.name for path in trace.iterdir()} == {
            "manifest.json",
            "events.jsonl",
            "policies",
            "summary.json",
            "summary.md",
            "junit.xml",
            "results.sarif",
            "report.html",
            "run.html",
        }
        assert len(list((trace / "policies").iterdir())) == 1
        home = tmp_path / "elsewhere"
        assert run_sub(home, "verify", str(trace)).returncode == 0
        stored = run_sub(home, "ingest", str(trace))
        assert stored.returncode == 0
        again = run_sub(home, "ingest", str(trace), "--json")
        assert json.loads(again.stdout)["stored"] == 0
        assert run_sub(home, "query", "--decision", "BLOCK", "--count").stdout.strip() == "1"
        run_sub(home, "ledgerd", "--stop")

    def test_its_summary_tells_the_verdict_and_exact_counts(self, tmp_path: Path) -> None:
        Job(tmp_path, "--strict", "--bundle", "trace", policy=NO_DELETE, calls=CALLS * 3).run()
        summary = json.loads((tmp_path / "trace" / "summary.json").read_text())
        figures = [summary[name] for name in ("calls_total", "calls_allowed", "calls_blocked", "exit_code", "state")]
        assert figures == [6, 3, 3, 1, "ended"]
        assert summary["verdict"]["failed"] and summary["problems"] == []
        assert summary["refused_by_rule"] == {"no-delete": 3}
        assert summary["agent_exit_code"] == 0 and summary["status"] == "SUCCEEDED"

    def test_sarif_points_at_the_rule_in_the_repository(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        Job(tmp_path, "--bundle", "trace", policy=NO_DELETE, calls=CALLS).run()
        sarif = json.loads((tmp_path / "trace" / "results.sarif").read_text())
        (result,) = sarif["runs"][0]["results"]
        place = result["locations"][0]["physicalLocation"]
        assert result["ruleId"] == "no-delete" and result["level"] == "error"
        assert place == {"artifactLocation": {"uri": "policy.json"}, "region": {"startLine": 1}}

    def test_a_directory_that_holds_something_is_not_written_into(self, tmp_path: Path) -> None:
        (tmp_path / "trace").mkdir()
        (tmp_path / "trace" / "precious").write_text("x")
        done = Job(tmp_path, "--bundle", "trace").run()
        assert done.returncode == 2 and "there is something in it already" in done.stderr
        assert [path.name for path in (tmp_path / "trace").iterdir()] == ["precious"]

    def test_a_stream_that_cannot_be_opened_leaves_no_half_made_bundle(self, tmp_path: Path) -> None:
        done = Job(tmp_path, "--bundle", "trace", "--events", "no/such/place").run()
        assert done.returncode == 2 and "--events no/such/place" in done.stderr
        assert not (tmp_path / "trace").exists()

    def test_sigterm_ends_the_agent_and_the_bundle_is_sealed(self, tmp_path: Path) -> None:
        hold = tmp_path / "hold"
        job = Job(tmp_path, "--bundle", "trace", policy=NO_DELETE, calls=CALLS, hold=str(hold))
        with job.start() as process:
            wait_for(hold.exists)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
        summary = json.loads((tmp_path / "trace" / "summary.json").read_text())
        assert summary["status"] == "CANCELLED" and summary["calls_total"] == 2
        assert run_sub(tmp_path / "sub", "verify", str(tmp_path / "trace")).returncode == 0

    def test_reports_are_there_while_the_run_is_on(self, tmp_path: Path) -> None:
        hold = tmp_path / "hold"
        job = Job(tmp_path, "--bundle", "trace", policy=NO_DELETE, calls=CALLS, hold=str(hold))
        trace = tmp_path / "trace"
        with job.start() as process:
            try:
                wait_for(hold.exists)
                wait_for(lambda: (trace / "events.jsonl").read_bytes().count(b"tool_call_end") == 2)
                assert json.loads((trace / "summary.json").read_text())["state"] == "running"
                assert (trace / "report.html").exists()
                report = run_sub(tmp_path / "sub", "verify", str(trace))
                assert report.returncode == 0, report.stdout
            finally:
                process.terminate()  # and with it the agent, which a kill would leave behind

    def test_the_jobs_page_gets_the_summary(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("before\n")
        job = Job(tmp_path, "--strict", policy=NO_DELETE, calls=CALLS)
        job.env["GITHUB_STEP_SUMMARY"] = str(page)
        job.run()
        text = page.read_text()
        assert text.startswith("before\n") and "| 2 | 1 | 1 | 0 | 0 |" in text

    def test_its_files_are_private(self, tmp_path: Path) -> None:
        Job(tmp_path, "--bundle", "trace", calls=CALLS).run()
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "trace").iterdir() if path.is_file()}
        assert modes == {0o600}

    def test_a_command_that_cannot_start_leaves_a_bundle_all_the_same(self, tmp_path: Path) -> None:
        job = Job(tmp_path, "--bundle", "trace")
        job.command = [*job.command[: job.command.index("--") + 1], "no-such-agent"]
        assert job.run().returncode == 127
        assert json.loads((tmp_path / "trace" / "summary.json").read_text())["status"] == "FAILED"
        assert run_sub(tmp_path / "sub", "verify", str(tmp_path / "trace")).returncode == 0


def test_a_home_that_cannot_be_written_does_not_cost_the_record(tmp_path: Path) -> None:
    job = Job(tmp_path, "--strict", "--bundle", "trace", policy=NO_DELETE, calls=CALLS)
    job.env["SUB_HOME"] = "/proc/no-such-home"
    done = job.run()
    assert done.returncode == 1, done.stderr
    assert decisions(json_lines((tmp_path / "trace" / "events.jsonl").read_text())) == [
        ("read", "ALLOW"),
        ("delete_file", "BLOCK"),
    ]
    without = Job(tmp_path / "other", policy=NO_DELETE)
    without.env["SUB_HOME"] = "/proc/no-such-home"
    refused = without.run()
    assert refused.returncode == 2 and "--bundle" in refused.stderr


def test_the_record_of_a_killed_run_is_adopted_by_the_next(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    job = Job(tmp_path, policy=NO_DELETE, calls=CALLS, hold=str(hold))
    marker = job.env[MARKER_VARIABLE] = new_marker()
    with job.start(start_new_session=True) as process:
        wait_for(hold.exists)
        os.killpg(process.pid, signal.SIGKILL)
    assert_no_processes(marker)
    home = tmp_path / "sub"
    assert len(list((home / "headless").iterdir())) == 1 and not (home / "spool").exists()
    Job(tmp_path, calls=[]).run()
    assert list((home / "headless").iterdir()) == []
    told = [event for path in (home / "spool").glob("*.jsonl") for event in json_lines(path.read_bytes())]
    assert decisions(told) == [("read", "ALLOW"), ("delete_file", "BLOCK")]


def test_a_reader_that_goes_away_ends_the_stream_not_the_run(tmp_path: Path) -> None:
    job = Job(tmp_path, "--events", "-", policy=NO_DELETE, calls=CALLS)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        job.command,
        env=job.env,
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert "keeps all events" in done.stderr
    told = [event for path in (tmp_path / "sub" / "spool").glob("*") for event in json_lines(path.read_bytes())]
    assert ("delete_file", "BLOCK") in decisions(told)


def test_a_run_inside_a_run_is_recorded_with_it(tmp_path: Path) -> None:
    job = Job(tmp_path, "--strict", "--bundle", "trace", policy=NO_DELETE, calls=CALLS)
    at = job.command.index("--") + 1
    job.command[at:at] = [job.command[0], "-m", "subluminal", "run", "--"]
    done = job.run()
    assert done.returncode == 1, done.stderr
    assert "the job fails: 1 call refused" in done.stderr
    assert decisions(json_lines((tmp_path / "trace" / "events.jsonl").read_text())) == [
        ("read", "ALLOW"),
        ("delete_file", "BLOCK"),
    ]

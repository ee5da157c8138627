"""`sub run` with real processes: exit codes, signals, identity, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ci_agent import ci_agent
from harness.fake_server import fake_server
from harness.places import FIXTURES
from harness.processes import MARKER_VARIABLE, assert_no_processes, is_alive, kill_marked, new_marker
from harness.shim import isolated_env
from harness.waiting import GENEROUS_S, wait_for

SUB = [sys.executable, "-m", "subluminal"]
# Says which signals it gets, each as it comes: a handler would not run before the next one if this one came just before
# a `pause`. Ends with 7 on SIGTERM.
LISTENER = """
import os, signal, sys
heard = [getattr(signal, "SIG" + name) for name in ("INT", "QUIT", "HUP", "USR1", "USR2", "TERM", "WINCH", "TSTP")]
if signal.pthread_sigmask(signal.SIG_BLOCK, heard):
    sys.exit("it was started with signals blocked")
os.write(1, b"ready\\n")
while True:
    number = signal.sigwait(heard)
    os.write(1, f"<{signal.Signals(number).name}>\\n".encode())
    if number == signal.SIGTERM:
        sys.exit(7)
"""
# A tree that will not go: ignores SIGTERM, and so does its orphaned grandchild in a session of its own.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import signal,time\\nsignal.signal(15, 1)\\ntime.sleep(600)"],
                  {k: v for k, v in os.environ.items() if not k.startswith("SUB_")})
    os._exit(0)
os.wait()
os.write(1, b"ready\\n")
time.sleep(600)
"""


class Desk:
    """A place to start `sub run` from; whatever it leaves behind is found by its marker."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "sub"
        self.cwd = tmp_path
        self.marker = new_marker()
        self.env = {**isolated_env(tmp_path), MARKER_VARIABLE: self.marker}
        # A directory in its place keeps the daemon away, so that journals can be read.
        self.home.mkdir(mode=0o700)
        (self.home / "ledgerd.pid").mkdir()

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        env = {**self.env, **options.pop("env", {})}
        return subprocess.Popen([*SUB, "run", *words], env=env, cwd=self.cwd, **options)

    def run(self, *words: str, **options: Any) -> tuple[int, str, str]:
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=30)
        return process.returncode, (out or b"").decode(), (err or b"").decode()

    def ready(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        process = self.start(*words, **options)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def events(self) -> list[dict[str, Any]]:
        paths = (self.home / "spool").glob("*.jsonl")
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]

    def statuses(self) -> list[str]:
        return [event["run"]["status"] for event in self.events() if event["type"] == "run_end"]

    def registrations(self) -> list[str]:
        return [path.name for path in (self.home / "run").glob("*.json*")]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    place = Desk(tmp_path)
    yield place
    kill_marked(place.marker)


def python(source: str) -> list[str]:
    return ["--", sys.executable, "-c", source]


@pytest.mark.parametrize(
    ("script", "code", "status"),
    [
        ("exit 0", 0, "SUCCEEDED"),
        ("exit 3", 3, "FAILED"),
        ("kill -TERM $$", 128 + 15, "CANCELLED"),
        ("kill -KILL $$", 128 + 9, "CANCELLED"),
        ("exec 2>&1; exit 255", 255, "FAILED"),
    ],
)
def test_the_exit_code_is_the_command_s_own(desk: Desk, script: str, code: int, status: str) -> None:
    assert desk.run("--", "sh", "-c", script) == (code, "", "")
    assert desk.statuses() == [status]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["no-such-program"], 127, "No such file"),
        (["/etc"], 126, "Permission denied"),
    ],
    ids=["missing", "not a program"],
)
def test_a_command_that_cannot_be_started_gets_a_sentence(
    desk: Desk, command: list[str], code: int, words: str
) -> None:
    returned, out, err = desk.run("--", *command)
    assert (returned, out) == (code, "")
    assert err.startswith("sub: cannot start") and words in err and "Traceback" not in err
    assert desk.statuses() == ["FAILED"]
    assert not desk.registrations()


def test_a_script_without_a_first_line_runs_as_in_a_shell(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello $1\n")
    script.chmod(0o755)
    assert desk.run("--", str(script), "you") == (0, "hello you\n", "")


def test_the_record_has_one_start_and_one_end_of_the_run_itself(desk: Desk) -> None:
    desk.run("--agent-id", "fixer", "--", "true")
    events = desk.events()
    assert [event["type"] for event in events] == ["run_start", "run_end"]
    assert {(event["agent_id"], event["client"]) for event in events} == {("fixer", "custom")}


@pytest.mark.contract("EVT-004", "ID-001")
def test_three_calls_below_it_all_carry_its_run_and_identity(desk: Desk, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import json, subprocess, sys\n"
        "p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "def ask(n, method, params):\n"
        "    p.stdin.write(json.dumps({'jsonrpc': '2.0', 'id': n, 'method': method, 'params': params}) + '\\n')\n"
        "    p.stdin.flush()\n"
        "    return json.loads(p.stdout.readline())\n"
        "ask(0, 'initialize', {'protocolVersion': '2025-06-18', 'capabilities': {}})\n"
        "for n in (1, 2, 3):\n"
        "    assert 'result' in ask(n, 'tools/call', {'name': 'echo', 'arguments': {}})\n"
        "p.stdin.close()\n"
        "p.wait()\n"
    )
    identity = ["--agent-id", "bot", "--env", "ci", "--client", "codex", "--principal", "svc:x"]
    shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server()]
    workload = {"repo": "org/app"}
    code, _, err = desk.run(
        *identity, "--", sys.executable, str(agent), *shim, env={"SUB_WORKLOAD": json.dumps(workload)}
    )
    assert code == 0, err
    events = desk.events()
    assert len([event for event in events if event["type"] == "tool_call_start"]) == 3
    assert len({event["run_id"] for event in events}) == 1 and events[0]["run_id"]
    assert len([event for event in events if event["type"] == "run_start"]) == 2, "the run's own and the shim's"
    for event in events:
        told = (event["agent_id"], event["env"], event["client"], event["principal"], event["workload"])
        assert told == ("bot", "ci", "codex", "svc:x", workload)


RECORDED = {"issue_id": "ISS-7", "task_type": "fix"}


def test_what_was_said_of_the_run_stands_in_every_run_start_below_it(desk: Desk) -> None:
    said = ["--meta", "issue_id=ISS-7", "--meta", "task_type=fix"]
    shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server()]
    code, _, err = desk.run(*said, "--", *ci_agent(servers={"box": shim}, calls=[["box", "echo", {}]]))
    assert code == 0, err
    starts = [event["run"]["meta"] for event in desk.events() if event["type"] == "run_start"]
    assert {meta.pop("server_name", None) or meta.pop("command") for meta in starts} == {"box", "python"}
    assert starts == [RECORDED, RECORDED]


def test_what_is_said_anew_adds_to_what_was_said_of_the_outer_run(desk: Desk) -> None:
    show = ["sh", "-c", 'echo "$SUB_RUN_META"']
    env = {"SUB_RUN_META": "issue_id=ISS-1,repo=org/app"}
    code, out, _ = desk.run("--meta", "issue_id=ISS-2", "--", *show, env=env)
    assert (code, json.loads(out)) == (0, {"issue_id": "ISS-2", "repo": "org/app"})


@pytest.mark.parametrize("word", ["issue_id", "=x", "command=x", "k=" + "v" * 5000])
def test_meta_that_makes_no_sense_is_said_before_anything_starts(desk: Desk, tmp_path: Path, word: str) -> None:
    code, _, err = desk.run("--meta", word, "--", "touch", str(tmp_path / "started"))
    assert code == 2 and err.startswith("sub: --meta cannot be taken") and "Traceback" not in err
    assert not (tmp_path / "started").exists()


def test_a_variable_that_makes_no_sense_is_said_once_and_the_run_goes_on(desk: Desk) -> None:
    shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server()]
    agent = ci_agent(servers={"box": shim}, calls=[["box", "echo", {}]])
    code, _, err = desk.run("--", *agent, env={"SUB_RUN_META": "nonsense"})
    assert code == 0
    assert err.count("SUB_RUN_META is ignored") == 1


POLICY = FIXTURES / "policies" / "deny_above_allow.yaml"


def kept_by(desk: Desk) -> dict[str, Any]:
    """The end of the run itself, told by `sub run`."""
    (end,) = [event["run"] for event in desk.events() if event["type"] == "run_end" and "counts" in event["run"]]
    return dict(end)


@pytest.mark.contract("EVT-009")
def test_the_run_s_own_end_counts_the_calls_of_all_its_shims(desk: Desk) -> None:
    servers = {
        name: [*SUB, "shim", "--server-name", name, "--", *fake_server(tools={"fail": {"is_error": "no"}, "*": {}})]
        for name in ("one", "two")
    }
    calls = [["one", "echo", {}], ["two", "echo", {}], ["two", "delete_all", {}], ["one", "fail", {}]]
    code, _, err = desk.run("--policy", str(POLICY), "--", *ci_agent(servers=servers, calls=calls))
    assert code == 0, err
    end = kept_by(desk)
    assert end["counts"] == "run"
    summary = {name: value for name, value in end["summary"].items() if name != "duration_ms"}
    assert summary == {
        "calls_total": 4, "calls_allowed": 3, "calls_blocked": 1, "calls_throttled": 0, "errors_total": 1,
    }  # fmt: skip
    parts = [event["run"] for event in desk.events() if event["type"] == "run_end" and "counts" not in event["run"]]
    assert sorted(part["summary"]["calls_total"] for part in parts) == [2, 2]


LEAVES_AT_ONCE = """
import json, os, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}).encode())
p.stdin.write(b"\\n")
p.stdin.flush()
p.stdout.readline()
os._exit(0)
"""


@pytest.mark.contract("EVT-009")
def test_an_agent_that_does_not_wait_for_its_shims_is_counted_too(desk: Desk) -> None:
    shim = [*SUB, "shim", "--server-name", "slow", "--", *fake_server(linger_ms=200)]
    code, _, err = desk.run(*python(LEAVES_AT_ONCE), *shim)
    assert code == 0, err
    summary = kept_by(desk)["summary"]
    assert (summary["calls_total"], summary["calls_allowed"]) == (1, 1)


KILLS_ITS_SHIM = LEAVES_AT_ONCE.replace("os._exit(0)", "p.kill()\np.wait()")


@pytest.mark.contract("EVT-009")
def test_calls_of_a_shim_that_was_killed_are_in_the_total_alone(desk: Desk) -> None:
    code, _, err = desk.run(*python(KILLS_ITS_SHIM), *SUB, "shim", "--server-name", "x", "--", *fake_server())
    assert code == 0, err
    summary = kept_by(desk)["summary"]
    assert (summary["calls_total"], summary["calls_allowed"], summary["errors_total"]) == (1, 0, 0)


@pytest.mark.contract("EVT-009")
def test_a_part_of_a_run_counts_what_was_called_while_it_was_on(desk: Desk) -> None:
    shim = [*SUB, "shim", "--server-name", "box", "--", *fake_server()]
    agent = ci_agent(servers={"box": shim}, calls=[["box", "echo", {}]])
    for _ in range(2):
        assert desk.run("--run-id", "long", "--", *agent)[0] == 0
    ends = [event["run"] for event in desk.events() if event["type"] == "run_end" and "counts" in event["run"]]
    assert [end["summary"]["calls_total"] for end in ends] == [1, 1]


def test_without_a_home_that_shims_share_the_end_speaks_for_itself_alone(desk: Desk, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    env = {"SUB_HOME": "/proc/nowhere", "SUB_EVENTS": f"file:{events}"}
    assert desk.run("--", "true", env=env)[0] == 0
    (end,) = [event for event in map(json.loads, events.read_text().splitlines()) if event["type"] == "run_end"]
    assert "counts" not in end["run"]


def test_in_a_pod_shims_whose_client_scrubs_their_environment_know_it_all_the_same(desk: Desk, tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('tier="gold"\n')
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "payments", "SUB_POD_LABELS_FILE": str(labels)}
    scrubbed = ["env", "-i", f"PATH={os.environ['PATH']}", *SUB, "shim", "--server-name", "box", "--", *fake_server()]
    code, _, err = desk.run("--", *ci_agent(servers={"box": scrubbed}, calls=[["box", "echo", {}]]), env=pod)
    assert code == 0, err
    events = desk.events()
    assert len([event for event in events if event["type"] == "run_start"]) == 2
    for event in events:
        assert event["env"] == "prod"
        assert event["workload"] == {"namespace": "payments", "labels": {"tier": "gold"}}


def test_a_run_inside_a_run_is_a_part_of_it_and_a_named_one_is_not(desk: Desk) -> None:
    show = ["sh", "-c", 'echo "$SUB_RUN_ID"']
    assert desk.run("--run-id", "outer", "--", *SUB, "run", "--", *show)[1] == "outer\n"
    assert desk.run("--run-id", "outer", "--", *SUB, "run", "--run-id", "inner", "--", *show)[1] == "inner\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH])
def test_a_signal_sent_to_it_reaches_the_command_once(desk: Desk, number: signal.Signals) -> None:
    process = desk.ready(*python(LISTENER))
    process.send_signal(number)
    assert process.stdout is not None
    assert process.stdout.readline() == f"<{number.name}>\n".encode()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=GENEROUS_S)
    assert out == b"<SIGTERM>\n"
    assert process.returncode == 7


def test_a_command_that_ignores_a_signal_goes_on(desk: Desk) -> None:
    process = desk.ready(*python(STUBBORN))
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert len(desk.registrations()) == 1
    process.kill()
    process.wait()


def test_a_timeout_ends_even_a_tree_that_ignores_it_and_leaves_nothing(desk: Desk) -> None:
    process = desk.ready("--timeout", "2.5", *python(STUBBORN))  # in which the tree is ready, however busy the machine
    _, err = process.communicate(timeout=20)
    assert process.returncode == 124
    assert err == b"sub: the run was ended after 2.5 s\n"
    assert_no_processes(desk.marker)
    assert desk.statuses() == ["CANCELLED"]
    assert not desk.registrations()


def test_a_stopped_command_without_a_terminal_does_not_escape_its_timeout(desk: Desk) -> None:
    process = desk.start("--timeout", "0.5", "--", "sh", "-c", "kill -STOP $$")
    process.communicate(timeout=20)
    assert process.returncode == 124
    assert_no_processes(desk.marker)


def test_what_the_agent_leaves_running_on_purpose_survives_a_normal_end(desk: Desk) -> None:
    code, out, _ = desk.run("--", "sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!")
    assert code == 0
    left = int(out)
    assert is_alive(left)
    os.kill(left, signal.SIGKILL)


def test_orphans_are_buried(desk: Desk) -> None:
    """As pid 1 of a container, or with orphans adopted, it must reap what it did not start."""
    orphan = "(setsid sh -c 'echo $$; sleep 0.1' &)"
    process = desk.start("--", "sh", "-c", f"{orphan}; exec sleep 60")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), what="the orphan to be gone, not a zombie")
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=GENEROUS_S)


def test_a_parent_that_ignores_sigchld_does_not_cost_the_exit_code(desk: Desk) -> None:
    code, _, _ = desk.run("--", "sh", "-c", "exit 5", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert code == 5


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_descriptor_is_never_a_file_of_ours_for_the_command(desk: Desk, closed: int) -> None:
    check = f"import os, sys\nsys.exit(os.fstat({closed}).st_rdev != os.stat('/dev/null').st_rdev)"
    code, _, _ = desk.run(*python(check), preexec_fn=lambda: os.close(closed))
    assert code == 0
    assert desk.statuses() == ["SUCCEEDED"]


def test_a_reader_of_stderr_that_has_gone_does_not_cost_the_exit_code(desk: Desk) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _, _ = desk.run("--timeout", "0.2", "--", "sleep", "30", stderr=writer)
    os.close(writer)
    assert code == 124


def test_a_command_whose_reader_has_gone_gets_its_sigpipe(desk: Desk) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _, _ = desk.run("--", "sh", "-c", "echo x; exec cat /dev/zero", stdout=writer)
    os.close(writer)
    assert code == 128 + signal.SIGPIPE


@pytest.mark.parametrize("broken", ["missing", "file"])
def test_without_a_home_the_agent_still_runs(desk: Desk, tmp_path: Path, broken: str) -> None:
    place = tmp_path / "plain-file"
    place.write_text("")
    home = "/proc/nowhere" if broken == "missing" else str(place)
    code, out, err = desk.run("--", "echo", "hello", env={"SUB_HOME": home})
    assert (code, out) == (0, "hello\n")
    assert "nothing can be recorded" in err and "Traceback" not in err


def test_registrations_of_killed_runs_are_cleared_by_the_next(desk: Desk) -> None:
    process = desk.ready(*python(LISTENER))
    process.kill()
    process.wait()
    [left] = desk.registrations()
    desk.run("--", "true")
    assert left not in desk.registrations()


def test_a_registration_made_of_nonsense_harms_nobody(desk: Desk) -> None:
    run = desk.home / "run"
    run.mkdir(mode=0o700)
    (run / f"{os.getpid()}.json").write_text("[1, {")
    (run / "notes.json").write_text("mine")
    assert desk.run("--", "true")[0] == 0
    assert (run / "notes.json").exists()


def test_a_relative_home_is_the_same_for_a_command_elsewhere(desk: Desk) -> None:
    code, out, _ = desk.run("--", "sh", "-c", 'cd / && echo "$SUB_HOME"', env={"SUB_HOME": "sub"})
    assert (code, out) == (0, f"{desk.home}\n")


def test_a_policy_that_is_not_there_is_said_before_anything_starts(desk: Desk, tmp_path: Path) -> None:
    code, _, err = desk.run("--policy", "nope.yaml", "--", "touch", str(tmp_path / "started"))
    assert code == 2 and "nope.yaml" in err
    assert not (tmp_path / "started").exists()


def test_the_daemon_it_starts_is_no_part_of_the_run(desk: Desk) -> None:
    (desk.home / "ledgerd.pid").rmdir()
    secret = {"SUB_SECRET_TOKEN": "hush-hush-hush", "SUB_WORKLOAD": "{}", "SUB_LEDGER_IDLE_S": "30"}
    assert desk.run("--run-id", "mine", "--", "true", env=secret)[0] == 0

    def daemon() -> int:
        try:
            return int((desk.home / "ledgerd.pid").read_text() or 0)
        except OSError:
            return 0

    pid = wait_for(daemon, what="the daemon")
    environ = dict(
        entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry
    )
    assert {name for name in environ if name.startswith("SUB_")} == {"SUB_HOME", "SUB_LEDGER_IDLE_S"}

"""Who is acting: from the environment, an ancestor, a registration, or derived from the client that started us."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.shim import isolated_env
from harness.waiting import wait_for
from subluminal.contracts.identity import Source
from subluminal.core.emit.emitter import Emitter
from subluminal.host import client_process, identity
from subluminal.host.client_process import identity_of_process
from subluminal.host.identity import borrow_environment, discover, process_facts
from subluminal.host.run.files import remove_stale
from subluminal.host.run.state import SharedState

WHO = """
import json, os
from subluminal.host.identity import borrow_environment, discover, host_id
borrow_environment(os.environ)
who = discover(os.environ, host_id())
print(json.dumps([who.run_id, who.agent_id, who.client, who.env]))
"""
CLIENT = """
import os, subprocess, sys
env = {name: value for name, value in os.environ.items() if not name.startswith("SUB_") or name == "SUB_HOME"}
for _ in range(2):
    subprocess.run([*sys.argv[2:], sys.executable, "-c", sys.argv[1]], env=env, check=True)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("SUB_", "CI", "GITHUB_", "GITLAB_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sub"


def client(env: dict[str, str], *wrapper: str) -> list[list[str]]:
    """A client process that scrubs the environment and starts two shims, one after the other: who they say they are."""
    command = [sys.executable, "-c", CLIENT, WHO, *wrapper]
    out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert out.returncode == 0, out.stderr
    return [json.loads(line) for line in out.stdout.splitlines()]


def test_shims_of_one_client_share_a_run_and_those_of_another_do_not(tmp_path: Path) -> None:
    env = isolated_env(tmp_path)
    first, second = client(env), client(env)
    assert first[0] == first[1]
    assert first[0][0].startswith("run-")
    assert first[0][0] != second[0][0]


def test_derived_run_ids_have_the_form_of_all_ids_and_sort_by_the_start_of_the_client(tmp_path: Path) -> None:
    env = isolated_env(tmp_path)
    derived = []
    for _ in range(3):
        before_ms = time.time_ns() // 1_000_000
        derived.append(client(env)[0][0])
        assert re.fullmatch("run-[0-9a-f]{28}", derived[-1])
        # The kernel tells the boot in whole seconds and starts in hundredths.
        assert abs(int(derived[-1][4:16], 16) - before_ms) < 60_000
        next_tick()
    assert derived == sorted(derived) and len(set(derived)) == 3
    assert len(identity.new_id("run-")) == len(derived[0])
    assert derived[-1] < identity.new_id("run-"), "and with those that `sub run` makes"


def next_tick() -> None:
    """Until a process that starts now has another start time than one that started before."""
    tick_ns = 2_000_000_000 // os.sysconf("SC_CLK_TCK")
    before = time.monotonic_ns()
    wait_for(lambda: time.monotonic_ns() - before > tick_ns, what="another tick of the kernel")


def test_a_clock_that_is_set_between_two_shims_does_not_part_their_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client_process.derived_run_id("h")
    boot_ms = client_process._boot_wall_ms()
    monkeypatch.setattr(client_process, "_boot_wall_ms", lambda: boot_ms + 3_600_000)
    assert client_process.derived_run_id("h") == first
    (kept,) = (home / "run").glob("*.id")
    assert kept.read_text() == first and kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()
    moved = client_process.derived_run_id("h")
    assert moved != first and moved[16:] == first[16:], "the same process, an hour later"


def test_a_client_that_runs_for_days_keeps_its_run_whatever_becomes_of_the_clock(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client_process.derived_run_id("h")
    shim = SharedState.open(first)
    assert isinstance(shim, SharedState)
    (kept,) = (home / "run").glob("*.id")
    os.utime(kept, (0, 0))
    remove_stale()
    boot_ms = client_process._boot_wall_ms()
    monkeypatch.setattr(client_process, "_boot_wall_ms", lambda: boot_ms + 1_000)
    assert client_process.derived_run_id("h") == first, "its shims are alive, and so are its budgets"
    os.utime(shim.path, (0, 0))
    os.utime(kept, (0, 0))
    assert remove_stale() == 2, "both together, when all of its shims are gone"


@pytest.mark.parametrize(
    "planted", ["", "x" * 5000, "run-" + "0" * 28, "../../etc/passwd", "link", "fifo", "directory"]
)
def test_a_planted_note_of_the_run_names_no_other_run(home: Path, planted: str) -> None:
    first = client_process.derived_run_id("h")
    (kept,) = (home / "run").glob("*.id")
    kept.unlink()
    if planted == "link":
        kept.symlink_to("/etc/passwd")
    elif planted == "fifo":
        os.mkfifo(kept)
    elif planted == "directory":
        kept.mkdir()
    else:
        kept.write_text(planted)
    assert client_process.derived_run_id("h") == first


def test_without_a_home_shims_of_one_client_agree_all_the_same(tmp_path: Path) -> None:
    env = {**isolated_env(tmp_path), "SUB_HOME": "/proc/nowhere"}
    first, second = client(env)
    assert first[0] == second[0]


def test_many_shims_that_start_at_once_agree_on_the_run(tmp_path: Path) -> None:
    script = "from subluminal.host.client_process import derived_run_id;print(derived_run_id('h'))"
    env = isolated_env(tmp_path)
    crowd = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    assert len({process.communicate(timeout=30)[0] for process in crowd}) == 1
    assert [path.suffix for path in (tmp_path / "sub" / "run").iterdir()] == [".id"]


@pytest.mark.parametrize("started", ["", "9" * 30, "Mon Nov 16 10:11:12 2026"])
def test_where_the_system_tells_no_start_the_first_shim_s_does_for_all(
    home: Path, monkeypatch: pytest.MonkeyPatch, started: str
) -> None:
    monkeypatch.setattr(client_process, "process_facts", lambda pid: ("client", 1, started))
    before_ms = time.time_ns() // 1_000_000
    first = client_process.derived_run_id("h")
    assert before_ms <= int(first[4:16], 16) <= time.time_ns() // 1_000_000
    assert client_process.derived_run_id("h") == first
    monkeypatch.setenv("SUB_HOME", "/proc/nowhere")
    alone = client_process.derived_run_id("h")
    assert alone == client_process.derived_run_id("h") == "run-" + "0" * 12 + first[16:]


def test_the_principal_is_the_name_of_the_uid_where_no_variable_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    found = discover({"SUB_RUN_ID": "r"}, "h")
    assert (found.principal, found.workload) == (name, {"user": name})
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert discover({"SUB_RUN_ID": "r"}, "h").principal == "uid:3999999999"
    assert discover({"SUB_RUN_ID": "r", "LOGNAME": "ada"}, "h").principal == "ada"


@pytest.mark.parametrize("value", ["", "0", "false", "False", "no", "off", " false "])
def test_ci_that_is_denied_is_no_ci(value: str) -> None:
    assert discover({"SUB_RUN_ID": "r", "CI": value}, "h").env == "dev"


def test_a_shell_between_client_and_shim_does_not_count(tmp_path: Path) -> None:
    one, other = client(isolated_env(tmp_path), "sh", "-c", '"$0" "$@"; true')
    assert one == other


def test_a_scrubbed_environment_is_completed_from_an_ancestor(tmp_path: Path) -> None:
    env = isolated_env(tmp_path, SUB_RUN_ID="r-7", SUB_AGENT_ID="coder", SUB_CLIENT="codex", SUB_ENV="ci")
    assert client(env) == [["r-7", "coder", "codex", "ci"]] * 2


def test_the_nearest_registered_ancestor_lends_its_identity_unless_its_pid_is_another_process_now(home: Path) -> None:
    me = os.getpid()
    script = WHO + "print(os.environ.get('SUB_RUN_ID'))"

    def seen(start: str, **members: Any) -> str:
        (home / "run").mkdir(parents=True, exist_ok=True)
        entry = {"pid": me, "start": start, "environ": {"SUB_RUN_ID": "registered", "LD_PRELOAD": "evil.so"}, **members}
        (home / "run" / f"{me}.json").write_text(json.dumps(entry))
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
        return out.stdout.splitlines()[-1]

    assert seen(identity.start_time(me)) == "registered"
    assert seen("1") == "None", "the number was given to another process"
    assert seen(identity.start_time(me), environ="nonsense") == "None"
    (home / "run" / f"{me}.json").write_text("{")
    environ: dict[str, str] = {}
    borrow_environment(environ)
    assert environ == {}


def test_only_our_own_variables_are_borrowed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "ancestors", lambda: [os.getppid()])
    monkeypatch.setattr(identity, "_environ_of", lambda _: {})
    (home / "run").mkdir(parents=True)
    parent = os.getppid()
    entry = {
        "start": identity.start_time(parent),
        "environ": {"SUB_RUN_ID": "r", "LD_PRELOAD": "evil.so", "SUB_ENV": "ci"},
    }
    (home / "run" / f"{parent}.json").write_text(json.dumps(entry))
    environ = {"SUB_ENV": "prod"}
    borrow_environment(environ)
    assert environ == {"SUB_RUN_ID": "r", "SUB_ENV": "prod"}


def test_words_outside_the_contract_never_become_new_words() -> None:
    found = discover({"SUB_RUN_ID": "r", "SUB_CLIENT": "hal9000", "SUB_ENV": "moon"}, "h")
    assert (found.client, found.env) == ("custom", "unknown")


HOSTILE_WORKLOADS = [
    "[]", "17", "nonsense", '"text"', "{", '{"a":' * 20_000 + "1" + "}" * 20_000, '{"a":' * 700 + "1" + "}" * 700,
    '{"a":"' + "x" * 100_000 + '"}',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE_WORKLOADS, ids=range(len(HOSTILE_WORKLOADS)))
def test_a_hostile_workload_is_ignored_with_a_word(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = discover({"SUB_RUN_ID": "r", "SUB_WORKLOAD": text}, "h")
    assert found.workload is not None and found.workload.keys() == {"user"}
    assert "SUB_WORKLOAD" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"a":NaN,"b":-Infinity}', '{"a":"\\ud800"}', '{"a":1e999}', '{"a":"\\n\\u0000\\""}'])
def test_an_odd_workload_still_makes_valid_events(text: str) -> None:
    found = discover({"SUB_RUN_ID": "r\udcff", "SUB_WORKLOAD": text}, "h")
    line = Emitter(found, Source("h", "p", "s")).secret_injection(0, "A", "b", "env", True)
    assert json.loads(line.encode("utf-8", "replace"))["workload"].keys() >= {"a"}
    assert line.count("\n") == 1


def test_the_local_user_and_repository_are_the_workload_of_a_developer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo" / "deep" / "down")
    found = discover({"SUB_RUN_ID": "r", "USER": "ada"}, "h")
    assert found.workload == {"user": "ada", "repo_path": str(tmp_path / "repo")}
    assert found.principal == "ada"


def test_the_host_id_is_made_once_and_kept(home: Path) -> None:
    first = identity.host_id()
    assert identity.host_id() == first
    assert (home / "host_id").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in home.iterdir()] == ["host_id"]


def test_a_home_that_cannot_be_written_still_gives_a_stable_host_id(home: Path) -> None:
    home.write_text("not a directory")
    assert identity.host_id() == identity.host_id()


def test_many_shims_that_start_at_once_agree_on_the_host_id(home: Path) -> None:
    script = "from subluminal.host.identity import host_id;print(host_id())"
    crowd = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert len({process.communicate(timeout=30)[0] for process in crowd}) == 1


def test_a_process_with_an_odd_name_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / ") R 1 (x"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "30"]) as process:
        try:
            assert process_facts(process.pid)[1] == os.getpid()
            assert identity.start_time(process.pid).isdigit()
        finally:
            process.kill()
    assert identity.start_time(process.pid) == ""


# -- the run of another process -------------------------------------------------------------------------------

SHIM_AND_WAIT = """
import os, subprocess, sys
env = {name: value for name, value in os.environ.items() if not name.startswith("SUB_") or name == "SUB_HOME"}
subprocess.run([sys.executable, "-c", sys.argv[1]], env=env, check=True)
sys.stdin.read()
"""
REGISTER_AND_WAIT = """
import os, subprocess, sys
from subluminal.host.run.registration import Registration
registration = Registration({"SUB_RUN_ID": "run-registered", "SUB_AGENT_ID": "builder"})
child = subprocess.Popen([sys.executable, "-c", "import sys; print(); sys.stdin.read()"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
"""


@contextmanager
def another(script: str, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A process that waits until its input ends, after what it does and prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate()


def run_of(pid: int) -> client_process.RunOfProcess | None:
    return identity_of_process(pid, identity.start_time(pid), identity.host_id())


def test_a_client_and_its_shims_are_one_run_also_where_nobody_names_it(tmp_path: Path) -> None:
    with another(SHIM_AND_WAIT, WHO) as process:
        assert process.stdout is not None
        run_id = json.loads(process.stdout.readline())[0]
        found = run_of(process.pid)
        assert found is not None
        assert (found.environ, found.named, found.directory) == ({"SUB_RUN_ID": run_id}, False, str(tmp_path))


def test_a_shell_that_connects_is_its_clients(tmp_path: Path) -> None:
    with another("import subprocess, sys; subprocess.run(['sh', '-c', 'echo $$; read end; exit'])") as process:
        assert process.stdout is not None
        shell, client = run_of(int(process.stdout.readline())), run_of(process.pid)
        assert shell is not None and client is not None
        assert shell.environ == client.environ


def test_a_process_that_carries_a_run_belongs_to_it_and_so_does_what_it_starts() -> None:
    with another(SHIM_AND_WAIT, WHO, SUB_RUN_ID="run-7", SUB_AGENT_ID="builder") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())[0] == "run-7"
        found = run_of(process.pid)
        assert found is not None and found.named
        assert (found.environ["SUB_RUN_ID"], found.environ["SUB_AGENT_ID"]) == ("run-7", "builder")
        assert all(name.startswith("SUB_") for name in found.environ)


def test_a_process_below_one_that_has_registered_a_run_belongs_to_it() -> None:
    with another(REGISTER_AND_WAIT) as process:
        assert process.stdout is not None
        found = run_of(int(process.stdout.readline()))
        assert found is not None and found.named
        assert found.environ == {"SUB_RUN_ID": "run-registered", "SUB_AGENT_ID": "builder"}


def test_a_process_that_has_gone_or_is_another_by_now_belongs_to_no_run(home: Path) -> None:
    with another("import sys; sys.stdin.read()") as process:
        assert identity_of_process(process.pid, "", "h") is None
        assert identity_of_process(process.pid, identity.start_time(process.pid) + "1", "h") is None
        start = identity.start_time(process.pid)
    assert identity_of_process(process.pid, start, "h") is None
    assert identity_of_process(0, start, "h") is None
    assert not list(home.glob("run/*.id")), "and nothing is written down of it"


def test_the_directory_of_a_process_that_was_removed_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = f"import os, sys; os.chdir({str(tmp_path / 'work')!r}); print(flush=True); sys.stdin.read()"
    with another(script) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = run_of(process.pid)
        assert found is not None and found.directory == str(tmp_path / "work")
        (tmp_path / "work").rmdir()
        found = run_of(process.pid)
        assert found is not None and found.directory is None


def test_a_session_is_always_the_same_run_and_no_other(home: Path) -> None:
    one = client_process.run_id_of_session("h", ("mcp", "a"))
    assert re.fullmatch("run-[0-9a-f]{28}", one)
    assert client_process.run_id_of_session("h", ("mcp", "a")) == one
    hostile = ["../../etc/passwd", "a\x00b", "\ud800", "", "x" * 100_000]
    ids = [client_process.run_id_of_session("h", ("mcp", words)) for words in hostile]
    assert len({one, *ids, client_process.run_id_of_session("h", ("client", "a"))}) == len(hostile) + 2
    assert all(re.fullmatch("[0-9a-f]{32}[.]id", path.name) for path in (home / "run").iterdir())

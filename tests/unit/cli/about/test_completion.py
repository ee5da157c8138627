"""`sub completion`: the scripts, and the answers the shells get."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command_line import run_sub, stored
from harness.ledger import EventMaker, sub_environment


def answers(home, line: str) -> list[str]:
    words = line.split(" ")
    place = str(len(words) - 1)
    result = run_sub(home, COMP_WORDS=line, COMP_CWORD=place, _SUB_COMPLETE="bash_complete")
    assert result.stderr == ""
    return [answer.split(",", 1)[1] for answer in result.stdout.splitlines() if answer]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(tmp_path, shell):
    result = run_sub(tmp_path, "completion", shell)
    assert result.returncode == 0 and f"{shell}_complete" in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_one_that_its_shell_can_read(tmp_path, shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    script = run_sub(tmp_path, "completion", shell).stdout
    checked = subprocess.run([program, "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_another_shell_is_refused(tmp_path):
    result = run_sub(tmp_path, "completion", "tcsh")
    assert result.returncode == 2 and "bash" in result.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sub que", ["query"]),
        ("sub r", ["restore", "run", "replay", "runs"]),
        ("sub query --dec", ["--decision"]),
        ("sub tail --no", ["--no-follow"]),
        ("sub runs --client cl", ["claude"]),
        ("sub policy li", ["lint"]),
        ("sub completion z", ["zsh"]),
        ("sub import clau", ["claude", "claude-desktop"]),
        ("sub help quick", ["quickstart"]),
        ("sub query --group-by server,dec", ["server,decision"]),
        ("sub query --reason BUDG", ["BUDGET_EXCEEDED"]),
        ("sub query --columns time,arg", ["time,args"]),
        ("sub show last", ["last", "last~1"]),
    ],
)
def test_commands_options_and_choices_are_completed(tmp_path, line, expected):
    assert answers(tmp_path, line) == expected


def test_completing_a_command_imports_none_of_them(tmp_path):
    script = (
        "import sys; from subluminal.cli.main import cli; import click;"
        " found = cli.shell_complete(click.Context(cli), ''); assert len(found) > 10;"
        " print([name for name in sys.modules if name.startswith('subluminal.cli.')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=sub_environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert "subluminal.cli.policy.group" not in result.stdout and "subluminal.cli.main" in result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_really_completes_with_the_script(tmp_path):
    sub = Path(sys.executable).with_name("sub")
    if not sub.exists():
        pytest.skip("sub is not installed beside this Python")
    script = f"""
        PATH={sub.parent}:$PATH
        eval "$(sub completion bash)"
        COMP_WORDS=(sub ver) COMP_CWORD=1
        _sub_completion sub
        echo "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(
        ["bash", "-c", script], env=sub_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert result.stdout.split() == ["verify", "version"]


def test_runs_servers_tools_and_secrets_are_offered(tmp_path):
    home = tmp_path / "sub"
    maker = EventMaker("run-one", "shim-1")
    stored(home, maker.whole_run(1))
    (home / "secrets").mkdir(mode=0o700)
    for line, expected in {
        "sub query --run run": ["run-one"],
        "sub export run run": ["run-one"],
        "sub tail --server g": ["git"],
        "sub query --tool git": ["git_status"],
        "sub secrets get x": [],
    }.items():
        assert answers(home, line) == expected, line


def test_files_are_left_to_the_shell(tmp_path):
    result = run_sub(tmp_path, COMP_WORDS="sub policy lint po", COMP_CWORD="3", _SUB_COMPLETE="bash_complete")
    assert result.stdout == "file,po\n"


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/sub"),
        ("zsh", ".zfunc/_sub"),
        ("fish", ".config/fish/completions/sub.fish"),
    ],
)
def test_it_is_installed_where_the_shell_looks(tmp_path, shell, place):
    done = run_sub(tmp_path / "sub", "completion", "--install", SHELL=f"/usr/bin/{shell}", XDG_DATA_HOME="")
    assert done.returncode == 0 and f"{shell}_complete" in (tmp_path / place).read_text()


def test_a_shell_that_is_not_known_is_asked_for(tmp_path):
    done = run_sub(tmp_path / "sub", "completion", "--install", SHELL="/bin/tcsh")
    assert done.returncode == 2 and "bash, zsh, fish" in done.stderr

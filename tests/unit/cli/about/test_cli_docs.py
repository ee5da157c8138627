"""docs/cli.md is what --help says, and every command says something useful."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from harness import places
from harness.ledger import sub_environment
from subluminal.cli.commands import COMMANDS
from subluminal.cli.main import cli

ROOT = places.ROOT


def test_the_reference_is_current_whatever_the_environment(tmp_path):
    env = sub_environment(tmp_path, COLUMNS="61", SUB_POLICY="/x")
    for tool in ("generate_cli_docs.py", "generate_man.py"):
        command = [sys.executable, ROOT / "tools" / tool, "--check"]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["tail", "runs", "query", "show", "help", "completion"])
def test_the_help_of_a_command_has_examples(name):
    root = click.Context(cli, info_name="sub")
    command = cli.get_command(root, name)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=name, parent=root))
    assert f"sub {name}" in text.split("Example", 1)[1]


def test_every_command_has_one_line_of_help():
    for name, (_, _, summary) in COMMANDS.items():
        assert summary.endswith(".") and len(summary) < 70, name

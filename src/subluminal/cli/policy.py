"""`sub policy`: governance as code. Each command lives in a module of its own, imported when it is used."""

from __future__ import annotations

import importlib

import click

# name -> (module, attribute, one-line help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("subluminal.cli.policy_edit", "init_command", "Write a commented starter policy and its tests."),
    "lint": ("subluminal.cli.policy_lint", "lint_command", "Check policies and say how to mend them."),
    "explain": ("subluminal.cli.policy_explain", "explain_command", "Say how one call would be decided, and why."),
    "test": ("subluminal.cli.policy_test", "test_command", "Run the tests of policies."),
    "diff": ("subluminal.cli.policy_diff", "diff_command", "Compare two policies: looser or tighter?"),
    "check": ("subluminal.cli.policy_check", "check_command", "Judge recorded calls again under a policy."),
    "compile": ("subluminal.cli.policy_lint", "compile_command", "Print the compiled snapshot and its policy_hash."),
    "fmt": ("subluminal.cli.policy_edit", "fmt_command", "Format policies; comments stay."),
}


class PolicyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry[0]), entry[1])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items()])


@click.group(
    "policy",
    cls=PolicyGroup,
    help="Lint, compile, explain, diff and test policies.",
    epilog="Start with: sub policy init, sub policy lint .subluminal/policy.yaml, sub policy test .subluminal",
)
def policy_group() -> None:
    pass

"""`sub policy`: governance as code."""

from __future__ import annotations

from subluminal.cli.options import Group, Table

COMMANDS: Table = {
    "init": ("subluminal.cli.policy.edit", "init_command", "Write a commented starter policy and its tests."),
    "lint": ("subluminal.cli.policy.lint", "LINT", "Check policies and say how to mend them."),
    "in-force": ("subluminal.cli.policy.in_force", "IN_FORCE", "Say which policies apply here, and how."),
    "explain": ("subluminal.cli.policy.explain", "EXPLAIN", "Say how one call would be decided, and why."),
    "test": ("subluminal.cli.policy.test", "TEST", "Run the tests of policies."),
    "diff": ("subluminal.cli.policy.diff", "diff_command", "Compare two policies: looser or tighter?"),
    "check": ("subluminal.cli.policy.check", "check_command", "Judge recorded calls again under a policy."),
    "suggest": ("subluminal.cli.policy.suggest", "suggest_command", "Suggest a policy from what agents did."),
    "compile": ("subluminal.cli.policy.lint", "COMPILE", "Print the compiled snapshot and its policy_hash."),
    "sign": ("subluminal.cli.policy.signing", "sign_command", "Sign one policy file with an Ed25519 key."),
    "verify": ("subluminal.cli.policy.signing", "verify_command", "Check who signed a policy file."),
    "schema": ("subluminal.cli.policy.schema", "schema_command", "Print the JSON Schema, for editors."),
    "fmt": ("subluminal.cli.policy.fmt", "FMT", "Format policies; comments stay."),
}

POLICY = Group(
    "policy",
    COMMANDS,
    "Lint, compile, explain, diff and test policies.",
    "Start with: sub policy init, sub policy lint, sub policy test; sub policy in-force says what applies here.",
)

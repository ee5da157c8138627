"""`sub agent kinds`."""

from __future__ import annotations

from subluminal.agents.registry import BACKENDS
from subluminal.cli.options import Command, Option, Values
from subluminal.cli.render.output import print_json

HELP = """List the agents that can be run, and what each can report.

\b
Example:
  sub agent kinds --json
"""

OPTIONS = [Option("--json", "as_json", "One JSON object per line.", is_flag=True)]


def kinds(values: Values) -> int:
    for name, backend in BACKENDS.items():
        capabilities = sorted(backend.capabilities)
        if values["as_json"]:
            print_json({"name": name, "agent_kind": backend.kind, "capabilities": capabilities})
        else:
            print(f"{name:<8}  {backend.kind:<12}  {', '.join(capabilities)}")
    return 0


KINDS = Command("kinds", kinds, HELP, OPTIONS)

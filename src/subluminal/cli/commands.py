"""The commands of `sub`, and where each lives. Imports none of them."""

from __future__ import annotations

from subluminal.cli.options import Table

COMMANDS: Table = {
    "import": ("subluminal.cli.clients.imports", "import_command", "Route a client's MCP servers through Subluminal."),
    "restore": ("subluminal.cli.clients.imports", "restore_command", "Put a client's configuration back."),
    "run": ("subluminal.cli.agents.run", "run_command", "Run an agent as one identified run."),
    "kill": ("subluminal.cli.agents.kill", "kill_command", "Stop a run: every further tool call is refused."),
    "replay": ("subluminal.cli.replay.command", "replay_command", "Replay a recorded run: nothing is executed."),
    "state": ("subluminal.cli.agents.state", "state_command", "Show what budgets and limits have counted."),
    "tail": ("subluminal.cli.tail.command", "TAIL", "Watch tool calls as they happen."),
    "runs": ("subluminal.cli.record.runs", "RUNS", "List runs."),
    "query": ("subluminal.cli.record.query", "QUERY", "Search recorded tool calls."),
    "show": ("subluminal.cli.record.show", "SHOW", "Show one run or one call."),
    "hints": ("subluminal.cli.control.hints", "HINTS", "Rules that refused, and what the agents did next."),
    "promote": (
        "subluminal.cli.control.promote",
        "promote_command",
        "Let a refused call through: its run, or for good.",
    ),
    "ui": ("subluminal.cli.ui.command", "ui_command", "Open the page: watch, go back in time, see why."),
    "tools": ("subluminal.cli.tools.group", "tools_group", "What servers say of their tools: pin, show, approve."),
    "policy": ("subluminal.cli.policy.group", "POLICY", "Lint, compile, explain, diff and test policies."),
    "secrets": ("subluminal.cli.secrets.group", "secrets_group", "Keep secrets away from the agent."),
    "proxy": ("subluminal.cli.proxy.group", "proxy_group", "Serve MCP over HTTP, judged and recorded."),
    "login": (
        "subluminal.cli.logins.commands",
        "login_command",
        "Log in at a remote server; the agent holds no token.",
    ),
    "logout": ("subluminal.cli.logins.commands", "logout_command", "Take back a login and remove it."),
    "fleet": ("subluminal.cli.fleet.group", "fleet_group", "Many machines, one signed policy; stop them all."),
    "agent": ("subluminal.cli.agents.group", "AGENT", "Run an agent and read its events."),
    "export": ("subluminal.cli.record.trace", "export_group", "Export a run as a trace bundle."),
    "ingest": ("subluminal.cli.record.trace", "ingest_command", "Read events or bundles into the ledger."),
    "verify": ("subluminal.cli.record.trace", "verify_command", "Prove that the record was not changed."),
    "prune": ("subluminal.cli.record.trace", "prune_command", "Remove old runs from the ledger."),
    "ledgerd": ("subluminal.cli.record.ledgerd", "ledgerd_command", "The ledger daemon (starts by itself)."),
    "collector": ("subluminal.cli.collector.group", "collector_group", "Take the decisions of many machines."),
    "doctor": ("subluminal.cli.about.doctor", "DOCTOR", "Check the installation and say how to mend it."),
    "shim": ("subluminal.cli.about.shim", "shim_command", "The process between an agent and one server."),
    "config": ("subluminal.cli.about.config", "config_command", "Show the settings in force and where each is from."),
    "hash": ("subluminal.cli.about.hash", "hash_command", "Print the args_hash of a JSON object."),
    "help": ("subluminal.cli.about.help", "help_command", "Read about a topic or a command."),
    "completion": ("subluminal.cli.about.completion", "completion_command", "Print or install shell completion."),
    "uninstall": ("subluminal.cli.about.uninstall", "uninstall_command", "Take everything out again."),
    "version": ("subluminal.cli.about.version", "version_command", "Print versions."),
}

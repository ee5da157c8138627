"""The real clients, their own tools and a server's, judged by hooks that `sub import --hooks` installed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.hooked import BOX, SUB, Hooked, recorded
from clients.models import AGENT, Text, Together, ToolCall
from clients.scenarios import model_for
from harness.waiting import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
BYE = Text("Done.")
HEAD = """
policy_id: hooked
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules:
"""
RULES = """
  - rule_id: no-rm
    kind: deny
    match: {server_name: {glob: [builtin]}, tool_name: {glob: [Bash]}, args: {command: {command: {programs: [rm]}}}}
    effect: {action: REJECT_WITH_HINT, hint_text: Move it into the directory trash.}
  - rule_id: stay
    kind: deny
    match: {server_name: {glob: [builtin]}, tool_name: {glob: [Write, apply_patch]}}
    unless: {any_of: [{args: {path_within: {file_path: .}}}, {args: {path_within: {"paths[]": .}}}]}
    effect: {action: REJECT_WITH_HINT, hint_text: Write below the project.}
  - rule_id: own-hosts
    kind: deny
    match: {server_name: {glob: [builtin]}, tool_name: {glob: [WebFetch]}}
    unless: {args: {host_in: {url: loopback}}}
    effect: {action: REJECT_WITH_HINT, hint_text: Fetch from this machine.}
  - rule_id: no-secret
    kind: deny
    match: {server_name: {glob: [box]}, args: {key_equals: {text: secret}}}
    effect: {action: REJECT_WITH_HINT, hint_text: Ask for something public.}
"""
BUDGET = """
  - rule_id: three
    kind: budget
    match: {server_name: {glob: [builtin, box]}}
    effect: {budget: {scope: run, limit_calls: 3, on_exceed: BLOCK}}
"""
TERMINATE = """
  - rule_id: enough
    kind: budget
    match: {server_name: {glob: [builtin]}, tool_name: {glob: [Bash]}, args: {command: {command: {programs: [mkfs]}}}}
    effect: {budget: {scope: run, limit_calls: 1, on_exceed: TERMINATE_RUN}}
"""


@pytest.fixture(params=["claude_code", "codex"])
def user(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Hooked]:
    made = Hooked(request.param, cli_dir, home)
    yield made
    made.clean_up()


@pytest.fixture
def claude(cli_dir: Path, home: Path) -> Iterator[Hooked]:
    made = Hooked("claude_code", cli_dir, home)
    yield made
    made.clean_up()


@pytest.fixture
def codex(cli_dir: Path, home: Path) -> Iterator[Hooked]:
    made = Hooked("codex", cli_dir, home)
    yield made
    made.clean_up()


class Tail:
    """`sub tail --json` in another window: the calls that it has shown as ended."""

    def __init__(self, user: Hooked) -> None:
        self._process = subprocess.Popen(
            [SUB, "tail", "--json"],
            env=user.env(),
            cwd=user.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ended: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            call = json.loads(line)
            if call["state"] == "ended":
                self.ended.append(call)

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join(5)


def test_calls_are_let_through_or_refused_with_a_hint_and_corrected_and_each_is_told_once(user: Hooked) -> None:
    user.adopt(HEAD + RULES)
    inside, outside = user.project / "a.txt", user.home / "outside.txt"
    calls = [
        (user.shell("echo allowed"), "allowed", "ALLOW"),
        (user.shell("rm -rf trash"), "Move it into the directory trash.", "REJECT_WITH_HINT"),
        (user.shell("mkdir trash && echo corrected"), "corrected", "ALLOW"),
        (user.write(outside), "Write below the project.", "REJECT_WITH_HINT"),
        (user.write(inside), "a.txt", "ALLOW"),
        (user.echo("secret"), "Ask for something public.", "REJECT_WITH_HINT"),
        (user.echo("hello"), "echo: hello", "ALLOW"),
    ]
    if user.kind == "claude_code":
        fetch = {"prompt": "Sum it up."}
        calls += [
            (ToolCall("WebFetch", {"url": "https://example.com/", **fetch}), "Fetch from this", "REJECT_WITH_HINT"),
            (ToolCall("WebFetch", {"url": "https://127.0.0.1:1/", **fetch}), "", "ALLOW"),
        ]
    with Tail(user) as tail:
        session = user.session(*(call for call, _, _ in calls), BYE, options=user.with_patches)
        assert session.code == 0, session.output
        assert len(session.results) == len(calls)
        for result, (_, wanted, decision) in zip(session.results, calls, strict=True):
            assert wanted in result
            assert ("was refused" in result) == (decision != "ALLOW")
        assert inside.exists() and not outside.exists()
        found = user.query()
        assert [call["decision"] for call in found] == [decision for _, _, decision in calls]
        names = [f"{call['server_name']}/{call['tool_name']}" for call in found]
        assert names[:2] == ["builtin/Bash"] * 2 and names[3] == f"builtin/{user.write_name}"
        assert names[5:7] == [f"{BOX}/echo"] * 2
        ids = [call["tool_use_id"] for call in found]
        wait_for(lambda: len(tail.ended) >= len(ids), what="both kinds in one list")
        assert [call["tool_use_id"] for call in tail.ended] == ids, "each once, in one list"
    (run,) = user.runs()
    refused = sum(decision != "ALLOW" for _, _, decision in calls)
    assert (run["calls_total"], run["calls_blocked"]) == (len(calls), refused)
    groups = [json.loads(line) for line in user.sub("query", "--group-by", "server", "--json").stdout.splitlines()]
    assert {group["server_name"]: group["calls"] for group in groups} == {"builtin": len(calls) - 2, BOX: 2}
    assert user.sub("verify", "last").returncode == 0


def test_one_budget_counts_built_in_tools_and_those_of_a_server_together(user: Hooked) -> None:
    user.adopt(HEAD + BUDGET)
    calls = (user.shell("echo one"), user.echo("two"), user.shell("echo three"), user.echo("four"), user.shell("ls"))
    results = user.session(*calls, BYE).results
    assert ["was refused" in result for result in results] == [False, False, False, True, True]
    assert [call["decision"] for call in user.query()] == ["ALLOW"] * 3 + ["BLOCK"] * 2


def test_a_run_that_is_terminated_is_over(user: Hooked) -> None:
    """Claude Code's turn ends. Codex cannot be stopped by a hook: each further call is refused."""
    user.adopt(HEAD + TERMINATE)
    disks = user.shell("mkfs --version"), user.shell("mkfs /dev/null")
    session = user.session(*disks, user.shell("touch late"), user.echo(), BYE)
    assert not (user.project / "late").exists()
    if user.kind == "claude_code":
        assert len(session.model.requests) == 2, "the model is not asked again"
        assert json.loads(session.output)["terminal_reason"] == "hook_stopped"
        assert recorded(user.query())[1:] == [("builtin", "Bash", "TERMINATE_RUN", "ERROR")]
    else:
        assert len(session.results) == 4
        assert all("terminated" in result for result in session.results[2:])
        assert [call["reason_code"] for call in user.query()[2:]] == ["RUN_TERMINATED"] * 2


def test_under_sub_run_a_terminated_run_ends_the_client(user: Hooked) -> None:
    user.adopt(HEAD + TERMINATE)
    calls = [
        *[user.shell("mkfs --version")] * 2,
        *(user.shell(f"sleep 0.1; touch late-{number}") for number in range(200)),
    ]
    session = user.session(*calls, BYE, under=(SUB, "run", "--"))
    assert "the run was terminated" in session.output or user.kind == "claude_code"
    assert len(session.model.requests) < 200
    assert not list(user.project.glob("late-*"))
    user.query()
    assert {run["status"] for run in user.runs()} == {"TERMINATED"}
    user.assert_nothing_left(30)


def test_sub_agents_are_judged_as_everybody(user: Hooked) -> None:
    user.adopt(HEAD + RULES)
    done = user.project / "done"
    told = f"{AGENT} tidy up."
    if user.kind == "claude_code":
        begin = ToolCall("Agent", {"description": "tidy", "prompt": told, "subagent_type": "general-purpose"})
        turns = (begin, BYE)
    else:
        begin = ToolCall("multi_agent_v1.spawn_agent", {"message": told})
        turns = (begin, user.shell(f"until [ -e {done} ]; do sleep 0.05; done"), BYE)
    session = user.session(
        *turns,
        agents=(user.shell("rm -rf trash"), user.shell(f"touch {user.project}/mine"), user.shell(f"touch {done}")),
    )
    assert done.exists() and (user.project / "mine").exists(), session.output
    of_agents = [
        event["call"] for event in user.events("tool_call_start") if "agent_id" in event["call"]["call_context"]
    ]
    assert len(of_agents) == 3
    refused = [call for call in user.query() if call["decision"] != "ALLOW"]
    assert [call["call_id"] for call in refused] == [of_agents[0]["call_id"]]


def test_twenty_calls_at_once_are_each_judged_and_recorded_once(user: Hooked) -> None:
    user.adopt(HEAD + RULES)
    calls = [user.shell(f"echo number {number}" if number % 2 else f"rm -rf {number}") for number in range(14)]
    calls += [user.echo("secret" if number % 2 else f"number {number}") for number in range(6)]
    session = user.session(Together(tuple(calls)), BYE)
    assert len(session.results) == 20
    assert sum("was refused" in result for result in session.results) == 10
    found = user.query()
    assert len({call["tool_use_id"] for call in found}) == len(found) == 20
    assert sum(call["decision"] == "ALLOW" for call in found) == 10
    assert {call["status"] for call in found if call["decision"] == "ALLOW"} == {"OK"}
    (run,) = user.runs()
    assert (run["calls_total"], run["calls_blocked"]) == (20, 10)


def test_a_judge_that_is_killed_is_there_again_for_the_next_call(user: Hooked) -> None:
    """Nothing is let through in between, and what was counted stays counted."""
    user.adopt(HEAD + BUDGET + RULES)
    go = user.project / "go"
    with model_for(user.kind, ()) as model:
        wait = f"touch {user.project}/waiting; until [ -e {go} ]; do sleep 0.02; done"
        model.add_turns(user.shell(wait), user.shell("rm -rf trash"), *map(user.echo, "234"), BYE)
        process = user.begin(model)
        try:
            wait_for((user.project / "waiting").exists, what="the first call")
            user.kill_judge()
            go.touch()
            output, _ = process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
        results = model.tool_outputs()
    assert ["was refused" in result for result in results] == [False, True, False, True, True], output
    decided = [call["decision"] for call in user.query()]
    assert decided == ["ALLOW", "REJECT_WITH_HINT", "ALLOW", "BLOCK", "BLOCK"], "a refused call is charged as well"
    assert user.sub("verify", "last").returncode == 0


@pytest.mark.parametrize("closed", [True, False], ids=["a policy that fails closed", "one that fails open"])
def test_without_the_hook_command_calls_are_refused_where_the_policy_fails_closed(user: Hooked, closed: bool) -> None:
    user.adopt((HEAD if closed else HEAD.replace("BLOCK", "ALLOW")) + RULES)
    for program in (user.sub_home / "bin").iterdir():
        program.unlink()
    session = user.session(user.shell("touch ran"), BYE)
    assert (user.project / "ran").exists() is not closed
    assert ("Subluminal cannot judge this call" in session.results[0]) is closed
    assert "hook-missing" in user.findings()


def test_restoring_gives_every_byte_back(user: Hooked) -> None:
    user.hooks.parent.mkdir(exist_ok=True)
    theirs = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]}}
    user.hooks.write_text(json.dumps(theirs, indent=3) + "\n\n")
    servers, hooks = user.configure(BOX), user.hooks.read_bytes()
    user.sub("import", user.client, "--hooks")
    imported = user.config.read_bytes()
    assert user.hooks.read_bytes() != hooks and imported != servers
    user.session(user.shell("echo hi"), BYE)
    # Claude Code keeps notes of its own in the file of its servers.
    untouched = user.config.read_bytes() == imported
    user.sub("restore", user.client)
    assert user.hooks.read_bytes() == hooks
    assert untouched or user.kind == "claude_code"
    if untouched:
        assert user.config.read_bytes() == servers
    else:
        assert json.loads(user.config.read_bytes())["mcpServers"] == json.loads(servers)["mcpServers"]


# -- what an agent, or whoever starts it, can do against hooks ---------------------------------------------------------


def test_settings_that_a_script_rewrites_in_mid_session_are_not_taken_over(claude: Hooked) -> None:
    claude.adopt(HEAD + RULES)
    script = claude.project / "tidy.py"
    script.write_text(
        f"import pathlib; pathlib.Path({str(claude.hooks)!r}).write_text('{{\"disableAllHooks\": true}}')"
    )
    # Without the hook on ConfigChange, Claude Code would have taken it over within two seconds.
    session = claude.session(claude.shell(f"python3 {script}; sleep 4"), claude.shell("rm -rf trash"), BYE)
    assert "was refused" in session.results[1]
    changes = [event["settings"] for event in claude.events("settings_change")]
    assert changes and changes[0]["refused"] and changes[0]["source"] == "user_settings"
    assert claude.findings() == {"hooks-missing", "hooks-disabled"}


def test_codex_goes_on_with_the_hooks_it_began_with(codex: Hooked) -> None:
    codex.adopt(HEAD + RULES)
    session = codex.session(codex.shell(f"echo '{{}}' > {codex.hooks}"), codex.shell("rm -rf trash"), BYE)
    assert "was refused" in session.results[1]
    assert codex.findings() == {"hooks-missing"}, "they are gone for the next session"


@pytest.mark.parametrize(
    ("options", "env"),
    [(("--bare",), {}), ((), {"CLAUDE_CODE_SIMPLE": "1"}), (("--setting-sources=project",), {})],
    ids=["--bare", "CLAUDE_CODE_SIMPLE", "--setting-sources"],
)
def test_claude_code_started_without_hooks_asks_nobody(
    claude: Hooked, options: tuple[str, ...], env: dict[str, str]
) -> None:
    claude.adopt(HEAD + RULES)
    running = claude.project / "running"
    stop = claude.project / "stop"
    call = claude.shell(f"touch {running}; until [ -e {stop} ]; do sleep 0.02; done; rm -rf trash")
    with model_for(claude.kind, (call, BYE)) as model:
        process = claude.begin(model, *options, env=env)
        try:
            wait_for(running.exists, what="the call, which nobody refused")
            assert {"hooks-off-now", "hooks-bare"} & claude.findings(env)
            stop.touch()
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert not (claude.sub_home / "ledger.db").exists() or claude.query() == []


def test_hooks_that_are_switched_off_in_a_file_are_named(claude: Hooked) -> None:
    claude.adopt(HEAD + RULES)
    (claude.project / ".claude").mkdir()
    (claude.project / ".claude" / "settings.local.json").write_text('{"disableAllHooks": true}')
    session = claude.session(claude.shell("rm nothing; touch ran"), BYE)
    assert (claude.project / "ran").exists(), session.output
    assert "hooks-disabled" in claude.findings()


@pytest.mark.parametrize("way", ["features", "untrusted"])
def test_codex_passes_over_hooks_that_are_off_or_untrusted_and_doctor_says_so(codex: Hooked, way: str) -> None:
    codex.adopt(HEAD + RULES)
    text = codex.config.read_text()
    if way == "features":
        codex.config.write_text("[features]\nhooks = false\n" + text)
    else:
        codex.hooks.write_text(codex.hooks.read_text().replace('"timeout": 30', '"timeout": 29'))
    session = codex.session(codex.shell("rm nothing; touch ran"), BYE)
    assert (codex.project / "ran").exists(), session.output
    assert ("hooks-disabled" if way == "features" else "hooks-untrusted") in codex.findings()


@pytest.mark.parametrize("kind", ["claude_code", "codex"])
def test_skipping_permissions_skips_no_hook(kind: str, cli_dir: Path, home: Path) -> None:
    user = Hooked(kind, cli_dir, home)
    try:
        user.adopt(HEAD + RULES)
        # Codex is always started so here; Claude Code lets root do it in a sandbox alone.
        options = ("--dangerously-skip-permissions",) if kind == "claude_code" else ()
        session = user.session(user.shell("rm -rf trash"), BYE, options=options, env={"IS_SANDBOX": "1"})
        assert "was refused" in session.results[0]
    finally:
        user.clean_up()

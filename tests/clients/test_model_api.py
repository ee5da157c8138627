"""The real clients through the model API's door: what runs, what does not, and what their model is shown of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.doored import BOX, PREFIX, UNDER_RUN, Doored, Session, everything_below
from clients.hooked import recorded
from clients.models import AGENT, Die, ModelServer, Seen, Stall, Text, Together, ToolCall
from clients.scenarios import model_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
BYE = Text("Done.")
HEAD = """
policy_id: modelled
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
  - rule_id: no-secret
    kind: deny
    match: {server_name: {glob: [box]}, args: {key_equals: {text: secret}}}
    effect: {action: REJECT_WITH_HINT, hint_text: Ask for something public.}
"""
TERMINATE = """
  - rule_id: enough
    kind: budget
    match: {server_name: {glob: [builtin]}, tool_name: {glob: [Bash]}, args: {command: {command: {programs: [mkfs]}}}}
    effect: {budget: {scope: run, limit_calls: 1, on_exceed: TERMINATE_RUN}}
"""
BUDGET = """
  - rule_id: five
    kind: budget
    match: {server_name: {glob: [builtin, box]}}
    effect: {budget: {scope: run, limit_calls: 5, on_exceed: BLOCK}}
"""
# What the model states, its cached parts apart: Anthropic counts them beside its input, OpenAI within.
STATED = {
    "claude_code": {"cache_creation_input_tokens": 5, "cache_read_input_tokens": 3},
    "codex": {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 2}},
}

USAGE = {
    "claude_code": {"cache_creation_input_tokens": 5, "cache_read_input_tokens": 3},
    "codex": {"cache_read_input_tokens": 4, "reasoning_tokens": 2},
}


@pytest.fixture(params=["claude_code", "codex"])
def user(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Doored]:
    """With a door for the run."""
    made = Doored(request.param, cli_dir, home)
    yield made
    made.clean_up()


@pytest.fixture
def claude(cli_dir: Path, home: Path) -> Iterator[Doored]:
    made = Doored("claude_code", cli_dir, home)
    yield made
    made.clean_up()


@pytest.fixture
def codex(cli_dir: Path, home: Path) -> Iterator[Doored]:
    made = Doored("codex", cli_dir, home)
    yield made
    made.clean_up()


@pytest.fixture(params=["claude_code-run", "claude_code-proxy", "codex-run", "codex-proxy"])
def anyone(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Doored]:
    """With either kind of door."""
    kind, _, way = request.param.partition("-")
    made = Doored(kind, cli_dir, home, way)
    yield made
    made.clean_up()


def test_calls_run_or_are_refused_with_a_hint_and_corrected(anyone: Doored) -> None:
    user = anyone
    user.govern(HEAD + RULES)
    keep, trash = user.project / "keep", user.project / "trash"
    inside, outside = user.project / "a.txt", user.home / "outside.txt"
    keep.touch()
    parallel = (
        user.write(outside),
        user.write(inside),
        user.echo("secret"),
        user.echo("public"),
        user.shell("echo four"),
    )
    turns = (
        (user.shell("echo allowed"),),
        (user.echo("hello"),),
        (user.shell("rm keep"),),
        (user.shell("mkdir trash && mv keep trash && echo corrected"),),
        parallel,
        (user.shell("echo last"),),
    )
    calls = [call for turn in turns for call in turn]
    wanted = ["allowed", "echo: hello", "Move it", "corrected", "Write below", "a.txt", "Ask for", "echo: public"]
    wanted += ["four", "last"]
    refused = [2, 4, 6]
    script = [turn[0] if len(turn) == 1 else Together(turn) for turn in turns]
    session = user.talk(*script, BYE, options=user.with_patches, usage=STATED[user.kind])
    assert session.code == 0, session.output
    assert len(session.results) == len(calls), session.results
    for place, (result, text) in enumerate(zip(session.results, wanted, strict=True)):
        assert text in result
        assert ("was refused" in result) == (place in refused)
    assert inside.exists() and not outside.exists() and (trash / "keep").exists()
    assert_the_model_sees_its_own_calls(user, session, calls)
    found = user.carried_out()
    assert [call["decision"] for call in found] == [
        "REJECT_WITH_HINT" if place in refused else "ALLOW" for place in range(len(calls))
    ]
    assert {call["status"] for call in found if call["decision"] == "ALLOW"} == {"OK"}
    assert all(call["latency_ms"] is not None for call in found if call["decision"] == "ALLOW")
    assert {call["transport"] for call in found} == {"messages_api"}
    names = [f"{call['server_name']}/{call['tool_name']}" for call in found]
    builtin, write, box = "builtin/Bash", f"builtin/{user.write_name}", f"{BOX}/echo"
    assert names == [builtin, box, builtin, builtin, write, write, box, box, builtin, builtin]
    assert_usage(user, session)
    (run,) = user.runs()
    assert (run["calls_total"], run["calls_blocked"]) == (len(user.query()), len(refused))
    assert user.sub("verify", "last").returncode == 0
    user.assert_nothing_left(30)


def assert_the_model_sees_its_own_calls(user: Doored, session: Session, calls: list[ToolCall]) -> None:
    """In every request: what it wrote, and our words as the outcome of what was refused, each time the same."""
    model = session.model
    told = model.tool_outputs()
    written = [user.as_written(call) for call in calls]
    for request in range(len(model.requests)):
        shown = model.tool_calls(request)
        assert shown == written[: len(shown)]
        assert model.tool_outputs(request) == told[: len(shown)]
    assert model.tool_calls() == written
    assert all(PREFIX.encode() not in seen.body for seen in model.seen)
    assert all("subluminal" not in name for seen in model.seen for name in seen.headers)


def assert_usage(user: Doored, session: Session) -> None:
    """Each message as the model states it, and their sums for the run; what was not stated is not there."""
    messages = [event["model"] for event in user.events("model_message")]
    count = len(session.model.requests)
    assert len(messages) == count
    stated = {"input_tokens": 11, "output_tokens": 7, **USAGE[user.kind]}
    for message in messages:
        assert {name: value for name, value in message.items() if name.endswith("tokens")} == stated
        assert message["cached_in_input"] is (user.kind == "codex")
    usage = user.runs()[0]["usage"]
    assert usage["messages"] == count
    assert {name: usage[name] for name in stated} == {
        name: {"sum": count * value, "unstated": 0} for name, value in stated.items()
    }


def test_a_session_that_goes_on_through_another_door_has_its_calls_as_the_model_wrote_them(user: Doored) -> None:
    user.govern(HEAD + RULES)
    calls = [user.shell("rm nothing"), user.echo("secret")]
    first = user.talk(*calls, BYE)
    user.again, user.prompt = True, "Go on."
    session = user.talk(user.shell("echo more"), BYE)
    assert session.code == 0, session.output
    assert session.results[:2] == first.results and all("was refused" in result for result in first.results)
    assert_the_model_sees_its_own_calls(user, session, [*calls, user.shell("echo more")])
    assert [call["decision"] for call in user.carried_out()] == ["REJECT_WITH_HINT"] * 2 + ["ALLOW"], "each once"


def test_what_claude_code_asks_beside_its_conversation_is_answered_as_ever(claude: Doored) -> None:
    """It counts tokens, and looks whether there is anybody."""
    claude.prompt = "/context"
    asked, said = [], []
    for way in ("direct", "run"):
        begin_anew(claude, way)
        session = claude.talk()
        assert session.code == 0, session.output
        asked.append([sent(seen) for seen in side(session.model)])
        said.append(json.loads(session.output)["result"])
    assert {path.partition("?")[0] for _, path, _ in asked[0]} == {"/", "/v1/messages/count_tokens"}
    assert (asked[0], said[0]) == (asked[1], said[1])


def test_the_calls_of_sub_agents_are_judged_in_the_same_run(user: Doored) -> None:
    user.govern(HEAD + RULES)
    done = user.project / "done"
    told = f"{AGENT} tidy up."
    if user.kind == "claude_code":
        begin = ToolCall("Agent", {"description": "tidy", "prompt": told, "subagent_type": "general-purpose"})
        turns = (begin, BYE)
    else:
        begin = ToolCall("multi_agent_v1.spawn_agent", {"message": told})
        turns = (begin, user.shell(f"until [ -e {done} ]; do sleep 0.05; done"), BYE)
    session = user.talk(*turns, agents=(user.shell("rm -rf trash"), user.shell(f"touch {done}")))
    assert done.exists(), session.output
    assert all(PREFIX.encode() not in seen.body for seen in session.model.seen)
    refused = [call for call in user.carried_out() if call["decision"] != "ALLOW"]
    assert recorded(refused) == [("builtin", "Bash", "REJECT_WITH_HINT", "ERROR")]
    assert len(user.runs()) == 1


def test_a_job_of_ci_has_the_calls_in_its_record_and_fails_for_a_refusal(user: Doored) -> None:
    user.govern(HEAD + RULES)
    events = user.home / "events.jsonl"
    user.run_options = ("--headless", "--strict", "--events", str(events))
    session = user.talk(user.shell("echo one"), user.shell("rm nothing"), BYE)
    assert session.code == 1, session.output
    told = [json.loads(line) for line in events.read_text().splitlines()]
    decided = [event["decision"]["action"] for event in told if event["type"] == "tool_call_decision"]
    assert decided[-2:] == ["ALLOW", "REJECT_WITH_HINT"]
    assert sum(event["type"] == "model_message" for event in told) == 3
    assert len({event["run_id"] for event in told}) == 1


# -- runs that end, and answers that break ---------------------------------------------------------------------------


def test_after_a_terminated_run_no_request_reaches_the_model(anyone: Doored) -> None:
    user = anyone
    user.govern(HEAD + TERMINATE)
    disk = user.shell("mkfs --version")
    session = user.talk(disk, Together((disk, user.shell("touch late"))), *[user.shell("touch later")] * 20, BYE)
    assert session.code != 0
    assert len(session.model.requests) == 2, "the call that ended the run is in the second answer"
    assert not list(user.project.glob("late*"))
    found = user.carried_out()
    assert recorded(found)[1][2:] == ("TERMINATE_RUN", "ERROR")
    assert [call["reason_code"] for call in found[2:]] == ["RUN_TERMINATED"]
    assert {run["status"] for run in user.runs()} == {"TERMINATED"}
    assert "the run was terminated" in session.output.lower()
    user.assert_nothing_left(30)


@pytest.mark.parametrize("within", ["text", "call"])
def test_what_a_client_asks_again_after_a_broken_answer_is_judged_too(user: Doored, within: str) -> None:
    """Claude Code asks for no stream the second time; Codex for another one."""
    user.govern(HEAD + RULES)
    (user.project / "keep").touch()
    remove = user.shell("rm keep")
    broken = Die(call=user.shell("rm keep; touch cut") if within == "call" else None)
    session = user.talk(broken, remove, user.shell("echo corrected"), BYE)
    assert session.code == 0, session.output
    asked = [request.get("stream", False) for request in session.model.requests]
    assert asked[:2] == [True, user.kind == "codex"]
    assert "Move it into the directory trash." in session.results[0] and "corrected" in session.results[1]
    assert (user.project / "keep").exists() and not (user.project / "cut").exists()
    assert_the_model_sees_its_own_calls(user, session, [remove, user.shell("echo corrected")])
    found = user.carried_out()
    assert [call["decision"] for call in found] == ["REJECT_WITH_HINT", "ALLOW"]
    usage = user.runs()[0]["usage"]
    assert usage["output_tokens"]["unstated"] == 1, "of the broken one"


def test_codex_is_told_at_once_to_do_without_a_websocket(codex: Doored) -> None:
    """With its own provider it tries one first, and up to seven times where it is not told."""
    codex.govern(HEAD + RULES)
    codex.own_provider = True
    session = codex.talk(codex.shell("rm nothing"), codex.shell("echo corrected"), BYE)
    assert session.code == 0, session.output
    assert "was refused" in session.results[0] and "corrected" in session.results[1]
    assert not any("upgrade" in seen.headers for seen in session.model.seen)
    assert "econnecting" not in session.output


# -- what would lead a client past the door ---------------------------------------------------------------------------


@pytest.mark.parametrize("says", ["ANTHROPIC_BASE_URL", "CLAUDE_CODE_USE_BEDROCK"])
def test_a_repositorys_settings_lead_claude_code_nowhere_else(claude: Doored, says: str) -> None:
    claude.govern(HEAD + RULES)
    with model_for(claude.kind, ()) as elsewhere:
        (claude.project / ".claude").mkdir()
        env = {says: elsewhere.url if says.endswith("URL") else "1"}
        (claude.project / ".claude" / "settings.json").write_text(json.dumps({"env": env}))
        own = claude.home / "own.json"
        own.write_text('{"env": {"OF_MY_OWN": "there"}}')
        given = str(own) if says.endswith("URL") else own.read_text()
        turns = (claude.shell("rm nothing"), claude.shell("echo $OF_MY_OWN"), BYE)
        session = claude.talk(*turns, options=("--settings", given))
        assert elsewhere.seen == []
    assert "was refused" in session.results[0] and "there" in session.results[1]


@pytest.mark.parametrize("way", ["a profile", "before its subcommand"])
def test_codex_is_led_to_the_door_however_its_provider_is_told(codex: Doored, way: str) -> None:
    codex.govern(HEAD + RULES)
    with model_for(codex.kind, (codex.shell("rm nothing"), BYE)) as model:
        command, env = codex.command_at(model.url)
        provider = f'model_providers.mine={{name = "mine", base_url = "{model.url}", env_key = "FAKE_MODEL_KEY"}}'
        if way == "a profile":
            (codex.home / ".codex").mkdir()
            toml = provider.replace("=", " = ", 1)
            (codex.home / ".codex" / "work.config.toml").write_text(f'model_provider = "mine"\n{toml}\n')
            told = ["--profile", "work"]
        else:
            told = ["-c", provider, "-c", 'model_provider="mine"']
        words = [command[0], *told, "exec", "--skip-git-repo-check", "-c", 'model="gpt-5"', "Begin."]
        done = subprocess.run(
            [*UNDER_RUN, *words],
            env={**codex.env(), **env},
            cwd=codex.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "was refused" in model.tool_outputs()[0]


# -- bytes ------------------------------------------------------------------------------------------------------------

ODD = {"n": 1.0, "big": 12345678901234567890, "deep": {"b": [1, None, "é\u2028💖"], "a": {}}, "e": 1e-7, "": ""}
REFUSED_IDS = [f"{word}_{number}" for word in ("toolu", "call") for number in ("0003", "0005")]
# What clients vary from run to run: ids of their own, and how long a command took.
VARIES = (
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    rb"(?<=_unix_ms)[\\\":]+[0-9]+",
    rb"(?<=Chunk ID: )[0-9a-f]+",
    rb"(?<=Wall time: )[0-9.]+",
    rb"(?<=device_id\\\":\\\")[0-9a-f]{64}",
)


def test_the_provider_gets_the_bytes_of_a_direct_session(user: Doored) -> None:
    """But for what is said of refused calls: in a direct session they run."""
    odd = ToolCall("echo", {"text": "hello", **ODD}, server=BOX)
    refused = ToolCall("echo", {"text": "secret", **ODD}, server=BOX)
    turns = (odd, user.shell("echo 'é'"), refused, odd, user.shell("rm keep"), odd, BYE)
    models = []
    for way in ("direct", "run"):
        begin_anew(user, way)
        session = user.talk(*turns)
        assert session.code == 0, session.output
        models.append(session.model)
    direct, through = models
    assert [sent(seen) for seen in side(direct)] == [sent(seen) for seen in side(through)]
    told = []
    for ours, theirs in zip(conversation(direct), conversation(through), strict=True):
        assert (ours.method, ours.path, headers(ours)) == (theirs.method, theirs.path, headers(theirs))
        body, outcomes = without_outcomes(sent(ours)[2])
        body_of_theirs, found = without_outcomes(sent(theirs)[2])
        assert body == body_of_theirs
        assert outcomes.keys() == found.keys()
        told.append(sum("was refused" in outcome for outcome in found.values()))
        assert not any("was refused" in outcome for outcome in outcomes.values())
    assert told == [0, 0, 0, 1, 1, 2, 2]


def begin_anew(user: Doored, way: str) -> None:
    """Nothing is there of an earlier session, and all paths are the same."""
    user.way = way
    shutil.rmtree(user.home)
    user.project.mkdir(parents=True)
    user.govern(HEAD + RULES)
    (user.project / "keep").touch()


def sent(seen: Seen) -> tuple[str, str, bytes]:
    return seen.method, seen.path, settled(seen.body)


def settled(text: bytes) -> bytes:
    for varying in VARIES:
        text = re.sub(varying, b"(varies)", text)
    return text


def is_conversation(seen: Seen) -> bool:
    return "count_tokens" not in seen.path and b'"tools"' in seen.body


def conversation(model: ModelServer) -> list[Seen]:
    return [seen for seen in model.seen if is_conversation(seen)]


def side(model: ModelServer) -> list[Seen]:
    return sorted((seen for seen in model.seen if not is_conversation(seen)), key=lambda seen: (seen.path, seen.body))


def headers(seen: Seen) -> dict[str, bytes]:
    """But for those of the connection, and how answers may be encoded: an encoded one could not be judged."""
    own = ("host", "connection", "accept-encoding", "content-length", "transfer-encoding")
    return {name: settled(value.encode()) for name, value in seen.headers.items() if name not in own}


def without_outcomes(body: bytes) -> tuple[bytes, dict[str, str]]:
    """A request byte for byte, and what it says of the calls that are refused behind a door."""
    value = json.loads(body, parse_float=as_spelled, parse_int=as_spelled)
    assert written(value) == body, "or not every difference would be seen"
    outcomes = {}
    blocks = [
        each for entry in value.get("messages", []) if isinstance(entry["content"], list) for each in entry["content"]
    ]
    for block in [*blocks, *value.get("input", [])]:
        name = str(block.get("tool_use_id", block.get("call_id", "")))
        if name in REFUSED_IDS and ("content" in block or "output" in block):
            outcomes[name] = str(block.pop("content", block.pop("output", "")))
            block.pop("is_error", None)
            members = sorted(block.items())  # Claude Code writes those of a failed call in another order
            block.clear()
            block.update(members)
    if "client_metadata" in value:  # Codex keeps it in no order
        value["client_metadata"] = dict(sorted(value["client_metadata"].items()))
    return written(value), outcomes


def as_spelled(number: str) -> str:
    return f"\0{number}"


def written(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub(r'"\\u0000([^"]+)"', r"\1", text).encode()


# -- beside hooks and shims -------------------------------------------------------------------------------------------


def test_a_call_that_several_doors_see_is_one_call_and_charged_once(anyone: Doored) -> None:
    user = anyone
    user.adopt(HEAD + BUDGET + RULES)
    inside = user.project / "a.txt"
    more = {"timeout": 5000.0} if user.kind == "claude_code" else {"workdir": str(user.home), "yield_time_ms": 5000}
    first = user.shell("echo one", **more)  # what only some doors see of it makes it no other call
    calls = (first, user.echo("two"), user.write(inside), user.shell("rm a.txt"), user.echo("five"))
    late = (user.shell("echo late"), user.echo("late"))
    session = user.talk(*calls, *late, BYE, options=user.with_patches)
    assert session.code == 0, session.output
    assert ["was refused" in result for result in session.results] == [False] * 3 + [True, False, True, True]
    assert inside.exists()
    found = user.carried_out()
    names = [f"{call['server_name']}/{call['tool_name']}" for call in found]
    builtin, box = "builtin/Bash", f"{BOX}/echo"
    assert names == [builtin, box, f"builtin/{user.write_name}", builtin, box, builtin, box]
    assert [call["decision"] for call in found] == ["ALLOW"] * 3 + ["REJECT_WITH_HINT", "ALLOW", "BLOCK", "BLOCK"]
    at_hook, at_shim = ["hook", "messages_api"], ["hook", "mcp_stdio", "messages_api"]
    only_here = ["messages_api"]
    starts = [event["call"] for event in user.events("tool_call_start")]
    seen = [[start for start in starts if tool_use_id(start) == call["tool_use_id"]] for call in found]
    assert [sorted(start["transport"] for start in each) for each in seen] == [
        at_hook, at_shim, at_hook, only_here, at_shim, only_here, only_here,
    ]  # fmt: skip
    assert all(len({start["args_hash"] for start in each}) == 1 for each in seen), "one call, one hash"
    (run,) = user.runs()
    assert (run["calls_total"], run["calls_blocked"]) == (len(user.query()), 3)
    shown = json.loads(user.sub("show", run["run_id"], "--json").stdout)
    told = [item["doors"] for item in shown["timeline"] if item["kind"] == "call" and item["server_name"] != "provider"]
    assert [sorted(door["transport"] for door in doors) for doors in told] == [
        sorted(start["transport"] for start in each) for each in seen
    ]
    user.assert_nothing_left(30)


def tool_use_id(start: dict[str, Any]) -> str:
    context = start.get("call_context", {})
    found: str = context.get("claudecode/toolUseId") or context.get("callId") or context.get("tool_use_id")
    return found


# -- the provider's key -----------------------------------------------------------------------------------------------


def test_the_providers_key_is_nowhere_but_with_the_provider(anyone: Doored) -> None:
    user = anyone
    key, user.key = "sk-the-key-of-the-provider-1234567890", "a-word-in-its-place"
    user.govern(HEAD + RULES)
    header, prefix = ("x-api-key", "") if user.kind == "claude_code" else ("authorization", "Bearer ")
    binding = f'inject_as = "header:{header}", secret_ref = "model_key", source = "file", prefix = "{prefix}"'
    config = user.sub_home / "config.toml"
    config.write_text(f"[servers.model]\nsecret_bindings = [{{ {binding} }}]\n")
    config.chmod(0o600)
    user.sub("secrets", "add", "model_key", "--source", "file", stdin=key)
    look = user.shell("env; tr '\\0' '\\n' < /proc/$PPID/environ")
    with model_for(user.kind, (look, user.shell("rm nothing"), user.echo(), BYE)) as model:
        user.sub("secrets", "confirm", "model", "--url", model.url)
        with user.started(model) as process:
            output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert {seen.headers[header] for seen in model.seen if seen.method == "POST"} == {prefix + key}
    assert all(user.key not in str(seen.headers) for seen in model.seen)
    assert "HOME=" in model.tool_outputs()[0]
    assert all(key.encode() not in seen.body for seen in model.seen)
    assert key not in output + user.said
    user.query()
    assert {event["secret"]["success"] for event in user.events("secret_injection")} == {True}
    shutil.rmtree(user.sub_home / "secrets")
    assert key.encode() not in everything_below(user.home)


# -- ends from outside ------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_client_and_the_door_with_it(user: Doored) -> None:
    user.govern(HEAD + RULES)
    with model_for(user.kind, (user.shell("echo one"), Stall())) as model, user.started(model) as process:
        model.wait_for_requests(2)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    user.assert_nothing_left(30)
    assert [call["status"] for call in user.carried_out()] == ["OK"]


def test_without_its_door_the_client_ends_and_the_user_is_told(user: Doored) -> None:
    user.govern(HEAD + RULES)
    with model_for(user.kind, (user.shell("echo one"), Stall())) as model, user.started(model) as process:
        model.wait_for_requests(2)
        (door,) = user.doors
        os.kill(door, signal.SIGKILL)
        output, _ = process.communicate(timeout=90)
        assert len(model.requests) == 2, "nothing goes past the door"
    assert process.returncode == 1
    assert "the door before the model's API has ended" in output
    user.assert_nothing_left(30)
    assert [call["tool_name"] for call in user.carried_out()] == ["Bash"]
    assert [run["status"] for run in user.runs()] == ["FAILED"]

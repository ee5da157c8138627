"""Tool calls in a model's answers: what the client gets, what the provider is shown, and what the record says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import run_sub
from harness.hooks import HookClient
from harness.model_client import ModelAgent, Refused, called, messages_proxy, results
from harness.model_policies import LS, NO_RM, RM, budget, bundle, decided, deny, ends
from harness.model_server import breaks_off, calls, message_events, says, scripted_model, text
from harness.proxy import Connection
from harness.shim import write_policy
from harness.state_holder import holding


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


def test_an_allowed_call_is_carried_out_and_ends_with_its_result(tmp_path: Path, stream: bool) -> None:
    with (
        scripted_model(says(text("Let me look."), calls("Bash", LS))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"], stream=stream)
        assert agent.ask("What is here?") == "Done."
        assert agent.executed == [("Bash", LS)]
        assert model.requests[-1] == agent.request() | {"messages": agent.history[:-1]}
    (start,) = door.events.events_of("tool_call_start")
    call = start["call"]
    assert (call["server_name"], call["tool_name"], call["transport"]) == ("builtin", "Bash", "messages_api")
    assert call["call_context"] == {"claudecode/toolUseId": "toolu_1"}
    assert decided(door.events) == [("Bash", "ALLOW")]
    (end,) = door.events.events_of("tool_call_end")
    assert (end["status"], "Bash is done" in json.dumps(end["preview"])) == ("OK", True)


def test_a_refused_call_is_not_carried_out_and_the_model_reads_why(tmp_path: Path, stream: bool) -> None:
    with (
        scripted_model(says(text("Away with it."), calls("Bash", RM)), says(calls("Bash", LS, "toolu_2"))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"], stream=stream)
        agent.ask("Tidy up.")
        assert agent.executed == [("Bash", LS)], "and the loop went on"
        for request in model.requests[1:]:
            assert called(request)[0] == {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": RM}
            shown = json.dumps(results(request)[0])
            assert "Move the file to the trash instead." in shown and "No such tool" not in shown
    assert decided(door.events) == [("Bash", "REJECT_WITH_HINT"), ("Bash", "ALLOW")]
    assert ends(door.events) == [("Bash", "ERROR", "policy_block"), ("Bash", "OK", None)]


def test_of_calls_in_one_answer_only_the_refused_one_is_not_carried_out(tmp_path: Path, stream: bool) -> None:
    turn = says(
        calls("Bash", LS, "toolu_1"), calls("Bash", RM, "toolu_2"), calls("Read", {"file_path": "/x"}, "toolu_3")
    )
    with (
        scripted_model(turn) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash", "Read"], stream=stream)
        agent.ask("Do it.")
        assert [name for name, _ in agent.executed] == ["Bash", "Read"]
        assert [block["name"] for block in called(model.requests[-1])] == ["Bash", "Bash", "Read"]
        refused = [block["tool_use_id"] for block in results(model.requests[-1]) if "trash" in json.dumps(block)]
        assert refused == ["toolu_2"]
    assert sorted(ends(door.events)) == sorted(
        [("Bash", "ERROR", "policy_block"), ("Bash", "OK", None), ("Read", "OK", None)]
    )


def test_what_is_not_a_refused_call_passes_byte_for_byte(tmp_path: Path) -> None:
    sent = message_events(text("Let me look at it."), calls("Bash", '{ "command" : "l\\u0073" }'), piece=3)

    def turn(heard: Any, wire: Any) -> None:
        wire.stream()
        for event in sent:
            wire.send(event)

    with (
        scripted_model(turn) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        body = b'{"stream" : true, "messages":[{"role":"user","content":"h\\u00e9"}], "model":"m", "max_tokens":1.0}'
        assert door.post(body).body == b"".join(sent)
        assert model.heard[0].body == body


def test_a_run_that_was_terminated_asks_its_model_no_more(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", LS)), says(calls("Bash", LS, "toolu_2"))) as model,
        messages_proxy(tmp_path, bundle(budget(1, "TERMINATE_RUN")), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"])
        with pytest.raises(Refused) as refused:
            agent.ask("Go on and on.")
        assert len(agent.executed) == 1 and len(model.requests) == 2
        answer = refused.value.answer
        assert (answer.status, answer.json()["type"]) == (403, "error")
        data = answer.json()["subluminal"]
        assert (data["action"], data["terminate"]["terminate_code"]) == ("TERMINATE_RUN", data["reason_code"])
        assert data["summary"] == answer.json()["error"]["message"]


def test_arguments_that_can_be_read_in_two_ways_are_refused_in_words_for_a_model(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", '{"command":"ls","command":"rm"}'))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"], stream=True)
        agent.ask("What is here?")
        (shown,) = results(model.requests[-1])
    assert agent.executed == []
    assert "can be read in more than one way" in json.dumps(shown) and "JSON-RPC" not in json.dumps(shown)


def test_the_unstreamed_repeat_after_a_cut_stream_is_judged_too(tmp_path: Path) -> None:
    cut = message_events(text("Away with it."), calls("Bash", RM))[:5]
    with (
        scripted_model(breaks_off(*cut), says(calls("Bash", RM)), says(text("I see."))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"])
        agent.history.append({"role": "user", "content": "Tidy up."})
        connection = door.connect()
        connection.send(door.request(json.dumps(agent.request()).encode()))
        assert connection.head()[0] == 200
        with pytest.raises((ConnectionError, ValueError)):
            while True:
                connection.read_chunk() or _raise()
        agent.stream = False
        agent.history.pop()
        assert agent.ask("Tidy up.") == "I see."
        assert agent.executed == []
    assert decided(door.events) == [("Bash", "REJECT_WITH_HINT")]


def _raise() -> None:
    raise ConnectionError


def test_the_same_id_again_is_another_call(tmp_path: Path) -> None:
    """Neither is let through because the other was, and each has an end."""
    turn = says(calls("Bash", LS, "toolu_1"), calls("Bash", RM, "toolu_1"), calls("Bash", LS, "toolu_1"))
    with (
        scripted_model(turn) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"])
        try:
            agent.ask("Go.")
        except Refused:
            pass  # a history in which an id stands twice may be refused: what counts is what ran
        assert RM not in [arguments for _, arguments in agent.executed]
    assert [action for _, action in decided(door.events)].count("ALLOW") <= 2
    assert len(ends(door.events)) == len(decided(door.events))


def test_ten_megabytes_of_arguments_are_judged_by_what_can_be_known(tmp_path: Path, stream: bool) -> None:
    large = json.dumps({"command": "rm x", "padding": "x" * 10_000_000})
    with (
        scripted_model(
            says(calls("Bash", large), piece=100_000), says(calls("Read", large, "toolu_2"), piece=100_000)
        ) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash", "Read"], stream=stream)
        agent.ask("Go.")
        assert [name for name, _ in agent.executed] == ["Read"]
        assert len(agent.executed[0][1]["padding"]) == 10_000_000
        assert json.loads(json.dumps(called(model.requests[-1])[0]["input"])) == json.loads(large)
    start = door.events.events_of("tool_call_start")[0]["call"]
    assert (start["args_hash"], len(start["args_raw_hash"])) == ("", 64)


def test_a_call_that_waits_for_the_runs_state_holds_up_no_other_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    with (
        scripted_model(says(text("A"), calls("Bash", RM), text("B")), says(text("Nothing to do."))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        door.headers = {"Subluminal-Run-Id": "run-held"}
        agent = ModelAgent(door, ["Bash"])
        agent.history.append({"role": "user", "content": "Go."})
        with holding("run-held") as holder:
            connection: Connection = door.connect()
            connection.send(door.request(json.dumps(agent.request()).encode()))
            assert connection.head()[0] == 200
            seen = b""
            while b'"A"' not in seen:  # what stands before the call is not held
                seen += connection.read_chunk()
            assert ModelAgent(door, []).ask("And you?") == "Nothing to do."
            assert b"tool_use" not in seen
            holder.let_go()
        rest = b"".join(iter(connection.read_chunk, b""))
        assert b"subluminal_refused__Bash" in rest and rest.index(b"subluminal_refused__Bash") < rest.index(b'"B"')
        assert model.heard


def test_calls_whose_end_nobody_tells_end_with_the_run(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", LS))) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"])
        agent.history.append({"role": "user", "content": "Go."})
        agent.turn()
    (end,) = door.events.events_of("tool_call_end")
    assert (end["status"], end["error"]["message"]) == ("CANCELLED", "the client did not say how the call ended")


def test_results_that_come_again_with_the_history_end_nothing_twice(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", LS)), says(calls("Bash", LS, "toolu_2"))) as model,
        messages_proxy(tmp_path, bundle(), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, [], {"Bash": "it failed"})
        agent.ask("Go.")
        agent.ask("Again.")
    assert ends(door.events) == [("Bash", "ERROR", "upstream_error")] * 2


def test_tools_that_the_provider_would_run_are_taken_out_where_policy_refuses_them(tmp_path: Path) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    run = {"type": "code_execution_20250522", "name": "code_execution"}
    own = {"name": "Bash", "input_schema": {"type": "object"}}
    with (
        scripted_model() as model,
        messages_proxy(tmp_path, bundle(deny("provider", "web_search")), upstream=model.url) as door,
    ):
        for _ in range(2):
            body = {"model": "m", "max_tokens": 9, "messages": [], "tools": [own, search, run]}
            assert door.post(body).status == 200
        assert [request["tools"] for request in model.requests] == [[own, run]] * 2
    found = [
        (event["call"]["server_name"], event["call"]["tool_name"]) for event in door.events.events_of("tool_call_start")
    ]
    assert found == [("provider", "web_search"), ("provider", "code_execution")], "once for each in a run"
    assert [action for _, action in decided(door.events)] == ["BLOCK", "ALLOW"]


@pytest.mark.parametrize(("count", "action"), [(1, "ALLOW"), (40, "BLOCK")])
def test_keys_in_members_of_a_connector_that_nobody_knows_are_nowhere(tmp_path: Path, count: int, action: str) -> None:
    keys = {f"x{i}": {"headers": [{"value": f"t0ken-{i:03}-of-nobody"}]} for i in range(count)}
    connector = {"type": "url", "name": "tracker", "url": "https://t.example/mcp", **keys}
    with (
        scripted_model() as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=model.url) as door,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [], "mcp_servers": [connector]}
        assert door.post(body).status == 200
        assert model.requests[0]["mcp_servers"] == ([connector] if action == "ALLOW" else [])
    assert decided(door.events) == [("(connector)", action)]
    assert "of-nobody" not in Path(door.events.path).read_text()


def test_a_definition_is_no_call_that_a_limit_counts(tmp_path: Path) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    with (
        scripted_model(says(calls("Bash", LS)), says(calls("Bash", LS, "toolu_2"))) as model,
        messages_proxy(tmp_path, bundle(budget(1, "BLOCK")), upstream=model.url) as door,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [], "tools": [search]}
        for _ in range(2):
            assert door.post(body).status == 200
        assert model.requests[0]["tools"] == [search]
    actions = [("web_search", "ALLOW"), ("Bash", "ALLOW"), ("Bash", "BLOCK")]
    assert decided(door.events) == actions, "and another budget is not needed for it"


def test_a_connector_is_judged_by_its_name_and_its_token_is_nowhere(tmp_path: Path) -> None:
    token = "tok_" + "s3cr3t" * 5
    connector = {"type": "url", "name": "tracker", "url": "https://t.example/mcp", "authorization_token": token}
    with (
        scripted_model() as model,
        messages_proxy(tmp_path, bundle(deny("other", "*")), upstream=model.url) as door,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [], "mcp_servers": [connector]}
        assert door.post(body).status == 200
        assert model.requests[0]["mcp_servers"] == [connector]
    (start,) = door.events.events_of("tool_call_start")
    assert (start["call"]["server_name"], start["call"]["tool_name"]) == ("tracker", "(connector)")
    assert "t.example" in json.dumps(start) and token not in Path(door.events.path).read_text()


def test_what_a_client_and_its_hook_say_is_one_call_charged_once(tmp_path: Path) -> None:
    """The second door finds the claim of the first."""
    env = {"SUB_RUN_ID": "run-both"}
    policy = write_policy(tmp_path, bundle(budget(1, "BLOCK")))
    with (
        scripted_model(says(calls("Bash", LS, "toolu_1")), says(calls("Bash", LS, "toolu_2"))) as model,
        messages_proxy(tmp_path, policy, upstream=model.url) as door,
        HookClient(tmp_path, policy=policy, env=env) as client,
    ):
        door.headers = {"Subluminal-Run-Id": "run-both"}
        agent = ModelAgent(door, ["Bash"])
        agent.history.append({"role": "user", "content": "Go."})
        agent.turn()
        assert client.before("Bash", LS, "toolu_1").reason == "", "charged already"
        agent.turn()
        assert [action for _, action in decided(door.events)] == ["ALLOW", "ALLOW", "BLOCK"], "of both doors"


def test_observe_lets_everything_through_and_says_what_it_would_have_done(tmp_path: Path) -> None:
    with (
        scripted_model(says(calls("Bash", RM))) as model,
        messages_proxy(tmp_path, bundle(NO_RM, mode="observe"), upstream=model.url) as door,
    ):
        agent = ModelAgent(door, ["Bash"])
        agent.ask("Go.")
        assert agent.executed == [("Bash", RM)]
    (event,) = door.events.events_of("tool_call_decision")
    assert (event["decision"]["action"], event["decision"]["would"]["action"]) == ("ALLOW", "REJECT_WITH_HINT")


def test_the_help_says_how_to_start_it(tmp_path: Path) -> None:
    shown = run_sub(tmp_path, "proxy", "messages", "--help")
    assert "ANTHROPIC_BASE_URL" in shown.stdout and "--until-stdin-ends" not in shown.stdout

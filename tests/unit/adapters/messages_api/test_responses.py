"""The Responses API at the door: Codex's tools in the names and arguments that its hooks have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.hooks import HookClient
from harness.http_servers import Handler, Heard, Wire
from harness.model_client import messages_proxy
from harness.model_policies import NO_RM, budget, bundle, decided, ends
from harness.model_server import scripted_model
from harness.proxy import Answer, Proxy
from harness.shim import write_policy

PATH = "/v1/responses"
PATCH = "*** Begin Patch\n*** Delete File: secrets/key\n*** End Patch"
NOT_THERE: dict[str, Any] = {
    "rule_id": "not-there",
    "kind": "deny",
    "match": {"args": {"path_within": {"paths": ["secrets"]}}},
    "effect": {"action": "BLOCK"},
}


def function(name: str, arguments: Any, call_id: str = "call_1", **more: str) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
    return {**item, "arguments": json.dumps(arguments), "status": "completed", **more}


def custom(name: str, given: str, call_id: str = "call_1") -> dict[str, Any]:
    item = {"type": "custom_tool_call", "id": f"ctc_{call_id}", "call_id": call_id, "name": name}
    return {**item, "input": given, "status": "completed"}


def responds(*items: dict[str, Any]) -> Handler:
    usage = {"input_tokens": 11, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 3}}
    response = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    whole = {**response, "output": list(items), "usage": usage}

    def turn(heard: Heard, wire: Wire) -> None:
        if not heard.message.get("stream"):
            wire.json(whole)
            return
        wire.stream()
        events = [("response.created", {"response": {**response, "status": "in_progress", "output": []}})]
        for index, item in enumerate(items):
            events.append(("response.output_item.added", {"output_index": index, "item": item}))
            events.append(("response.output_item.done", {"output_index": index, "item": item}))
        events.append(("response.completed", {"response": whole}))
        for name, fields in events:
            wire.send(f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode())

    return turn


def ask(door: Proxy, *given: dict[str, Any], stream: bool = True) -> list[dict[str, Any]]:
    """The items that a client acts on."""
    body = json.dumps({"model": "m", "stream": stream, "input": list(given)}).encode()
    answer: Answer = door.raw(door.request(body, path=PATH))
    assert answer.status == 200, answer.body
    if not stream:
        items: list[dict[str, Any]] = answer.json()["output"]
        return items
    return [event["item"] for event in answer.events() if event["type"] == "response.output_item.done"]


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


def test_a_refused_command_comes_back_to_the_model_as_its_own_call_with_the_reason(
    tmp_path: Path, stream: bool
) -> None:
    called = function("exec_command", {"cmd": "rm -rf build"})
    with (
        scripted_model(responds(called), responds()) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=f"{model.url}/v1") as door,
    ):
        (item,) = ask(door, stream=stream)
        assert item["name"] == "subluminal_refused__exec_command"
        output = {"type": "function_call_output", "call_id": "call_1", "output": "unsupported call"}
        ask(door, item, output, stream=stream)
        emitted, told = model.requests[-1]["input"]
        assert (emitted["name"], json.loads(emitted["arguments"])) == ("exec_command", {"cmd": "rm -rf build"})
        assert "Move the file to the trash instead." in json.dumps(told)
        assert {heard.target for heard in model.heard} == {PATH}
    (start,) = door.events.events_of("tool_call_start")
    call = start["call"]
    assert (call["server_name"], call["tool_name"], call["call_context"]) == ("builtin", "Bash", {"callId": "call_1"})
    assert decided(door.events) == [("Bash", "REJECT_WITH_HINT")]


def test_an_allowed_call_of_a_server_ends_with_its_output(tmp_path: Path, stream: bool) -> None:
    with (
        scripted_model(responds(function("add", {"text": "x"}, namespace="mcp__notes")), responds()) as model,
        messages_proxy(tmp_path, bundle(NO_RM), upstream=f"{model.url}/v1") as door,
    ):
        (item,) = ask(door, stream=stream)
        assert (item["name"], item["namespace"]) == ("add", "mcp__notes")
        ask(door, item, {"type": "function_call_output", "call_id": "call_1", "output": "added"}, stream=stream)
    (start,) = door.events.events_of("tool_call_start")
    assert (start["call"]["server_name"], start["call"]["tool_name"]) == ("notes", "add")
    assert ends(door.events) == [("add", "OK", None)]


def test_a_patch_is_judged_by_the_files_it_names(tmp_path: Path, stream: bool) -> None:
    with (
        scripted_model(responds(custom("apply_patch", PATCH))) as model,
        messages_proxy(tmp_path, bundle(NOT_THERE), upstream=f"{model.url}/v1") as door,
    ):
        (item,) = ask(door, stream=stream)
        assert item["name"] == "subluminal_refused__apply_patch"
    assert decided(door.events) == [("apply_patch", "BLOCK")]


@pytest.mark.parametrize(
    ("item", "name", "given"),
    [
        (function("exec_command", {"cmd": "ls -l", "yield_time_ms": 5}), "Bash", {"command": "ls -l"}),
        (custom("apply_patch", PATCH), "apply_patch", {"command": PATCH}),
        (function("add", {"n": 1.0}, namespace="mcp__notes"), "mcp__notes__add", {"n": 1}),
        (function("view_image", {"path": "/x.png"}), "view_image", {"path": "/x.png"}),
    ],
    ids=["a command", "a patch", "a server's tool", "an own tool"],
)
def test_a_call_is_the_same_as_at_the_hook_and_charged_once(
    tmp_path: Path, item: dict[str, Any], name: str, given: dict[str, Any]
) -> None:
    policy = write_policy(tmp_path, bundle(budget(1, "BLOCK")))
    with (
        scripted_model(responds(item)) as model,
        messages_proxy(tmp_path, policy, upstream=f"{model.url}/v1") as door,
        HookClient(tmp_path, policy=policy, env={"SUB_RUN_ID": "run-both"}, client="codex") as client,
    ):
        door.headers = {"Subluminal-Run-Id": "run-both"}
        ask(door)
        payload = client.payload(
            "PreToolUse", tool_name=name, tool_input=given, tool_use_id="call_1", cwd=str(Path.cwd())
        )
        assert client.raw("PreToolUse", payload).reason == "", "charged already"
    starts = door.events.events_of("tool_call_start")
    assert len({start["call"]["args_hash"] for start in starts}) == 1 and len(starts) == 2
    assert {(start["call"]["server_name"], start["call"]["tool_name"]) for start in starts} == {
        (starts[0]["call"]["server_name"], starts[0]["call"]["tool_name"])
    }


def test_usage_is_recorded_as_the_provider_states_it(tmp_path: Path, stream: bool) -> None:
    with (
        scripted_model(responds()) as model,
        messages_proxy(tmp_path, upstream=f"{model.url}/v1") as door,
    ):
        ask(door, stream=stream)
    (noted,) = door.events.events_of("model_message")
    assert {"input_tokens": 11, "output_tokens": 7, "api": "responses"}.items() <= noted["model"].items()

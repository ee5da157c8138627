"""Every operation of the tracker's mapping, by real clients, over real requests to a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.http_api import TRACKER, HttpProxy, http_proxy
from harness.tracker_server import Tracker, tracker_server

REPO = "/repos/ada/engine"
NAMED = {"owner": "ada", "repo": "engine"}
# tool, method, target, body, status, arguments
CALLS: list[tuple[str, str, str, Any, int, dict[str, Any]]] = [
    ("get_me", "GET", "/user", None, 200, {}),
    ("list_repos", "GET", "/users/ada/repos?page=2&sort=a", None, 200, {"owner": "ada", "page": "2", "sort": "a"}),
    ("get_repo", "GET", REPO, None, 200, NAMED),
    ("create_repo", "POST", "/user/repos", {"name": "loom"}, 201, {"name": "loom"}),
    ("update_repo", "PATCH", REPO, {"private": True}, 200, {**NAMED, "private": True}),
    ("list_issues", "GET", f"{REPO}/issues?state=open", None, 200, {**NAMED, "state": "open"}),
    ("create_issue", "POST", f"{REPO}/issues", {"title": "é", "n": 1.5}, 201, {**NAMED, "title": "é", "n": 1.5}),
    ("get_issue", "GET", f"{REPO}/issues/1", None, 200, {**NAMED, "number": 1}),
    ("get_issue", "GET", f"{REPO}/issues/99", None, 404, {**NAMED, "number": 99}),
    ("update_issue", "PATCH", f"{REPO}/issues/1", {"title": "other"}, 200, {**NAMED, "number": 1, "title": "other"}),
    ("lock_issue", "PUT", f"{REPO}/issues/1/lock", None, 204, {**NAMED, "number": 1}),
    ("unlock_issue", "DELETE", f"{REPO}/issues/1/lock", None, 204, {**NAMED, "number": 1}),
    ("list_comments", "GET", f"{REPO}/issues/1/comments", None, 200, {**NAMED, "number": 1}),
    ("create_comment", "POST", f"{REPO}/issues/1/comments", {"body": "hi"}, 201, {**NAMED, "number": 1, "body": "hi"}),
    ("get_comment", "GET", f"{REPO}/issues/comments/7", None, 200, {**NAMED, "comment": 7}),
    ("delete_comment", "DELETE", f"{REPO}/issues/comments/7", None, 200, {**NAMED, "comment": 7}),
    ("add_labels", "POST", f"{REPO}/issues/1/labels", ["a b"], 200, {**NAMED, "number": 1, "body": ["a b"]}),
    ("remove_label", "DELETE", f"{REPO}/issues/1/labels/a%20b", None, 200, {**NAMED, "number": 1, "label": "a b"}),
    ("replace_topics", "PUT", f"{REPO}/topics", "x", 200, {**NAMED, "body": "x"}),
    ("get_file", "GET", f"{REPO}/contents/README.md?ref=m", None, 200, {**NAMED, "path": "README.md", "ref": "m"}),
    ("put_file", "PUT", f"{REPO}/contents/a/b.c", {"content": "x"}, 201, {**NAMED, "path": "a/b.c", "content": "x"}),
    ("search_issues", "GET", "/search/issues?q=is%3Aopen+bug", None, 200, {"q": "is:open bug"}),
    ("merge_upstream", "POST", f"{REPO}/merge-upstream", None, 202, NAMED),
    ("download_archive", "GET", f"{REPO}/tarball/v1.0", None, 202, {**NAMED, "ref": "v1.0"}),
    ("delete_repo", "DELETE", REPO, None, 204, NAMED),
]  # fmt: skip
WRITES = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-writes",
            "kind": "deny",
            "match": {"risk_class": ["write_like"]},
            "effect": {"action": "BLOCK", "reason_code": "READ_ONLY", "message": "Only reads here."},
        }
    ],
}
Ask = Callable[[str, str, Any], tuple[int, Any]]

# A line for each request, and one for each answer: Node takes a second to start.
FETCH = """
import {createInterface} from "node:readline";
for await (const line of createInterface({input: process.stdin})) {
  const [method, url, body] = JSON.parse(line);
  const options = {method, redirect: "manual"};
  if (body !== null) { options.body = body; options.headers = {"content-type": "application/json"}; }
  const answer = await fetch(url, options);
  console.log(JSON.stringify([answer.status, await answer.text()]));
}
"""


def by_requests(stack: ExitStack, base: str) -> Ask:
    session = stack.enter_context(requests.Session())
    session.trust_env = False

    def ask(method: str, target: str, value: Any) -> tuple[int, Any]:
        answer = session.request(method, base + target, json=value, timeout=20)
        return answer.status_code, answer.json() if answer.content else None

    return ask


def by_curl(stack: ExitStack, base: str) -> Ask:
    def ask(method: str, target: str, value: Any) -> tuple[int, Any]:
        words = ["curl", "-sS", "--noproxy", "*", "-X", method, "-w", "\n%{http_code}", base + target]
        if value is not None:
            words += ["-H", "Content-Type: application/json", "--data-binary", json.dumps(value)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        text, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(text) if text else None

    return ask


def by_fetch(stack: ExitStack, base: str) -> Ask:
    words = ["node", "--input-type=module", "-e", FETCH]
    pipe = subprocess.PIPE
    process = stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, bufsize=1))
    stack.callback(process.kill)

    def ask(method: str, target: str, value: Any) -> tuple[int, Any]:
        assert process.stdin is not None and process.stdout is not None
        body = None if value is None else json.dumps(value)
        process.stdin.write(json.dumps([method, base + target, body]) + "\n")
        status, text = json.loads(process.stdout.readline())
        return status, json.loads(text) if text else None

    return ask


CLIENTS: dict[str, Callable[[ExitStack, str], Ask]] = {"requests": by_requests, "curl": by_curl, "node": by_fetch}


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ask]]:
    if request.param != "requests" and shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    with ExitStack() as stack:
        yield partial(CLIENTS[request.param], stack)


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    with tracker_server() as server:
        yield server


def recorded(door: HttpProxy) -> list[tuple[str, dict[str, Any], str]]:
    """Each call as events tell it: the tool, its arguments, how it ended."""
    starts = [event["call"] for event in door.events.events_of("tool_call_start")]
    ends = {event["call"]["call_id"]: event["status"] for event in door.events.events_of("tool_call_end")}
    return [(call["tool_name"], json.loads(call["preview"]["args_preview"]), ends[call["call_id"]]) for call in starts]


def test_each_operation_is_a_tool_with_its_arguments(tmp_path: Path, tracker: Tracker) -> None:
    assert {tool for tool, *_ in CALLS} == {operation["tool"] for operation in TRACKER["operations"]}
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url) as door, ExitStack() as stack:
        ask = by_requests(stack, door.base)
        for tool, method, target, value, status, _ in CALLS:
            assert ask(method, target, value)[0] == status, tool
    told = [(tool, arguments, "OK" if status < 400 else "ERROR") for tool, _, _, _, status, arguments in CALLS]
    assert recorded(door) == told
    assert {event["call"]["transport"] for event in door.events.events_of("tool_call_start")} == {"http"}
    assert [target for _, target, _, _ in tracker.heard] == [f"/api/v3{target}" for _, _, target, *_ in CALLS]
    assert tracker.files["a/b.c"] == "x" and tracker.repos == {}


def test_what_a_policy_refuses_does_not_reach_the_server_whoever_asks(
    tmp_path: Path, tracker: Tracker, client: Callable[[str], Ask]
) -> None:
    calls = [call for call in CALLS if call[0] in ("get_issue", "create_issue", "delete_repo", "search_issues")]
    with http_proxy(tmp_path, TRACKER, WRITES, upstream=tracker.url) as door:
        ask = client(door.base)
        for tool, method, target, value, status, _ in calls:
            answered, body = ask(method, target, value)
            if method == "GET":
                assert answered == status
            else:
                assert answered == 403
                assert body["subluminal"]["tool_name"] == tool and body["subluminal"]["rule_id"] == "no-writes"
                assert body["error"]["code"] == -32081 and "Only reads here." in body["error"]["message"]
    assert {method for method, *_ in tracker.heard} == {"GET"}
    ended = dict(zip([tool for tool, *_ in calls], [status for *_, status in recorded(door)], strict=False))
    assert ended["create_issue"] == "ERROR"


def test_a_request_goes_on_in_its_own_bytes(tmp_path: Path, tracker: Tracker) -> None:
    body = b' {"title" : "\\u0041", "n":1.50}\r\n'
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url) as door:
        door.ask("POST", "/repos/%41da/engine/issues?x=%7e", body=body, X_Own="kept", Cookie="a=b", Origin=door.base)
    ((method, target, headers, sent),) = tracker.heard
    assert (method, target, sent) == ("POST", "/api/v3/repos/%41da/engine/issues?x=%7e", body)
    assert headers["host"] == f"127.0.0.1:{tracker.port}"
    assert (headers["x-own"], headers["cookie"]) == ("kept", "a=b")
    assert "origin" not in headers and not any(name.startswith("subluminal") for name in headers)
    assert recorded(door) == [
        ("create_issue", {"owner": "Ada", "repo": "engine", "x": "~", "title": "A", "n": 1.5}, "OK")
    ]


def test_head_is_judged_as_its_get(tmp_path: Path, tracker: Tracker) -> None:
    with http_proxy(tmp_path, TRACKER, WRITES, upstream=tracker.url) as door:
        answer = door.ask("HEAD", "/repos/ada/engine/issues/1")
        assert (answer.status, answer.header("content-length")) == (200, str(len(json.dumps(tracker.issues[1]))))
    assert recorded(door) == [("get_issue", {**NAMED, "number": 1}, "OK")]
    assert tracker.heard[0][0] == "HEAD"


def test_a_large_body_is_judged_by_its_operation_and_passes_whole(tmp_path: Path, tracker: Tracker) -> None:
    content = "x" * 3_000_000
    with http_proxy(tmp_path, TRACKER, "deny_above_allow.yaml", upstream=tracker.url) as door:
        assert door.ask("PUT", f"{REPO}/contents/big", {"content": content}).status == 201
        refused = door.ask("PUT", f"{REPO}/contents/big2", {"content": content}, Content_Type="text/plain")
        assert (refused.status, refused.json()["error"]["detail"]) == (403, "a body whose type is not JSON")
    assert tracker.files["big"] == content and "big2" not in tracker.files
    call = door.events.events_of("tool_call_start")[0]["call"]
    assert call["preview"]["truncated"] and call["args_hash"] == "" and len(call["args_stream_hash"]) == 64
    assert call["bytes_in"] > len(content)


def test_a_large_body_for_another_path_is_another_call(tmp_path: Path, tracker: Tracker) -> None:
    content = {"content": "x" * 1_200_000}
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url) as door:
        for path in ("a", "b", "a"):
            assert door.ask("PUT", f"{REPO}/contents/{path}", content).status == 201
    hashes = [event["call"]["args_raw_hash"] for event in door.events.events_of("tool_call_start")]
    assert hashes[0] == hashes[2] != hashes[1]


def test_an_operation_that_is_not_mapped_goes_no_further_and_is_on_record(tmp_path: Path, tracker: Tracker) -> None:
    with http_proxy(tmp_path, TRACKER, "allow_all.yaml", upstream=tracker.url) as door:
        for method, target in (("GET", "/rate_limit?x=1"), ("DELETE", "/user"), ("OPTIONS", REPO), ("PURGE", "/")):
            answer = door.ask(method, target)
            assert answer.status == 403
            assert "subluminal" not in answer.json() and "no operation" in answer.json()["error"]["message"]
    assert tracker.heard == []
    assert recorded(door) == [
        ("(GET)", {"path": "/rate_limit", "query": "x=1"}, "ERROR"),
        ("(DELETE)", {"path": "/user"}, "ERROR"),
        ("(OPTIONS)", {"path": REPO}, "ERROR"),
        ("(PURGE)", {"path": "/"}, "ERROR"),
    ]


def test_where_the_mapping_lets_others_pass_only_reads_do_and_policy_has_its_say(
    tmp_path: Path, tracker: Tracker
) -> None:
    policy = json.loads(json.dumps(WRITES))
    policy["rules"][0]["match"] = {"tool_name": {"glob": ["(GET)"]}, "args": {"key_equals": {"path": "/emails"}}}
    with http_proxy(tmp_path, {**TRACKER, "unmapped": "pass"}, policy, upstream=tracker.url) as door:
        assert door.ask("GET", "/rate_limit").status == 404, "the server's own answer"
        assert door.ask("HEAD", "/rate_limit").status == 404
        assert door.ask("GET", "/emails").json()["subluminal"]["rule_id"] == "no-writes"
        assert "subluminal" not in door.ask("POST", "/rate_limit").json()
        for target in ("/Search/issues?q=1", "/search/issues/", "/x/../search/issues", "/search%2fissues"):
            assert door.ask("GET", target).json()["subluminal"]["tool_name"] == "search_issues", target
        assert door.ask("GET", "/x/../y").json()["subluminal"]["reason_code"] == "AMBIGUOUS_MESSAGE"
    assert [target for _, target, _, _ in tracker.heard] == ["/api/v3/rate_limit"] * 2

"""Whatever a server could read as another call is refused where a policy is enforced, and never reaches the server.

The server behind decodes paths twice, tidies them up, folds case, takes the last of two parameters, and another method
from wherever it is offered: each of these would delete the repository, or do something else than was judged.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.http_api import TRACKER, HttpProxy, http_proxy
from harness.tracker_server import Tracker, tracker_server

POLICY = {
    "policy_id": "p",
    "version": "1.0.0",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "ALLOW"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-deletes",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["delete_*"]}},
            "effect": {"action": "BLOCK", "reason_code": "NOT_HERE", "message": "Nothing is deleted here."},
        }
    ],
}
REPO = "/repos/ada/engine"
JSON = "application/json"
# Refused as ambiguous: method, target, headers, body.
AMBIGUOUS: dict[str, tuple[str, str, dict[str, str], bytes]] = {
    **{
        spelling: ("DELETE", spelling, {}, b"")
        for spelling in (
            "/repos/ada%2Fengine", "/repos/ada%2fengine", "/repos%2Fada%2Fengine", "/repos/ada%5Cengine",
            "/repos/ada\\engine",
            "/repos/ada%252Fengine", "/%72epos/ada/engine", "/Repos/ada/engine", "/repos//ada/engine",
            "//repos/ada/engine",
            "/repos/ada/engine/", "/repos/ada/./engine", "/repos/ada/x/../engine", "/x/%2e%2e/repos/ada/engine",
            "/repos/ada/%2e%2e/ada/engine", "/repos/ada/engine%00", "/repos/ada/engine%0a", "/repos/ada/engine;v=1",
            "/repos;a=b/ada/engine", "/repos/ada/engine.", "/repos/ada/engine%2E", "/repos/ada/engine%20",
            "/repos/ada/engin%65%25",
            "/repos/ada/%ff", "/repos/ada/%c0%ae", "/repos/ada/engine%", "/repos/ada/engine%6", "/repos/ada/{engine}",
            "/repos/ada/engine%3Fx", "/repos/ada/engine%23x", "/repos/ada/engine#x", "/repos/ada/engine?a=1#x",
            "/repos.json/ada/engine", "/%EF%BD%92epos/ada/engine", f"{REPO}?X-HTTP-Method-Override=GET",
        )
    },
    **{
        f"query {query}": ("GET", f"{REPO}/issues?{query}", {}, b"")
        for query in (
            "state=a&state=b", "state=a&State=b", "STATE=a", "%73tate=a", "state%5B%5D=a", "state[]=a", "state[0]=a",
            "state",
            "=a", "state=a&", "state=a&&page=1", "state=a;page=1", "state=%ff", "state=%", "state=%zz",
            "state=%2561", "state=%00",
            "other=a", "owner=eve", "_method=DELETE",
        )
    },
    "a query key that is a path parameter": ("GET", f"{REPO}?owner=eve", {}, b""),
    "a body member that is a path parameter": ("PATCH", REPO, {}, b'{"owner":"eve"}'),
    "a body member that is a query key": ("PATCH", f"{REPO}?private=no", {}, b'{"private":true}'),
    "a body member named body beside another value": ("PUT", f"{REPO}/topics?body=x", {}, b'"y"'),
    "a key twice in the body, once in another case": ("PATCH", REPO, {}, b'{"private":true,"Private":false}'),
    "a key twice in the body, once with a NUL": ("PATCH", REPO, {}, b'{"private":true,"private\\u0000x":false}'),
    "a body member that is a path parameter in another case": ("PATCH", REPO, {}, b'{"OWNER":"eve"}'),
    "the path in a header": ("GET", REPO, {"X-Forwarded-Uri": "/repos/ada/other"}, b""),
    "a key twice in the body": ("PATCH", REPO, {}, b'{"private":true,"private":false}'),
    "a key twice further down": ("PATCH", REPO, {}, b'{"a":{"b":1,"b":2}}'),
    "no JSON": ("PATCH", REPO, {}, b"private=true"),
    "two JSON values": ("PATCH", REPO, {}, b'{"private":true}{"private":false}'),
    "JSON that only our braces would make whole": ("PATCH", REPO, {}, b'{"a":1},"b":{"c":2}'),
    "JSON that only our key would make whole": ("PUT", f"{REPO}/topics", {}, b'"x","owner2":"y"'),
    "a BOM": ("PATCH", REPO, {}, b'\xef\xbb\xbf{"private":true}'),
    "UTF-16": ("PATCH", REPO, {}, '{"private":true}'.encode("utf-16")),
    "only spaces": ("PATCH", REPO, {}, b"  "),
    "another charset": ("PATCH", REPO, {"Content-Type": "application/json; charset=utf-16"}, b"{}"),
    "a form": ("PATCH", REPO, {"Content-Type": "application/x-www-form-urlencoded"}, b"private=true"),
    "no type": ("PATCH", REPO, {"Content-Type": ""}, b'{"private":true}'),
    "two types in one": ("PATCH", REPO, {"Content-Type": "application/json, text/plain"}, b"{}"),
    "a compressed body": ("PATCH", REPO, {"Content-Encoding": "gzip"}, gzip.compress(b'{"private":true}')),
    "a body where none is expected": ("GET", REPO, {}, b'{"_method":"DELETE"}'),
    "a body for an operation without one": ("POST", f"{REPO}/merge-upstream", {}, b"{}"),
    "another method in a header": ("POST", f"{REPO}/issues", {"X-HTTP-Method-Override": "DELETE"}, b'{"title":"x"}'),
    "another method in another header": ("GET", REPO, {"x-method-override": "DELETE"}, b""),
    "another method in a third header": ("GET", REPO, {"X-Http-Method": "DELETE"}, b""),
    "another method in a header with underscores": ("GET", REPO, {"X_HTTP-Method_Override": "DELETE"}, b""),
    "another path in a header": ("GET", "/user", {"X-Original-URL": "/api/v3/repos/ada/engine"}, b""),
    "another path in another header": ("GET", "/user", {"X-Rewrite-URL": "/api/v3/repos/ada/engine"}, b""),
    "another method in the body": ("POST", f"{REPO}/issues", {}, b'{"title":"x","_method":"DELETE"}'),
    "another method in the body, escaped": ("POST", f"{REPO}/issues", {}, b'{"\\u005fmethod":"DELETE"}'),
    "a number with zeros": ("GET", f"{REPO}/issues/007", {}, b""),
    "a number with a sign": ("GET", f"{REPO}/issues/+7", {}, b""),
    "a number with letters": ("GET", f"{REPO}/issues/7abc", {}, b""),
}  # fmt: skip
# Refused before anything is judged: this is not a request that we take.
NOT_TAKEN: dict[str, bytes] = {
    "an absolute target": b"DELETE http://127.0.0.1/repos/ada/engine HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
    "no path": b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
    "two types": b"PATCH /repos/ada/engine HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Type: application/json\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
    "two overrides": b"GET /user HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX-HTTP-Method: A\r\nX-HTTP-Method: B\r\n\r\n",
    "an override that is to be dropped": b"GET /user HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX-HTTP-Method: A\r\n"
    b"Connection: X-HTTP-Method\r\n\r\n",
    "another host": b"GET /user HTTP/1.1\r\nHost: tracker.example\r\n\r\n",
    "a page of another origin": b"GET /user HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: https://evil.example\r\n\r\n",
    "a length and chunks": b"PATCH /repos/ada/engine HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a byte beyond ASCII": b"DELETE /repos/ada/engin\xe9 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
    "a method in small letters": b"delete /repos/ada/engine HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n",
}


@pytest.fixture(scope="module")
def tracker() -> Iterator[Tracker]:
    with tracker_server() as server:
        yield server


@pytest.fixture(scope="module")
def door(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProxy]:
    mapping = {**TRACKER, "unmapped": "pass"}
    with http_proxy(tmp_path_factory.mktemp("door"), mapping, POLICY, upstream=tracker.url) as running:
        yield running


@pytest.mark.parametrize("spelling", AMBIGUOUS)
def test_a_request_with_two_readings_is_refused(door: HttpProxy, tracker: Tracker, spelling: str) -> None:
    method, target, headers, body = AMBIGUOUS[spelling]
    answer = door.ask(method, target, body=body, exactly=headers)
    assert answer.status == 403
    told = answer.json()
    assert told["subluminal"]["reason_code"] == "AMBIGUOUS_MESSAGE", told
    assert tracker.heard == []
    call = door.events.events_of("tool_call_start")[-1]["call"]
    assert call["ambiguous"] and told["error"]["detail"] == call["ambiguous"]
    assert "JSON-RPC" not in told["error"]["message"]


@pytest.mark.parametrize("spelling", NOT_TAKEN)
def test_what_is_no_request_as_we_take_it_goes_no_further(door: HttpProxy, tracker: Tracker, spelling: str) -> None:
    answer = door.raw(NOT_TAKEN[spelling].replace(b"PORT", str(door.port).encode()))
    assert 400 <= answer.status < 404
    assert tracker.heard == []


def test_in_observe_mode_they_pass_and_the_record_says_so(tmp_path: Path) -> None:
    """What nobody enforces is not held up; the server sees the bytes as they came."""
    with (
        tracker_server() as tracker,
        http_proxy(tmp_path, TRACKER, {**POLICY, "mode": "observe"}, upstream=tracker.url) as door,
    ):
        assert door.ask("GET", "/repos//ada/engine").status == 200
        assert door.ask("PATCH", REPO, body=b"private=true").status == 200
        assert [target for _, target, _, _ in tracker.heard] == ["/api/v3/repos//ada/engine", f"/api/v3{REPO}"]
    first, second = (event["decision"] for event in door.events.events_of("tool_call_decision"))
    assert first["action"] == second["action"] == "ALLOW"
    assert first["would"]["explain"]["reason_code"] == "AMBIGUOUS_MESSAGE"
    assert door.events.events_of("tool_call_start")[0]["call"]["tool_name"] == "get_repo"

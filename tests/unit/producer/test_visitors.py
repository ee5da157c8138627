"""Many runs in one process: whose run a visitor belongs to, under which policies, and when it ends."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.connecting import calling, listen
from harness.engine import rule
from harness.in_process import isolate
from harness.sink import EventFile, Spool
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.host import client_process, identity
from subluminal.host.config import load_config
from subluminal.host.peers import Peer, peer_of_socket
from subluminal.producer.pool import IDLE_NS, NoRoom
from subluminal.producer.producer import Producer
from subluminal.producer.visitor import Visitor, VisitorRefused
from subluminal.producer.visitors import Visitors


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(tmp_path, monkeypatch)
    monkeypatch.delenv("SUB_RUN_ID")
    monkeypatch.delenv("SUB_EVENTS")
    monkeypatch.delenv("CI", raising=False)  # a job has a workload of its own
    (tmp_path / "journals").mkdir()
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "proxy").mkdir()
    monkeypatch.chdir(tmp_path / "proxy")
    return tmp_path


@pytest.fixture
def journals(home: Path) -> Spool:
    return Spool(home / "journals")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen() as listener:
        yield listener


def visitors(journals: Spool, **options: Any) -> Visitors:
    options = {"events": f"dir:{journals.directory}", "limit": 10, **options}
    return Visitors(os.environ, config=load_config(os.environ), meta={"server_name": "s"}, **options)


def who(serving: Visitors, visitor: Visitor) -> Identity:
    return serving.producer_for(visitor).gate.identity


def judged(producer: Producer, tool: str = "t", **arguments: str) -> str:
    record = producer.gate.judge(ToolCall("s", tool, json.dumps(arguments).encode(), 2, "mcp_http"), 1, 1)
    producer.gate.announce(record, 1)
    producer.hand_over()
    return record.decision.action


def write_policy(path: Path, *rules: dict[str, Any], **members: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    bundle = {"policy_id": path.parent.name, "version": "1", "mode": "guardrails", "selectors": {}, **members}
    bundle["defaults"] = {"decision_on_error": "BLOCK"}
    path.write_text(json.dumps({**bundle, "rules": list(rules)}))


def denied(tool: str) -> dict[str, Any]:
    return rule(f"no-{tool}", "deny", {"tool_name": {"glob": [tool]}}, reason_code="NO", message="No.")


# -- whose run ------------------------------------------------------------------------------------------------


def test_a_process_that_carries_a_run_beats_every_header(journals: Spool, listener: socket.socket) -> None:
    env = {**os.environ, "SUB_RUN_ID": "run-of-process", "SUB_AGENT_ID": "builder", "SUB_CLIENT": "codex"}
    with calling(listener, env=env) as caller:
        serving = visitors(journals)
        said = {"run_id": "said", "agent_id": "said", "client": "claude", "client_session": "claude:1"}
        found = who(serving, Visitor("s", peer=peer_of_socket(caller.accepted), **said))
        assert (found.run_id, found.agent_id, found.client) == ("run-of-process", "builder", "codex")
        serving.close()


def test_without_an_agent_of_its_own_the_process_takes_the_headers(journals: Spool, listener: socket.socket) -> None:
    with calling(listener, env={**os.environ, "SUB_RUN_ID": "r"}) as caller:
        serving = visitors(journals)
        visitor = Visitor("s", run_id="said", agent_id="tester", client="claude", peer=peer_of_socket(caller.accepted))
        found = who(serving, visitor)
        assert (found.run_id, found.agent_id, found.client) == ("r", "tester", "claude")
        serving.close()


def test_where_no_run_is_carried_the_header_stands_before_what_is_derived(
    journals: Spool, listener: socket.socket
) -> None:
    with calling(listener) as caller:
        serving = visitors(journals)
        peer = peer_of_socket(caller.accepted)
        derived = client_process.derived_run_id(identity.host_id(), caller.pid)
        assert who(serving, Visitor("s", run_id="said", peer=peer)).run_id == "said"
        for session in ("one", "two"):
            visitor = Visitor(session, client_session="claude:1", peer=peer)
            assert who(serving, visitor).run_id == derived, "one client, one run: as its shims say"
        serving.close()


def test_without_a_process_headers_then_the_clients_session_then_the_session_tell(journals: Spool) -> None:
    serving = visitors(journals)
    assert who(serving, Visitor("s", run_id="said", client_session="claude:1")).run_id == "said"
    by_client = {who(serving, Visitor(s, client_session="claude:1", client="claude")).run_id for s in ("a", "b")}
    assert len(by_client) == 1
    by_session = [who(serving, Visitor(session)).run_id for session in ("a", "b", "a", "claude:1")]
    assert by_session[0] == by_session[2] and len({*by_session, *by_client}) == 4
    assert all(run_id.startswith("run-") for run_id in by_session)
    serving.close()


@pytest.mark.parametrize(
    "peer",
    [
        Peer(),
        Peer(os.geteuid()),
        Peer(os.geteuid(), os.getpid(), "another start"),
        Peer(os.geteuid() + 1, os.getpid(), identity.start_time(os.getpid())),
    ],
)
def test_a_peer_that_is_not_a_living_process_of_ours_tells_nothing(journals: Spool, peer: Peer) -> None:
    serving = visitors(journals)
    assert who(serving, Visitor("s", run_id="said", peer=peer)).run_id == "said"
    serving.close()


def test_the_process_that_serves_does_not_lend_its_own_run(journals: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SUB_RUN_ID": "own", "SUB_AGENT_ID": "own", "SUB_CLIENT": "codex", "SUB_ENV": "prod"}.items():
        monkeypatch.setenv(name, value)
    serving = visitors(journals)
    found = who(serving, Visitor("s"))
    assert "own" not in (found.run_id, found.agent_id)
    assert (found.client, found.env) == ("unknown", "prod"), "where it stands is the same for all"
    serving.close()


def test_an_id_of_a_process_without_end_is_refused(journals: Spool, listener: socket.socket) -> None:
    with calling(listener, env={**os.environ, "SUB_RUN_ID": "x" * 300}) as caller:
        serving = visitors(journals)
        with pytest.raises(VisitorRefused, match="SUB_RUN_ID of the client's process is longer than 256"):
            serving.producer_for(Visitor("s", peer=peer_of_socket(caller.accepted)))


def test_who_it_is_is_found_once(journals: Spool, listener: socket.socket) -> None:
    serving = visitors(journals)
    with calling(listener, env={**os.environ, "SUB_RUN_ID": "r"}) as caller:
        visitor = Visitor("s", peer=peer_of_socket(caller.accepted))
        first = serving.producer_for(visitor)
    assert serving.producer_for(visitor) is first, "also when its process has gone"
    serving.close()


def test_hostile_ids_are_ids_and_no_paths(home: Path, journals: Spool) -> None:
    serving = visitors(journals)
    for run_id in ("../../../etc/passwd", "/etc/passwd", ".", "..", "a/b", "%2e%2e", "-rf", "$(id)", "x" * 256):
        visitor = Visitor("s", run_id=run_id, agent_id=run_id)
        assert who(serving, visitor).run_id == run_id
        assert judged(serving.producer_for(visitor)) == "ALLOW"
    serving.close()
    for folder in (home / "sub" / "run", Path(journals.directory)):
        for path in folder.iterdir():
            assert path.is_file() and len(path.name) < 100
            assert all(letter.isalnum() or letter in "._-" for letter in path.name)
    assert {path.name for path in home.iterdir()} <= {"sub", "journals", "proxy"}


# -- apart from one another -----------------------------------------------------------------------------------


def test_each_run_has_its_budget_and_its_journal_and_all_are_one_process(home: Path, journals: Spool) -> None:
    write_policy(home / "sub" / "policy.yaml", rule("two", "budget", scope="run", limit_calls=2, on_exceed="BLOCK"))
    serving = visitors(journals)
    for run_id in ("a", "b"):
        actions = [judged(serving.producer_for(Visitor("s", run_id=run_id))) for _ in range(3)]
        assert actions == ["ALLOW", "ALLOW", "BLOCK"]
    serving.close()
    sources = {(event["run_id"], event["source"]["shim_id"]) for event in journals.events()}
    assert len(sources) == len({run_id for run_id, _ in sources}) == 2
    assert len({event["source"]["proc_id"] for event in journals.events()}) == 1
    assert [event["run"]["meta"] for event in journals.events_of("run_start")] == [{"server_name": "s"}] * 2


def test_agents_of_one_run_are_told_apart_and_share_its_budget(home: Path, journals: Spool) -> None:
    write_policy(home / "sub" / "policy.yaml", rule("two", "budget", scope="run", limit_calls=2, on_exceed="BLOCK"))
    serving = visitors(journals)
    agents = [Visitor("s", run_id="r", agent_id=name) for name in ("x", "y", "z")]
    assert [judged(serving.producer_for(agent)) for agent in agents] == ["ALLOW", "ALLOW", "BLOCK"]
    serving.close()
    assert {event["agent_id"] for event in journals.events_of("tool_call_start")} == {"x", "y", "z"}


def test_a_stream_is_one_for_all_runs(home: Path, journals: Spool) -> None:
    file = EventFile(home / "journals" / "all")
    serving = visitors(journals, events=file.argument, limit=1)
    for run_id in ("a", "b", "a"):
        judged(serving.producer_for(Visitor("s", run_id=run_id)))
    serving.close()
    assert [event["run_id"] for event in file.events_of("run_end")] == ["a", "b", "a"]


def test_all_runs_have_one_wire_to_the_daemon(journals: Spool) -> None:
    serving = visitors(journals)
    first, second = (serving.producer_for(Visitor("s", run_id=run_id)) for run_id in "ab")
    assert first.doorbell._bell is second.doorbell._bell  # type: ignore[attr-defined]
    serving.close()


# -- policies -------------------------------------------------------------------------------------------------


def test_the_policies_are_the_users_and_those_of_where_the_client_works(
    home: Path, journals: Spool, listener: socket.socket
) -> None:
    write_policy(home / "sub" / "policy.yaml", denied("user"))
    write_policy(home / "repo" / ".subluminal" / "policy.yaml", denied("repo"))
    write_policy(home / "proxy" / ".subluminal" / "policy.yaml", denied("proxy"))
    (home / "repo" / ".git").mkdir()
    (home / "repo" / "deep").mkdir()
    tools = ("user", "repo", "proxy")
    serving = visitors(journals)
    with calling(listener, cwd=home / "repo" / "deep") as caller:
        peer = peer_of_socket(caller.accepted)
        here = serving.producer_for(Visitor("s", peer=peer))
        assert [judged(here, tool) for tool in tools] == ["BLOCK", "BLOCK", "ALLOW"]
        assert here.gate.identity.workload is not None
        assert here.gate.identity.workload["repo_path"] == str(home / "repo")
        named = serving.producer_for(Visitor("s", run_id="named", peer=peer))
        assert [judged(named, tool) for tool in tools] == ["BLOCK", "BLOCK", "ALLOW"]
    elsewhere = serving.producer_for(Visitor("s", run_id="named"))
    assert [judged(elsewhere, tool) for tool in tools] == ["BLOCK", "ALLOW", "ALLOW"]
    assert elsewhere.gate.identity.workload == {"user": elsewhere.gate.identity.principal}
    serving.close()


def test_a_run_begins_where_its_client_works_and_its_servers_paths_where_they_do(
    home: Path, journals: Spool, listener: socket.socket
) -> None:
    data = {"args": {"path_within": {"path": ["data"]}}}
    write_policy(home / "sub" / "policy.yaml", rule("d", "deny", data, reason_code="NO", message="No."))
    for place in ("repo", "proxy"):
        (home / place / "data").mkdir(parents=True)
    (home / "proxy" / "link").symlink_to(home / "repo" / "data")
    serving = visitors(journals)
    with calling(listener, cwd=home / "repo") as caller:
        producer = serving.producer_for(Visitor("s", peer=peer_of_socket(caller.accepted)))
    assert judged(producer, path=str(home / "repo" / "data" / "x")) == "BLOCK"
    assert judged(producer, path=str(home / "proxy" / "data" / "x")) == "ALLOW"
    assert judged(producer, path="link/x") == "BLOCK", "the server stands where we do"
    serving.close()


def test_a_policy_that_is_named_to_the_process_stands_for_the_users_and_the_repository_adds_to_it(
    home: Path, journals: Spool, listener: socket.socket
) -> None:
    write_policy(home / "sub" / "policy.yaml", denied("user"))
    write_policy(home / "repo" / ".subluminal" / "policy.yaml", denied("repo"))
    write_policy(home / "named" / "policy.yaml", denied("named"))
    write_policy(home / "run" / "policy.yaml", denied("run"))
    serving = visitors(journals, policy="../named/policy.yaml")
    env = {**os.environ, "SUB_RUN_ID": "r", "SUB_POLICY": str(home / "run" / "policy.yaml")}
    with calling(listener, cwd=home / "repo", env=env) as caller:
        producer = serving.producer_for(Visitor("s", peer=peer_of_socket(caller.accepted)))
        tools = ("user", "repo", "named", "run")
        assert [judged(producer, tool) for tool in tools] == ["ALLOW", "BLOCK", "BLOCK", "BLOCK"]
    serving.close()


def test_a_policy_that_a_run_names_and_that_does_not_load_refuses_that_run_alone(
    home: Path, journals: Spool, listener: socket.socket
) -> None:
    said: list[str] = []
    serving = visitors(journals, say=said.append)
    env = {**os.environ, "SUB_RUN_ID": "r", "SUB_POLICY": "nowhere.yaml"}
    with calling(listener, env=env) as caller:
        assert judged(serving.producer_for(Visitor("s", peer=peer_of_socket(caller.accepted)))) == "BLOCK"
    assert judged(serving.producer_for(Visitor("s"))) == "ALLOW"
    assert len(said) == 1 and "nowhere.yaml" in said[0]
    serving.close()


def test_naming_oneself_brings_a_visitor_under_more_policies_and_not_under_fewer(home: Path, journals: Spool) -> None:
    write_policy(home / "sub" / "policy.yaml", denied("t"), selectors={"agent_id": ["unknown"]})
    serving = visitors(journals)
    assert judged(serving.producer_for(Visitor("s"))) == "BLOCK"
    assert judged(serving.producer_for(Visitor("s", agent_id="somebody", client="claude"))) == "BLOCK"
    write_policy(home / "sub" / "policy.yaml", denied("t"), selectors={"agent_id": ["strict"]})
    fresh = visitors(journals)
    assert judged(fresh.producer_for(Visitor("s"))) == "ALLOW"
    assert judged(fresh.producer_for(Visitor("s", agent_id="strict"))) == "BLOCK"
    serving.close()
    fresh.close()


def test_policies_that_change_hold_for_each_run_that_is_open(home: Path, journals: Spool) -> None:
    serving = visitors(journals)
    open_runs = [Visitor("s", run_id=run_id) for run_id in "abc"]
    assert [judged(serving.producer_for(visitor)) for visitor in open_runs] == ["ALLOW"] * 3
    write_policy(home / "sub" / "policy.yaml", denied("t"))
    for producer in serving.pool:
        producer.check_at_ns = 0  # it is time to look
    assert [judged(serving.producer_for(visitor)) for visitor in open_runs] == ["BLOCK"] * 3
    serving.close()
    assert len(journals.events_of("policy_loaded")) == 6


# -- time, and bounds -----------------------------------------------------------------------------------------


def test_idle_runs_end_and_those_with_calls_open_beat_on(journals: Spool) -> None:
    calls: dict[str, int] = {}
    gone: list[Producer] = []
    serving = visitors(journals, busy=lambda producer: calls.get(producer.gate.identity.run_id, 0), ended=gone.append)
    idle, busy = (serving.producer_for(Visitor("s", run_id=run_id)) for run_id in ("idle", "busy"))
    judged(busy)
    calls["busy"] = 1
    assert serving.tick(idle.check_at_ns) == []
    assert serving.tick(idle.check_at_ns + 2 * IDLE_NS) == gone == [idle]
    assert [event["run_id"] for event in journals.events_of("run_end")] == ["idle"]
    beats = {event["run_id"]: event["health"] for event in journals.events_of("shim_health")}
    assert (beats["busy"]["calls_total"], beats["busy"]["calls_pending"]) == (1, 1)
    again = serving.producer_for(Visitor("s", run_id="idle"))
    assert again is not idle and judged(again) == "ALLOW"
    serving.close()
    assert [event["run_id"] for event in journals.events_of("run_end")].count("idle") == 2


def test_a_run_that_waits_for_its_state_is_not_idle(journals: Spool) -> None:
    serving = visitors(journals)
    producer = serving.producer_for(Visitor("s"))
    producer.waiting = [1]  # type: ignore[assignment]  # as much as one who stands there
    assert serving.tick(producer.check_at_ns + 2 * IDLE_NS) == []
    producer.waiting = None
    serving.close()


def test_there_is_no_room_where_no_more_files_may_be_opened(journals: Spool) -> None:
    serving = visitors(journals)
    first = Visitor("s", run_id="a")
    serving.producer_for(first)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    held: list[int] = []
    try:
        while True:  # numbers below the limit that were free
            try:
                held.append(os.dup(0))
            except OSError:
                break
        with pytest.raises(NoRoom):  # rather than a state that forgets what the run has spent
            serving.producer_for(Visitor("s", run_id="b"))
        assert judged(serving.producer_for(first)) == "ALLOW", "who is there goes on"
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert judged(serving.producer_for(Visitor("s", run_id="b"))) == "ALLOW"
    serving.close()


# In a process of its own: this one has descriptors of other tests.
LIMITED = """
import os, resource, sys
from subluminal.host.config import load_config
from subluminal.producer.visitor import Visitor
from subluminal.producer.visitors import Visitors

resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
serving = Visitors(os.environ, config=load_config(os.environ), meta={"server_name": "s"}, events=sys.argv[1])
for number in range(40):
    serving.producer_for(Visitor("s", run_id=str(number)))
print(len(serving.pool), len(os.listdir("/proc/self/fd")))
serving.close()
"""


def test_the_limit_leaves_descriptors_for_connections(journals: Spool) -> None:
    command = [sys.executable, "-c", LIMITED, f"dir:{journals.directory}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    runs, descriptors = map(int, done.stdout.split())
    assert runs == 32 and descriptors < 200

"""`sub ui --fleet`: real collectors and stores, a real process, its API over HTTP. Whatever the page tells of a run is
what the ledger of the machine that recorded it tells."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from harness.collector import Machine, collector
from harness.fleet_names import run_id, shim_id
from harness.fleet_page import FleetPage, fleet_page
from harness.ledger import EventMaker, sub_environment
from harness.page import PageClient
from harness.ports import free_port, nobody_listens
from harness.recovering import at_random, scripted
from harness.stores import WHOLE
from harness.waiting import GENEROUS_S, wait_for
from subluminal.contracts.filters import Filters
from subluminal.fleet.stores.arrivals import LOOK_EVENTS
from subluminal.host.home import laid_snapshot
from subluminal.ledger.http.api import TRY_LATER
from subluminal.ledger.read.description import describe
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.over_time import over_time
from subluminal.ledger.read.recovery import recoveries
from subluminal.ledger.read.sparks import spark
from subluminal.ledger.read.timeline import timeline
from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes

HOSTILE = "\u202e<img src=x onerror=alert(1)>\u001b[2J"


def two_shims(number: int, hostile: str = "") -> list[bytes]:
    one, two = EventMaker(run_id(number), shim_id(number)), EventMaker(run_id(number), shim_id(number + 50))
    lines = [one.run_start(), two.run_start()]
    for at, action in enumerate(("ALLOW", "BLOCK", "THROTTLE", "ALLOW")):
        one.ms += 400 * at
        two.ms = one.ms
        lines += [*one.call(action, tool="git_push" + hostile), *two.call(action, server="files", tool="read")]
    return [*lines, one.run_end(), two.run_end("FAILED")]


def two_threads() -> list[bytes]:
    """Of Codex: what one is refused, the other does, which is no correction."""
    maker = EventMaker("of threads", shim_id(99))
    lines = [maker.run_start()]
    for action, thread in (("BLOCK", "t1"), ("ALLOW", "t2")):
        lines += maker.call(action, tool="push", call_context={"threadId": thread})
    return [line.replace(b'"client":"claude"', b'"client":"codex"') for line in [*lines, maker.run_end()]]


def shipped(machine: Machine, lines: list[bytes]) -> None:
    machine.record(lines)
    done = machine.ship()
    assert done.returncode == 0, done.stderr


def ledger_of(machine: Machine) -> Ledger:
    return open_ledger(str(machine.home / "ledger.db"))


def each(names: list[str]) -> str:
    return "&".join(f"run_id={quote(name, safe='')}" for name in names)


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({k: v for k, v in row.items() if k != "cursor"} for row in rows), key=json.dumps)


def same_told(page: FleetPage, machine: Machine, every: int) -> None:
    """Of everything that the machine has; of every so many runs, each by itself."""
    with ledger_of(machine) as ledger:
        runs = ledger.runs(limit=100).rows
        names = [row["run_id"] for row in runs]
        assert plain(page.ask("/v1/runs?limit=100")["rows"]) == plain(runs)
        assert plain(page.ask("/v1/calls?limit=1000")["rows"]) == plain(ledger.calls(limit=1000).rows)
        assert page.ask(f"/v1/sparks?{each(names)}")["sparks"] == [
            {"run_id": name, "calls": spark(ledger, name)} for name in names
        ]
        assert page.ask(f"/v1/recovery?{each(names)}")["runs"] == recoveries(ledger, names)
        for by in ("server_name", "rule_id", "hour"):
            found = page.ask(f"/v1/groups?by={by}")["groups"]
            assert plain(found) == plain(ledger.group(by=[by]))
        for asked in ("parts=7", "parts=60&decision=BLOCK", "parts=3&since_ms=1700000000200"):
            words = dict(word.split("=") for word in asked.split("&"))
            parts = int(words.pop("parts"))
            assert page.ask(f"/v1/over_time?{asked}") == over_time(ledger, Filters(**words), parts)
        for name in names[::every]:
            assert page.of_run(name) == ledger.run(name)
            assert page.of_run(name, "/timeline") == {"items": timeline(ledger, name), "whole": True}
            assert page.of_run(name, "/events")["events"] == list(ledger.timeline(name))
        for row in ledger.calls(limit=5).rows:
            path = f"/v1/calls/{row['call_id']}?{each([row['run_id']])}"
            assert page.ask(path) == describe(ledger, ledger.call(row["call_id"], row["run_id"]))
            assert page.ask(f"/v1/calls/{row['call_id']}")["run_id"] == row["run_id"]
            explained = page.ask(path.replace("?", "/explanation?"))
            assert explained == {"policies": [], "unknown": ["a" * 64]}


def test_what_the_page_tells_is_what_the_machine_would_tell(store: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    runs = [run for run, _ in scripted().values()] + [at_random(f"at random {n}", chance) for n in range(3)]
    with collector(tmp_path / "collector", store) as fleet:
        machine = Machine(tmp_path / "build-7", fleet)
        shipped(machine, [*two_shims(1, HOSTILE), *two_threads(), *(line for run in runs for line in run.lines)])
        with fleet_page(fleet, tmp_path / "page") as page:
            # Four questions of each of twenty runs take chDB half a minute.
            same_told(page, machine, 1 if WHOLE or store.startswith("postgres") else 4)
            assert page.ask("/v1/recovery?run_id=of%20threads")["runs"][0]["recovery_rate"] == 0.0
            raw = page.send(f"/v1/calls?run_id={run_id(1)}", Cookie=page.cookie).body
            assert b"\\u202e" in raw and b"\\u001b" in raw and "\u202e".encode() not in raw
        for words in (("runs", "--json"), ("runs", "--columns", "run,activity,recovery", "--limit", "0")):
            local = [sys.executable, "-m", "subluminal", *words, "--no-sync"]
            here = subprocess.run(local, env=sub_environment(machine.home), capture_output=True, text=True, timeout=60)
            assert sorted(listed(fleet.sub(*words))) == sorted(listed(here))


def listed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Without cursors, which each store has its own of."""
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) if line.startswith("{") else {"line": line} for line in done.stdout.splitlines()]
    return [json.dumps({name: value for name, value in row.items() if name != "cursor"}) for row in rows]


def test_a_run_that_goes_on_and_one_of_two_machines_are_told_as_they_are_now(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine, other = Machine(tmp_path / "build-7", fleet), Machine(tmp_path / "build-8", fleet)
        maker = EventMaker(run_id(1), shim_id(1))
        with fleet_page(fleet, tmp_path / "page") as page:
            shipped(machine, [maker.run_start(), *maker.call()])
            assert page.of_run(run_id(1), "/timeline")["items"][-1]["status"] == "OK"
            shipped(machine, [*maker.call("BLOCK"), maker.start(), maker.decision()])
            told = page.of_run(run_id(1), "/timeline")["items"]
            assert [item.get("status") for item in told] == [None, "OK", "ERROR", None]
            with ledger_of(machine) as ledger:
                assert told == timeline(ledger, run_id(1))
            # What sorts before the first machine's chain moves every place of it.
            early = EventMaker(run_id(1), shim_id(2))
            shipped(other, [early.run_start(), *early.call(tool="from_elsewhere")])
            shipped(machine, [maker.end(), maker.run_end()])
            told = page.of_run(run_id(1), "/timeline")["items"]
            assert sorted(item["tool_name"] for item in told if item["kind"] == "call") == [
                "from_elsewhere", "git_status", "git_status", "git_status",
            ]  # fmt: skip
            assert page.of_run(run_id(1))["event_count"] == 15
            assert [one["shim_id"] for one in page.of_run(run_id(1))["producers"]] == [shim_id(1), shim_id(2)]


def test_a_policy_that_is_known_here_explains_what_it_decided(one_store: str, tmp_path: Path) -> None:
    source = b"""{policy_id: team, version: 1.0.0, mode: guardrails, defaults: {decision_on_error: ALLOW},
        selectors: {}, rules:
        [{rule_id: no-push, kind: deny, match: {tool_name: {glob: [git_push]}}, effect: {action: BLOCK}}]}"""
    snapshot = compile_bundle(source, "policy.yaml")
    policy_hash = snapshot["policy_hash"]
    policy = {"policy_id": "team", "policy_version": "1.0.0", "policy_hash": policy_hash}
    laid = Path(laid_snapshot(policy_hash, str(tmp_path / "page" / "home")))
    laid.parent.mkdir(parents=True)
    laid.write_bytes(snapshot_bytes(snapshot))
    with collector(tmp_path / "collector", one_store) as fleet:
        maker = EventMaker(run_id(1), shim_id(1))
        lines = [maker.run_start(policy=policy), maker.start("git_push"), maker.decision("BLOCK", policy=policy)]
        shipped(Machine(tmp_path / "build-7", fleet), lines)
        with fleet_page(fleet, tmp_path / "page") as page:
            call = f"/v1/calls/{shim_id(1)}-1"
            (judged,) = page.ask(f"{call}/explanation")["policies"]
            assert [rule["rule_id"] for rule in judged["trace"] if rule["matched"]] == ["no-push"]


def test_pages_of_calls_go_on_where_they_ended_and_back_to_a_moment(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        machine = Machine(tmp_path / "build-7", fleet)
        shipped(machine, [line for number in range(1, 4) for line in two_shims(number)])
        with fleet_page(fleet, tmp_path / "page") as page:
            whole = page.ask("/v1/calls?limit=100")["rows"]
            found: list[Any] = []
            cursor = ""
            while True:
                told = page.ask(f"/v1/calls?limit=5{cursor}")
                found += told["rows"]
                if told["next_cursor"] is None:
                    break
                cursor = f"&cursor={told['next_cursor']}"
            assert found == whole and len({row["cursor"] for row in found}) == 24
            # Their numbers are those of the machine, so that a moment is the same everywhere.
            numbers = [int(row["cursor"].partition(".")[0]) for row in whole]
            assert numbers == sorted(numbers, reverse=True)
            moment = (numbers[10] >> 16) * 65536 + 65535
            back = page.ask(f"/v1/calls?limit=100&cursor={moment}")["rows"]
            assert back == [row for row, number in zip(whole, numbers, strict=True) if number <= moment]
            for wrong in ("x", "1.x", "1.W10", "9" * 40):
                assert "is no cursor" in page.ask(f"/v1/calls?cursor={wrong}", 400)["error"]


async def goes_on(page: FleetPage, machine: Machine) -> None:
    maker = EventMaker(run_id(1), shim_id(1))
    async with page.following() as live, page.following("?status=PENDING") as pending:
        await live.hear()
        await pending.hear()
        assert live.rows == {} and not live.reset
        await asyncio.to_thread(shipped, machine, [maker.run_start(), *maker.call(), maker.start(), maker.decision()])
        async with asyncio.timeout(GENEROUS_S):
            while len(live.rows) < 2:
                await live.hear()
            while not pending.rows:
                await pending.hear()
        (waits,) = pending.rows
        assert live.rows[waits]["status"] is None
        await asyncio.to_thread(shipped, machine, [maker.end()])
        await live.until(2)
        async with asyncio.timeout(GENEROUS_S):
            while pending.rows:
                await pending.hear()
        assert waits in live.rows
        after = live.after
    await asyncio.to_thread(shipped, machine, maker.call(tool="meanwhile"))
    async with page.following(f"?after={after}") as live:
        async with asyncio.timeout(GENEROUS_S):
            while not any(row["tool_name"] == "meanwhile" for row in live.rows.values()):
                await live.hear()
                assert not live.reset
    async with page.following("?after=1") as live:
        await live.hear()
        assert live.reset


def test_calls_show_up_as_they_arrive_and_a_page_goes_on_where_it_was(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        machine = Machine(tmp_path / "build-7", fleet)
        with fleet_page(fleet, tmp_path / "page") as page:
            asyncio.run(goes_on(page, machine))
            with ledger_of(machine) as ledger:
                assert plain(page.ask("/v1/calls")["rows"]) == plain(ledger.calls().rows)


async def is_flooded(page: FleetPage, machine: Machine) -> None:
    maker = EventMaker(run_id(1), shim_id(1))
    async with page.following() as live, page.following("?run_id=another") as calm:
        await live.hear()
        await calm.hear()
        await asyncio.to_thread(shipped, machine, maker.whole_run(LOOK_EVENTS // 3 + 1))
        async with asyncio.timeout(GENEROUS_S):
            while not live.reset:
                await live.hear()
        assert calm.told == [[]], "what another run does is not told to whoever follows one"


def test_who_could_not_read_what_arrives_reads_the_newest_instead(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        machine = Machine(tmp_path / "build-7", fleet)
        with fleet_page(fleet, tmp_path / "page") as page:
            asyncio.run(is_flooded(page, machine))
            assert len(page.ask("/v1/calls?limit=50")["rows"]) == 50


def test_what_makes_no_sense_to_a_collector_is_said(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        for place in (
            "/v1/sparks", "/v1/recovery", f"/v1/recovery?{each(list(map(str, range(101))))}", "/v1/run",
            "/v1/sparks?run_id=%00", "/v1/over_time?parts=0", "/v1/over_time?parts=501", "/v1/changes?since=soon",
            "/v1/changes?color=red", "/v1/calls?cursor=WzEsImEiXQ",
        ):  # fmt: skip
            status, _, told = fleet.ask(place, fleet.reader)
            assert status == 400 and told["error"], (place, told)
        shipper = fleet.token("acme", "build-7")
        for place in (
            "/v1/sparks?run_id=a",
            "/v1/recovery?run_id=a",
            "/v1/run?run_id=a",
            "/v1/changes",
            "/v1/over_time",
        ):
            assert fleet.ask(place, shipper)[0] == fleet.ask(place)[0] == 401
        assert fleet.ask("/v1/run?run_id=a", fleet.reader)[0] == 404
        assert fleet.ask("/v1/over_time", fleet.reader)[2]["parts"] == []


def test_a_tenant_sees_its_own_alone(store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", store) as fleet:
        ours, theirs = Machine(tmp_path / "ours", fleet), Machine(tmp_path / "theirs", fleet, tenant="umbra")
        shipped(ours, two_shims(1))
        shipped(theirs, two_shims(2))
        reader = fleet.token("umbra", "reader", may_read=True)
        with fleet_page(fleet, tmp_path / "a") as acme, fleet_page(fleet, tmp_path / "b", reader) as umbra:
            for page, own, other in ((acme, 1, 2), (umbra, 2, 1)):
                assert [row["run_id"] for row in page.ask("/v1/runs")["rows"]] == [run_id(own)]
                assert {row["run_id"] for row in page.ask("/v1/calls")["rows"]} == {run_id(own)}
                for what in ("", "/timeline", "/events"):
                    assert "There is no run" in page.of_run(run_id(other), what, 404)["error"]
                assert page.ask(f"/v1/calls/{shim_id(other)}-1?run_id={run_id(other)}", 404)["error"]
                nothing = {"corrected": None, "counted": None, "recovery_rate": None}
                assert page.ask(f"/v1/recovery?run_id={run_id(other)}")["runs"] == [
                    {"run_id": run_id(other), **nothing}
                ]
                assert page.ask(f"/v1/sparks?run_id={run_id(other)}")["sparks"][0]["calls"] is None
            # A session of one page means nothing to the other.
            assert umbra.send("/v1/runs", Cookie=acme.cookie).status == 401


def test_what_only_a_machine_knows_is_not_there_and_strangers_are_kept_out(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet, fleet_page(fleet, tmp_path / "page") as page:
        told = page.ask("/v1/session")
        assert told["fleet"] == fleet.url and told["home"] == told["directory"] == ""
        for path in ("/v1/policies", "/v1/tools", "/v1/tool?server_name=a&key=b", "/v1/hints", "/v1/openapi.json",
                     "/v1/policies/diff?old=a&new=b", "/v1/promote?call_id=a&scope=session"):  # fmt: skip
            assert "known to the machine itself" in page.ask(path, 404)["error"], path
        sent = {"Cookie": page.cookie, "Origin": page.origin, "Content-Type": "application/json"}
        for path in ("/v1/kill", "/v1/promote", "/v1/tools/approve"):
            assert page.send(path, "POST", b"{}", **sent).status == 403
            assert page.send(path, "POST", b"{}", X_Subluminal_CSRF=told["csrf"], **sent).status == 404
        for path in ("/metrics", "/v1/live"):
            assert page.send(path, Cookie=page.cookie).status == 403
        assert "sub ui --fleet" in page.send("/v1/runs").json["error"]
        assert page.send("/v1/runs", Authorization=f"Bearer {fleet.reader}").status == 401
        assert page.send("/v1/runs", Cookie=page.cookie, Host="evil.example").status == 421
        assert page.send("/v1/runs", Cookie=page.cookie, Origin="http://evil.example").status == 403
        assert page.send("/v1/runs", Cookie=page.cookie, Sec_Fetch_Site="same-site").status == 403
        again = page.send(page.link.removeprefix(page.origin))
        assert again.status == 403 and b"sub ui --fleet" in again.body
        assert "Content-Security-Policy".lower() in again.headers
        for path in ("/", "/app.js", "/v1/session", "/v1/runs"):
            assert fleet.reader.encode() not in page.send(path, Cookie=page.cookie).body


async def ends_with(page: FleetPage) -> tuple[int | None, str]:
    """How the stream was closed: code and sentence."""
    async with page.following() as live:
        while not (message := await live.stream.receive(GENEROUS_S)).type.name.startswith("CLOS"):
            pass
        assert message.data == live.stream.close_code
        return live.stream.close_code, message.extra or ""


def test_a_collector_that_goes_is_a_sentence_and_when_it_is_back_the_page_goes_on(
    one_store: str, tmp_path: Path
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        shipped(Machine(tmp_path / "build-7", fleet), two_shims(1))
        with fleet_page(fleet, tmp_path / "page") as page:
            assert len(page.ask("/v1/calls")["rows"]) == 8
            fleet.kill()
            for path in ("/v1/calls", "/v1/runs", f"/v1/runs/{run_id(1)}/timeline", "/v1/over_time"):
                assert "cannot be reached" in page.ask(path, 502)["error"]
            code, sentence = asyncio.run(ends_with(page))
            assert code == TRY_LATER and "cannot be reached" in sentence
            fleet.start()
            assert len(page.ask("/v1/calls")["rows"]) == 8
            asyncio.run(hears(page))
            # A token that was taken away meanwhile; another in its place.
            tokens = json.loads(Path(fleet.tokens).read_text())
            tokens["tokens"] = [one for one in tokens["tokens"] if one["machine"] != "reader"]
            Path(fleet.tokens).write_text(json.dumps(tokens))
            calls = partial(page.send, "/v1/calls", Cookie=page.cookie)
            told = wait_for(calls, enough=lambda answer: answer.status != 200, what="a refusal")
            assert told.status == 502 and "no longer good" in told.json["error"], told.body
            code, sentence = asyncio.run(ends_with(page))
            assert code == TRY_LATER and sentence and fleet.reader not in sentence + told.body.decode()
            page.token_file.write_text(fleet.token("acme", "again", may_read=True))
            wait_for(calls, enough=lambda answer: answer.status == 200, what="an answer")
            assert page.errors.read_text() == ""


async def hears(page: FleetPage) -> None:
    async with page.following() as live:
        await live.hear()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_though_the_collector_hangs_and_leaves_nothing_behind(
    one_store: str, tmp_path: Path, number: int
) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        shipped(Machine(tmp_path / "build-7", fleet), two_shims(1))
        page = FleetPage(fleet, tmp_path / "page")
        page.enter()
        page.of_run(run_id(1), "/timeline")
        (kept,) = os.listdir(page.scratch)
        assert os.stat(page.scratch / kept).st_mode & 0o777 == 0o700
        assert fleet.process is not None
        fleet.process.send_signal(signal.SIGSTOP)
        try:
            asked = subprocess.Popen(
                [sys.executable, "-c", ASK, page.origin, page.cookie], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert asked.stdout is not None
            asked.stdout.readline()
            assert page.end(number) == 0
            asked.wait(GENEROUS_S)
            asked.stdout.close()
        finally:
            fleet.process.send_signal(signal.SIGCONT)
        assert os.listdir(page.scratch) == [] and page.errors.read_text() == ""


# Asks what cannot be answered, and says when it has asked.
ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1].removeprefix("http://"))
connection.request("GET", "/v1/calls", headers={"Cookie": sys.argv[2]})
print("asked", flush=True)
connection.getresponse()
"""


BROWSER = """#!{python}
import json, os, sys
with open({place!r} + ".part", "w") as file:
    json.dump([sys.argv[1:], dict(os.environ)], file)
os.rename({place!r} + ".part", {place!r})
"""


def test_a_browser_that_it_opens_has_the_link_and_not_the_token(one_store: str, tmp_path: Path) -> None:
    browser, place = tmp_path / "browser", tmp_path / "told.json"
    browser.write_text(BROWSER.format(python=sys.executable, place=str(place)))
    browser.chmod(0o700)
    with collector(tmp_path / "collector", one_store) as fleet:
        environment = sub_environment(tmp_path / "home", SUB_FLEET_TOKEN=fleet.reader, BROWSER=f"{browser} %s")
        process = subprocess.Popen(
            [sys.executable, "-m", "subluminal", "ui", "--fleet", fleet.url, "--port", str(free_port())],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(place.exists, what="a browser")
            (link,), environ = json.loads(place.read_text())
            page = PageClient(link)
            cookie = page.cookie_for(link)
            assert page.send("/v1/runs", Cookie=cookie).status == 200
            assert fleet.reader not in str(environ) and "PATH" in environ
        finally:
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=GENEROUS_S)
        assert process.returncode == 0 and told == (f"{page.origin}/\n", "Ctrl-C ends it.\n")


def started(tmp_path: Path, url: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subluminal", "ui", "--fleet", url, "--no-open"]
    environment = sub_environment(tmp_path / "home", **extra)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_what_cannot_be_shown_is_said_before_anything_is_served(one_store: str, tmp_path: Path) -> None:
    with collector(tmp_path / "collector", one_store) as fleet:
        shipper = fleet.token("acme", "build-7")
        with nobody_listens() as port:
            for url, token, sentence in (
                (fleet.url, shipper, "may not read"),
                (fleet.url, "subf_wrong", "not known here"),
                (fleet.url, "two words", "holds no token"),
                (fleet.url, "", "has a token that may read"),
                (f"http://127.0.0.1:{port}", fleet.reader, "cannot be reached"),
                ("http://collector.example", fleet.reader, "by https"),
                ("https://ann:secret@collector.example", fleet.reader, "no user and no password"),
                ("http://127.0.0.1:99999", fleet.reader, "no address"),
                ("http://[::1", fleet.reader, "no address"),
                ("collector", fleet.reader, "no address"),
            ):
                done = started(tmp_path, url, SUB_FLEET_TOKEN=token)
                assert done.returncode == 2 and sentence in done.stderr, (url, done.stderr)
                told = done.stdout + done.stderr
                assert "Traceback" not in told and "secret" not in told
                assert not token.startswith("subf_") or token not in told

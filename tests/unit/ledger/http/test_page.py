"""The page's server: who is let in, and every way a web page, a rebound name or a stolen link is turned away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSServerHandshakeError

from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of
from harness.page import PageServer
from harness.waiting import wait_for
from subluminal.ledger.http.guard import HEADERS
from subluminal.ledger.http.routes import ROUTES
from subluminal.ledger.http.sessions import LINK_S, MAX_SESSIONS, SESSION_S, Sessions
from subluminal.ui.files import SERVED, SURFACES


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    home = tmp_path_factory.mktemp("page") / "home"
    spool_of(home)
    lines = EventMaker("run-1", "shim-1").whole_run(5)
    (home / "spool" / "shim-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    with ledgerd(home):
        wait_for(lambda: not list((home / "spool").glob("*.jsonl")))
        yield PageServer(home)


# -- links and sessions ---------------------------------------------------------------------------------------------


def test_a_link_becomes_a_cookie_that_scripts_and_other_sites_never_see(server: PageServer) -> None:
    opened = server.send(server.new_link("/run?run=run-1"), Sec_Fetch_Dest="document", Sec_Fetch_Site="none")
    assert opened.status == 303 and opened.headers["location"] == "/run?run=run-1" and not opened.body
    cookie, *attributes = opened.headers["set-cookie"].split("; ")
    assert cookie.startswith(f"subluminal_{server.port}=") and len(cookie.partition("=")[2]) >= 43
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert opened.headers["cache-control"] == "no-store" and opened.headers["referrer-policy"] == "no-referrer"
    assert server.send("/v1/runs", Cookie=cookie).json["rows"][0]["run_id"] == "run-1"
    token = (server.home / "http_token").read_text().strip()
    assert token not in cookie


def test_a_link_that_was_stolen_and_used_again_opens_nothing(server: PageServer) -> None:
    link = server.new_link()
    assert server.send(link).status == 303
    again = server.send(link)
    assert again.status == 403 and "set-cookie" not in again.headers


@pytest.mark.parametrize("headers", [{"Sec_Fetch_Dest": "iframe"}, {"Sec_Purpose": "prefetch"}, {"Host": "evil:80"}])
def test_who_does_not_go_there_does_not_spend_a_link(server: PageServer, headers: dict[str, str]) -> None:
    link = server.new_link()
    assert server.send(link, **headers).status in (403, 421)
    assert server.send(link, method="HEAD").status in (401, 405)
    assert server.send(link).status == 303


@pytest.mark.parametrize("code", ["", "x", "%00", "a" * 5000, "../../etc/passwd", "%2e%2e%2f"])
def test_a_guessed_link_opens_nothing(server: PageServer, code: str) -> None:
    answer = server.send(f"/link/{code}")
    assert answer.status in (400, 401, 403) and "set-cookie" not in answer.headers


def test_links_and_sessions_end_and_their_number_is_bounded() -> None:
    sessions = Sessions()
    late, used = sessions.link("/", 0), sessions.link("/runs", 0)
    assert sessions.redeem(late, LINK_S) is None
    cookie, path = sessions.redeem(used, LINK_S - 1) or ("", "")
    assert path == "/runs" and sessions.redeem(used, LINK_S - 1) is None
    assert sessions.holds(cookie, LINK_S - 2 + SESSION_S) and not sessions.holds(cookie, LINK_S - 1 + SESSION_S)
    for _ in range(MAX_SESSIONS):
        assert sessions.redeem(sessions.link("/", 0), 0)
    assert not sessions.holds(cookie, LINK_S)
    assert not Sessions().holds(cookie, 0)


def test_no_link_and_no_cookie_is_logged(server: PageServer) -> None:
    link = server.new_link()
    cookie = server.send(link).headers["set-cookie"].split(";")[0].partition("=")[2]
    log = (server.home / "ledgerd.log").read_text()
    assert "HTTP on" in log and link not in log and link.rpartition("/")[2] not in log and cookie not in log


def test_a_session_ends_where_its_page_says_so(server: PageServer) -> None:
    cookie = server.enter()
    csrf = server.send("/v1/session", Cookie=cookie).json["csrf"]
    sent = {"Cookie": cookie, "Origin": server.origin, "Content_Type": "application/json"}
    ended = server.send("/v1/session/end", "POST", b"{}", X_Subluminal_CSRF=csrf, **sent)
    assert ended.status == 200 and "Max-Age=0" in ended.headers["set-cookie"]
    assert server.send("/v1/runs", Cookie=cookie).status == 401


def test_the_port_is_one_and_the_paths_are_those_of_the_page(server: PageServer) -> None:
    assert "already" in server.control({"port": server.port + 1})["error"]
    assert server.control({"port": server.port})["ui"]["link"]
    for path in ("/v1/runs", "//evil.example/", "/nothing", "http://evil.example/", "/?a=\r\nSet-Cookie: x=y"):
        assert "is no part of the page" in server.control({"path": path})["error"]


# -- pages that are not ours ----------------------------------------------------------------------------------------

READS = [route.path.format(run_id="run-1", call_id="shim-1-1") for route in ROUTES if route.method == "GET"]
PAGES = [*SURFACES, *SERVED]
FOREIGN: dict[str, dict[str, Any]] = {
    "a page elsewhere": {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"},
    "a page on another port": {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": "same-site"},
    "a page that gives no origin": {"Origin": "null"},
    "another scheme": {"Origin": "https://127.0.0.1:{port}"},
    "another name of this machine": {"Origin": "http://localhost:{port}"},
    "an origin that only begins like ours": {"Origin": "http://127.0.0.1:{port}.evil.example"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
def test_another_page_gets_nothing_though_the_browser_sends_our_cookie(
    server: PageServer, headers: dict[str, str]
) -> None:
    sent = {name: value.format(port=server.port) for name, value in headers.items()}
    cookie = server.enter()
    for path in (*READS, *PAGES, "/v1/nothing"):
        answer = server.send(path, Cookie=cookie, **sent)
        assert answer.status == 403 and "access-control-allow-origin" not in answer.headers, path


def test_a_get_of_another_port_has_no_origin_and_is_known_by_its_site(server: PageServer) -> None:
    cookie = server.enter()
    for site in ("same-site", "cross-site", "none"):
        for path in READS:
            assert server.send(path, Cookie=cookie, Sec_Fetch_Site=site).status == 403, path
    assert server.send("/v1/runs", Cookie=cookie, Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", None])
def test_a_rebound_name_gets_nothing_not_even_the_files(server: PageServer, host: str | None) -> None:
    named = None if host is None else host.format(port=server.port)
    cookie = server.enter()
    for path in (*READS, *PAGES, server.new_link(), "/nothing"):
        origin = {"Origin": f"http://{named}"} if named else {}
        assert server.send(path, Cookie=cookie, Host=named, **origin).status in (400, 421), path


def test_a_target_that_names_a_server_and_a_second_host_are_refused(server: PageServer) -> None:
    cookie = server.enter()
    assert server.send("http://evil.example/v1/runs", Cookie=cookie).status in (400, 421)
    assert server.send(f"{server.origin}/v1/runs", Cookie=cookie).status in (400, 421)
    twice = f"{server.host}\r\nHost: evil.example"
    assert server.send("/v1/runs", Cookie=cookie, Host=twice).status in (400, 421)


def test_every_answer_forbids_frames_foreign_scripts_and_guessing(server: PageServer) -> None:
    cookie = server.enter()
    answers = [server.send(path, Cookie=cookie) for path in (*READS, *PAGES, "/nothing")]
    answers += [server.send("/"), server.send("/v1/runs"), server.send("/", Host="evil"), server.send("/", "PUT")]
    for answer in answers:
        assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


# -- writes ---------------------------------------------------------------------------------------------------------


def test_a_write_needs_the_token_of_its_session_an_origin_and_json(server: PageServer) -> None:
    cookie, other = server.enter(), server.enter()
    csrf = server.send("/v1/session", Cookie=cookie).json["csrf"]
    foreign = server.send("/v1/session", Cookie=other).json["csrf"]
    right = {"Cookie": cookie, "Origin": server.origin, "Content_Type": "application/json", "X_Subluminal_CSRF": csrf}
    wrong: list[dict[str, str | None]] = [
        {"X_Subluminal_CSRF": None},
        {"X_Subluminal_CSRF": foreign},
        {"X_Subluminal_CSRF": "é"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "same-site"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Cookie": None},
        {"Cookie": other},
    ]
    for change in wrong:
        answer = server.send("/v1/session/end", "POST", b"{}", **{**right, **change})
        assert answer.status in (401, 403, 415), change
    assert server.send("/v1/runs", Cookie=cookie).status == 200
    assert server.send("/v1/session/end", "POST", b"{}", **right).status == 200


def test_a_page_cannot_write_the_record(server: PageServer) -> None:
    cookie = server.enter()
    csrf = server.send("/v1/session", Cookie=cookie).json["csrf"]
    sent = {"Cookie": cookie, "Origin": server.origin, "X_Subluminal_CSRF": csrf, "Content_Type": "application/json"}
    line = EventMaker("run-forged", "shim-forged").run_start()
    assert server.send("/v1/events", "POST", line, **sent).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_methods_that_nothing_is_served_by_are_refused(server: PageServer, method: str) -> None:
    cookie = server.enter()
    for path in ("/", "/v1/runs", "/v1/events", "/app.js"):
        assert server.send(path, method, Cookie=cookie, Origin=server.origin).status in (400, 405)


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/http_token",
        "/app.js/../../../http_token",
        "/app.js%00.html",
        "//etc/passwd",
        "/./app.css/../files.py",
        "/files.py",
        "/ui/files.py",
        "/app.js?../files.py",
        "/app.js#/../files.py",
        "/app%2ejs",
        "/APP.JS",
    ],
)
def test_no_path_leads_to_a_file_that_is_not_the_page(server: PageServer, path: str) -> None:
    token = (server.home / "http_token").read_text().strip().encode()
    files = {server.send(name).body for name in SERVED}
    for cookie in (None, server.enter()):
        answer = server.send(path, Cookie=cookie)
        assert token not in answer.body and b"root:" not in answer.body and b"importlib" not in answer.body
        assert answer.status in (400, 401, 404) or answer.body in files


def test_without_a_session_there_is_an_empty_page_that_asks_once_more(server: PageServer) -> None:
    for path in SURFACES:
        answer = server.send(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="document")
        assert answer.status == 200 and b"landing.js" in answer.body and b"app.js" not in answer.body
        assert b"run-1" not in answer.body
        assert b"app.js" in server.send(path, Cookie=server.enter()).body


# -- live -----------------------------------------------------------------------------------------------------------


def test_a_stream_needs_a_session_and_our_origin(server: PageServer) -> None:
    cookie = server.enter()

    async def refused(**headers: str) -> int:
        with pytest.raises(WSServerHandshakeError) as error:
            async with server.live(**headers):
                pass
        return error.value.status

    async def attempts() -> None:
        assert await refused(Origin=server.origin) == 401
        assert await refused(Origin=server.origin, Cookie=cookie[:-1] + "~") == 401
        assert await refused(Cookie=cookie) == 403
        assert await refused(Cookie=cookie, Origin="http://127.0.0.1:1") == 403
        assert await refused(Cookie=cookie, Origin="http://evil.example") == 403
        async with server.live(Cookie=cookie, Origin=server.origin) as live:
            await live.hear()
            assert live.after > 0

    asyncio.run(attempts())


def tell(server: PageServer, lines: list[bytes]) -> None:
    """As a producer without a journal does; returns when all of it is stored."""
    with connect_ledgerd(server.home) as connection, connection.makefile("rwb") as stream:
        stream.write(b"".join(line + b"\n" for line in lines))
        stream.flush()
        assert all(b'"ack"' in stream.readline() for _ in lines)


def stored(server: PageServer, cookie: str, run_id: str) -> list[str]:
    rows = server.send(f"/v1/calls?run_id={run_id}&limit=1000", Cookie=cookie).json["rows"]
    return [row["cursor"] for row in rows]


def test_a_stream_that_breaks_goes_on_where_it_was_with_no_gap_and_no_double(server: PageServer) -> None:
    cookie = server.enter()
    page = {"Cookie": cookie, "Origin": server.origin}
    maker = EventMaker("run-resumed", "shim-resumed")

    async def watch() -> None:
        async with server.live("?run_id=run-resumed", **page) as first:
            await first.hear()
            tell(server, [maker.run_start(), *maker.call(), *maker.call("BLOCK")])
            await first.until(2)
        tell(server, [line for _ in range(300) for line in maker.call()])
        async with server.live(f"?run_id=run-resumed&after={first.after}", **page) as second:
            await second.until(300)
            tell(server, [maker.run_end()])
        told = [call_id for message in second.told for call_id in message]
        assert len(set(told)) == 300 and not set(first.rows) & set(second.rows)
        assert sorted({**first.rows, **second.rows}) == sorted(stored(server, cookie, "run-resumed"))

    asyncio.run(watch())


def test_who_was_away_for_too_long_is_told_to_begin_anew(server: PageServer) -> None:
    page = {"Cookie": server.enter(), "Origin": server.origin}

    async def watch(after: int) -> bool:
        async with server.live(f"?after={after}", **page) as live:
            await live.hear()
            return live.reset

    assert asyncio.run(watch(1 << 40))


def test_a_call_that_matches_no_longer_is_taken_back(server: PageServer) -> None:
    page = {"Cookie": server.enter(), "Origin": server.origin}
    maker = EventMaker("run-pending", "shim-pending")

    async def watch() -> None:
        async with server.live("?run_id=run-pending&status=PENDING", **page) as live:
            await live.hear()
            tell(server, [maker.run_start(), maker.start(), maker.decision()])
            while not live.rows:
                await live.hear()
            tell(server, [maker.end(), maker.run_end()])
            while live.rows:
                await live.hear()

    asyncio.run(asyncio.wait_for(watch(), 30))


@pytest.mark.parametrize(
    ("query", "calls"),
    [
        ("tool_name=git_*", {"git_push"}),
        ("decision=BLOCK", {"git_push"}),
        ("status=OK", {"ls"}),
        ("text=needle", {"ls"}),
        ("principal=nobody", set()),
        ("min_latency_ms=3&tool_name=ls", {"ls"}),
    ],
)
def test_a_stream_has_the_calls_that_the_list_has(server: PageServer, query: str, calls: set[str]) -> None:
    cookie = server.enter()
    name = f"run-{abs(hash(query))}"
    maker = EventMaker(name, name)
    lines = [maker.run_start(), maker.start("ls", preview='{"q":"a needle"}'), maker.decision(), maker.end()]
    lines += [*maker.call("BLOCK", tool="git_push"), maker.run_end()]

    async def watch() -> set[str]:
        async with server.live(f"?run_id={name}&{query}", Cookie=cookie, Origin=server.origin) as live:
            await live.hear()
            place = live.after
            tell(server, lines)
            while live.after == place or any(row["status"] is None for row in live.rows.values()):
                await live.hear()
            return {row["tool_name"] for row in live.rows.values()}

    found = asyncio.run(watch())
    listed = server.send(f"/v1/calls?run_id={name}&{query}", Cookie=cookie).json["rows"]
    assert found == {row["tool_name"] for row in listed} == calls


# -- the daemon -----------------------------------------------------------------------------------------------------


def test_after_a_restart_the_old_cookie_and_the_old_links_open_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spool_of(home)
    with ledgerd(home):
        before = PageServer(home)
        cookie, link = before.enter(), before.new_link()
        assert before.send("/v1/session", Cookie=cookie).status == 200
    with ledgerd(home):
        after = PageServer(home, port=before.port)
        assert after.send("/v1/session", Cookie=cookie).status == 401
        assert after.send(link).status == 403
        assert b"landing.js" in after.send("/", Cookie=cookie).body


def test_an_open_page_keeps_the_daemon_and_without_one_it_ends(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spool_of(home)
    with ledgerd(home, SUB_LEDGER_IDLE_S="0.5") as process:
        server = PageServer(home)
        page = {"Cookie": server.enter(), "Origin": server.origin}

        async def look() -> None:
            async with server.live(**page) as live:
                await live.hear()
                await asyncio.sleep(1.5)
                assert process.poll() is None

        asyncio.run(look())
        wait_for(lambda: process.poll() is not None, what="the daemon's end")


# -- what the page asks for -----------------------------------------------------------------------------------------


def test_the_page_gets_cursors_sparks_timelines_and_what_is_known_of_a_call(server: PageServer) -> None:
    cookie = server.enter()

    def ask(path: str) -> Any:
        answer = server.send(path, Cookie=cookie)
        assert answer.status == 200, answer.body
        return answer.json

    rows = ask("/v1/calls?run_id=run-1&limit=5")["rows"]
    older = ask(f"/v1/calls?run_id=run-1&cursor={rows[1]['cursor']}")["rows"]
    assert older == rows[2:]
    (spark,) = ask("/v1/sparks?run_id=run-1")["sparks"]
    assert sum(spark["calls"]) == 5 and len(spark["calls"]) == 24
    assert ask("/v1/sparks?run_id=none")["sparks"] == [{"run_id": "none", "calls": None}]
    items = ask("/v1/runs/run-1/timeline")
    assert items["whole"] and [item["kind"] for item in items["items"]].count("call") == 5
    call = ask(f"/v1/calls/shim-1-1?run_id=run-1&shim_id={rows[0]['shim_id']}")
    assert call["doors"] and call["agent_id"] == "repo-fixer" and call["policy"]["policy_id"] == "team-default"
    assert ask("/v1/calls/shim-1-1/explanation?run_id=run-1") == {"policies": [], "unknown": ["a" * 64]}
    assert json.loads(json.dumps(ask("/v1/session")))["home"] == str(server.home)

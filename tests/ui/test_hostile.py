"""What agents, servers and other pages may try through the record, in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from harness.chromium import Faults, missing, until
from harness.known_tools import know
from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of, sub_environment
from harness.page import PageServer

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(300)]

ROW = ".list .body .row"
_CODE = "window.owned=1"
PAYLOADS = [
    f"<script>{_CODE}</script>",
    f"<img src=x onerror={_CODE}>",
    f"<svg onload={_CODE}>",
    f'"><script>{_CODE}</script>',
    f"'><img src=x onerror='{_CODE}'>",
    f"javascript:{_CODE}",
    f"</pre><iframe srcdoc='<script>parent.{_CODE}</script>'>",
    f'<a href="javascript:{_CODE}" autofocus onfocus={_CODE}>x</a>',
    f"{{{{constructor.constructor('{_CODE}')()}}}}",
    f"${{{_CODE}}}",
    f"</title><script>{_CODE}</script>",
    f"<details open ontoggle={_CODE}>",
    f"<math><mtext><style><img src=x onerror={_CODE}></style></mtext></math>",
    f"\u202e<script>{_CODE}</script>\u2066",
    "<base href=//evil.example><script src=/x.js></script>",
    "__proto__",
    "constructor",
    f"🚀 עברית {_CODE} <b onmouseover={_CODE}>",
    f"<link rel=stylesheet href=//evil.example/{_CODE}>",
    f"<form action=//evil.example><button formaction=javascript:{_CODE}>",
]
WHOLE = os.environ.get("UI_PROFILE") == "whole"
WRAPPED = [
    f"{left}{payload}{right}"
    for payload in PAYLOADS
    for left, right in (
        ("", ""),
        ("`", "`"),
        ("-->", "<!--"),
        ("]]>", ""),
        ('\\"', "//"),
        ("%3C", ""),
        ("&lt;", ""),
        ("x\t", "\n"),
        ("\x1b[31m", ""),
        ("*/", "/*"),
    )
]
TRIED = WRAPPED if WHOLE else PAYLOADS


def hostile_run(number: int, text: str) -> list[bytes]:
    """The payload in every field that another party writes."""
    maker = EventMaker(f"x{number}-{text}", f"shim-x{number}", start_ms=1_760_000_000_000 + number * 1000)
    hint = {"hint_text": text, "hint_kind": "OTHER", "suggested_args": {text: text}, "retry_advice": text}
    explain = {"summary": text, "reason_code": text}
    policy = {"policy_id": text, "policy_version": text, "policy_hash": "b" * 64}
    return [
        maker.run_start(policy=policy),
        maker.start(text, text, preview=f'{{"a": "{text}"}}'),
        maker.decision("REJECT_WITH_HINT", rule_id=text, explain=explain, hint=hint, policy=policy),
        maker.end("ERROR", preview=text, error={"class": "policy_block", "message": text, "code": text}),
        maker.start(text, text, preview=text),
        maker.decision(),
        maker.end("ERROR", preview=text, error={"class": "upstream_error", "message": text, "code": text}),
        maker.event(
            "agent_event",
            agent={"agent_kind": "claude_code", "kind": "TextOutput", "text": text, "channel": "assistant"},
        ),
        maker.run_end(),
    ]


def test_no_field_of_the_record_becomes_script_or_markup(page: Any, scene: Any) -> None:
    for number, text in enumerate(TRIED):
        scene.tell(hostile_run(number, text))
    origin, cookie = scene.server.origin, scene.server.enter()
    before = page.evaluate("document.scripts.length")
    paths = ["/?until=2025-12-31", "/runs?until=2025-12-31"]
    seen = 0
    for number in range(len(TRIED)):
        query = f"/v1/calls?args_hash={1:064x}&since_ms={1_760_000_000_000 + number * 1000}"
        call = scene.server.send(f"{query}&until_ms={1_760_000_000_900 + number * 1000}", Cookie=cookie).json["rows"][0]
        page.evaluate(
            "words => history.replaceState(null, '', '/run?' + new URLSearchParams(words))", {"run": call["run_id"]}
        )
        paths.append(page.evaluate("location.pathname + location.search"))
        paths.append(paths[-1].replace("/run?", "/call?") + f"&call={call['call_id']}")
        seen += 1
    assert seen == len(TRIED)
    for path in paths:
        page.goto(origin + path)
        wanted = ".columns" if path.startswith("/call") else ROW
        page.wait_for_selector(f"{wanted}, main [role=alert]")
        assert page.locator(wanted).count(), (path, page.inner_text("main"))
        assert page.evaluate("window.owned") is None, path
        assert page.evaluate("document.scripts.length") == before
        assert page.locator("main :is(img, iframe, script, base, link, form:not(.filters), math, b)").count() == 0, path
        assert page.locator("a[href^='javascript:']").count() == 0
        text = page.inner_text("main")
        assert not set(text) & set("\u202e\u2066\x1b"), path
    page.goto(origin + paths[2])
    page.wait_for_selector(ROW)
    assert PAYLOADS[0] in page.inner_text("main")


def stays_text(page: Any, wanted: str, scripts: int, what: str) -> None:
    page.wait_for_selector(f"{wanted}, main [role=alert]")
    assert page.locator(wanted).count(), (what, page.inner_text("main"))
    assert page.evaluate("window.owned") is None, what
    assert page.evaluate("document.scripts.length") == scripts
    forms = "form:not(.filters):not(.question)"
    assert page.locator(f"main :is(img, iframe, script, base, link, {forms}, math, b)").count() == 0, what
    assert page.locator("a[href^='javascript:']").count() == 0
    assert not set(page.inner_text("main")) & set("\u202e\u2066\x1b\u200b"), what


def test_nothing_that_a_policy_or_a_server_says_becomes_script_or_markup(page: Any, scene: Any, tmp_path: Any) -> None:
    """In comments, rule ids and messages of a policy; in names, descriptions and differences of tools."""
    origin, scripts = scene.server.origin, page.evaluate("document.scripts.length")
    printable = [text for text in TRIED if text.isprintable()]
    (tmp_path / ".subluminal").mkdir()
    rules = [
        f"  # {text}\n  - rule_id: {json.dumps(text[:60])}\n    kind: deny\n    match: {{tool_name: {{glob: [x]}}}}\n"
        f"    effect: {{action: BLOCK, message: {json.dumps(text)}}}\n"
        for text in printable
    ]
    head = "policy_id: hostile\nversion: '1'\nmode: guardrails\ndefaults: {decision_on_error: ALLOW}\nselectors: {}\n"
    (tmp_path / ".subluminal" / "policy.yaml").write_text(head + "rules:\n" + "".join(rules), encoding="utf-8")
    page.goto(f"{origin}/policy?directory={tmp_path}")
    stays_text(page, ".written", scripts, "the policy")
    assert PAYLOADS[0] in page.inner_text("main")
    for number, text in enumerate(TRIED):
        know(scene.home, f"s{number}-{text}", f"t-{text}", text, f"{text} and \u200b{text}")
    page.goto(f"{origin}/tools")
    stays_text(page, ROW, scripts, "the tools")
    shown = scene.server.send("/v1/tools", Cookie=scene.server.enter()).json["tools"]
    named = [tool for tool in shown if tool["name"].startswith("t-")]
    assert len(named) == len(TRIED)
    for tool in named:
        words = {"server": tool["server_name"], "key": tool["key"]}
        page.evaluate("words => history.replaceState(null, '', '/tools?' + new URLSearchParams(words))", words)
        page.reload()
        stays_text(page, "section.opened .diff", scripts, tool["name"])
    page.goto(f"{origin}/overview?all=yes")
    stays_text(page, ".bars a", scripts, "the overview")


def framing(body: str, route: Any) -> None:
    route.fulfill(content_type="text/html", body=body)


def test_no_page_frames_it(scene: Any, browser: Any, page: Any) -> None:
    """What is done here is done by a click: nobody may put this page under another's pointer."""
    tab = browser.new_page()
    for address in ("http://elsewhere.example/", "http://127.0.0.1:1/"):
        body = "".join(
            f"<iframe src='{scene.server.origin}{path}'></iframe>" for path in ("/", "/tools", "/run?run=r-0001")
        )
        body += f"<object data='{scene.server.origin}/tools'></object><embed src='{scene.server.origin}/tools'>"
        tab.route(address, partial(framing, body))
        tab.goto(address)
        assert len(tab.frames) > 3
        for frame in tab.frames[1:]:
            frame.wait_for_load_state()
            assert frame.locator("#page").count() == 0, frame.url
    tab.close()


def test_a_run_in_a_file_acts_as_little(browser: Any, scene: Any, page: Any, tmp_path: Any) -> None:
    tab = browser.new_page()
    faults = Faults(tab, "file://")
    for number, text in enumerate(PAYLOADS if WHOLE else PAYLOADS[::4]):
        scene.tell(hostile_run(700 + number, text))
        target = tmp_path / f"{number}.html"
        command = [
            sys.executable,
            "-m",
            "subluminal",
            "export",
            "run",
            f"x{700 + number}-",
            "--html",
            "-o",
            str(target),
        ]
        subprocess.run(command, env=sub_environment(scene.home), check=True, capture_output=True, timeout=60)
        tab.goto(target.as_uri())
        tab.wait_for_selector(ROW)
        tab.locator(f"{ROW}:has(.reject_with_hint)").first.click()
        tab.wait_for_selector(".columns")
        assert tab.evaluate("window.owned") is None and tab.evaluate("document.scripts.length") == 2
        assert tab.locator("main :is(img, iframe, script, base, link, form, math, b)").count() == 0
        assert not set(tab.inner_text("main")) & set("\u202e\u2066\x1b")
    tab.close()
    assert faults.found == []


def test_another_page_on_this_machine_reads_nothing_and_frames_nothing(
    scene: Any, browser: Any, page: Any, tmp_path: Any
) -> None:
    """Another port of 127.0.0.1: the browser sends our cookie there and from there."""
    home = tmp_path / "other"
    spool_of(home)
    with ledgerd(home):
        other = PageServer(home)
        tab = browser.new_page()
        tab.goto(other.origin + "/icon.svg")
        tried = tab.evaluate(
            """async origin => {
                const ask = {credentials: 'include'};
                const read = await fetch(origin + '/v1/runs', ask).then(r => r.status, () => 'refused');
                const hidden = {...ask, mode: 'no-cors'};
                const blind = await fetch(origin + '/v1/runs', hidden).then(r => r.type, () => 'refused');
                const socket = await new Promise(done => {
                    const live = new WebSocket(origin.replace('http', 'ws') + '/v1/live/calls');
                    live.onopen = () => done('open'); live.onerror = () => done('refused');
                });
                return [read, blind, socket];
            }""",
            scene.server.origin,
        )
        assert tried[0] == "refused" and tried[2] == "refused" and tried[1] in ("refused", "opaque")
        tab.close()


def test_a_link_on_a_foreign_page_still_leads_to_the_page(scene: Any, browser: Any, page: Any) -> None:
    """The browser keeps our cookie back at first; the landing page asks once more."""
    tab = browser.new_page()
    tab.route(
        "http://elsewhere.example/",
        lambda route: route.fulfill(
            content_type="text/html", body=f"<a href='{scene.server.origin}/?decision=BLOCK'>look</a>"
        ),
    )
    tab.goto("http://elsewhere.example/")
    tab.click("a")
    tab.wait_for_selector(ROW)
    assert tab.url.endswith("/?decision=BLOCK")
    tab.close()


def test_a_page_left_open_over_a_restart_says_so_and_keeps_what_it_shows(browser: Any, tmp_path: Any) -> None:
    home = tmp_path / "restarted"
    spool_of(home)
    tab = browser.new_page()
    with ledgerd(home):
        server = PageServer(home)
        lines = EventMaker("run-1", "shim-1").whole_run(3)
        with connect_ledgerd(home) as connection:
            connection.sendall(b"".join(line + b"\n" for line in lines))
            tab.goto(server.origin + server.new_link())
            until(tab, lambda: tab.locator(ROW).count() == 3)
    tab.wait_for_selector("text=no daemon")
    with ledgerd(home):
        again = PageServer(home, port=server.port)
        tab.wait_for_selector("text=was started anew")
        assert tab.locator(ROW).count() == 3
        tab.goto(again.origin + again.new_link())
        until(tab, lambda: tab.locator(ROW).count() == 3)
        tab.wait_for_selector("text=● live")
    tab.close()


def told(home: Any, messages: list[Any]) -> list[Any]:
    with connect_ledgerd(home) as connection, connection.makefile("rwb") as stream:
        lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
        stream.write(b"".join(line + b"\n" for line in lines))
        stream.flush()
        return [json.loads(stream.readline()) for _ in lines]


def test_a_page_left_open_while_the_ledger_is_pruned_says_so_and_goes_on(browser: Any, tmp_path: Any) -> None:
    home = tmp_path / "pruned"
    spool_of(home)
    tab = browser.new_page()
    with ledgerd(home):
        server = PageServer(home)
        told(home, EventMaker("run-1", "shim-1").whole_run(3))
        tab.goto(server.origin + server.new_link())
        until(tab, lambda: tab.locator(ROW).count() == 3)
        assert told(home, [{"control": "prune", "before": "2099-01-01T00:00:00.000Z"}])[0]["pruned"]
        tab.locator(ROW).first.click()
        tab.wait_for_selector("text=it may have been pruned")
        tab.go_back()
        tab.wait_for_selector("text=No tool call has been recorded yet")
        told(home, EventMaker("run-2", "shim-2", start_ms=1_790_000_000_000).whole_run(2))
        until(tab, lambda: tab.locator(ROW).count() == 2)
    tab.close()


def test_after_a_sleep_no_call_is_missing_and_none_is_there_twice(browser: Any, tmp_path: Any) -> None:
    """Connections that break at any time, and a page that is frozen meanwhile."""
    home = tmp_path / "slept"
    spool_of(home)
    tab = browser.new_page()
    open_sockets: list[Any] = []
    nights = 3 if WHOLE else 1

    def through(socket: Any) -> None:
        socket.connect_to_server()
        open_sockets.append(socket)

    tab.route_web_socket("**/v1/live/calls*", through)
    devtools = tab.context.new_cdp_session(tab)
    with ledgerd(home):
        server = PageServer(home)
        tab.goto(server.origin + server.new_link())
        tab.wait_for_selector("text=● live")
        maker = EventMaker("run-1", "shim-1")
        told(home, [maker.run_start()])
        for night in range(nights):
            open_sockets[-1].close()
            devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
            for _ in range(40):
                told(home, maker.call(tool=f"night-{night}"))
            devtools.send("Page.setWebLifecycleState", {"state": "active"})
            wanted = f"{40 * (night + 1)} calls"
            until(tab, lambda wanted=wanted: tab.locator(f"text={wanted}").count() > 0)
        keys = tab.evaluate(
            """async () => {
                const body = document.querySelector('.list .body'), seen = [];
                for (let top = 0; top <= body.scrollHeight; top += 200) {
                    body.scrollTop = top;
                    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
                    const rows = body.querySelectorAll('.row');
                    for (const row of rows) seen.push([row.id, row.getAttribute('aria-rowindex')]);
                }
                return seen;
            }"""
        )
        assert len({key for key, _ in keys}) == 40 * nights
        assert len({(key, place) for key, place in keys}) == 40 * nights, "each at one place"
    tab.close()

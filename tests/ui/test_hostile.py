"""What agents, servers and other pages may try through the record, in a real browser."""

from __future__ import annotations

import os
from typing import Any

import pytest

from harness.chromium import missing, until
from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of
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
    f"\ud83d\ude80 עברית {_CODE} <b onmouseover={_CODE}>",
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

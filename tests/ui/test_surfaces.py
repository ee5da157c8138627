"""Every surface of the page, in a real browser: what is shown, by pointer and by keys alone."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from harness import places
from harness.chromium import AXE, missing, until
from harness.ledger import EventMaker

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(300)]

ROW = ".list .body .row"
WHOLE = os.environ.get("UI_PROFILE") == "whole"
# Written by hand when the page changes: UI_IMAGES=docs/img.
IMAGES = os.environ.get("UI_IMAGES")


def rows(page: Any) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(ROW).all_inner_texts()]


def visit(page: Any, scene: Any, path: str, wait: str = ROW) -> None:
    page.goto(scene.server.origin + path)
    page.wait_for_selector(wait)


def versions(scene: Any) -> str:
    known = scene.server.send(f"/v1/policies?directory={scene.directory}", Cookie=scene.server.enter()).json["versions"]
    hashes = {version["policy_version"]: version["policy_hash"] for version in known if version["policy_id"] == "team"}
    return f"old={hashes['1.3.0']}&new={hashes['1.4.0']}"


def test_the_link_is_gone_from_the_address_and_the_cookie_from_scripts(page: Any, scene: Any) -> None:
    assert page.url == scene.server.origin + "/"
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("history.length") <= 2


def test_a_call_that_happens_shows_up_on_top_and_ends_in_place(page: Any, scene: Any) -> None:
    maker = EventMaker("r-live", "shim-live", start_ms=scene.now + 1000)
    scene.tell([maker.run_start(), maker.start("deploy", "ops"), maker.decision()])
    until(page, lambda: any("ops/deploy" in row for row in rows(page)[:1]))
    assert "running" in rows(page)[0]
    scene.tell([maker.end(), maker.run_end()])
    until(page, lambda: any("OK" in row for row in rows(page)[:1]))


def test_nothing_moves_under_the_pointer_and_what_is_new_is_counted(page: Any, scene: Any) -> None:
    page.hover(f"{ROW}:nth-child(3)")
    before = rows(page)
    maker = EventMaker("r-held", "shim-held", start_ms=scene.now + 2000)
    scene.tell([maker.run_start(), *maker.call(tool="first"), *maker.call(tool="second"), maker.run_end()])
    page.wait_for_selector("text=2 new calls")
    assert rows(page) == before
    page.mouse.move(5, 5)
    until(page, lambda: any("second" in row for row in rows(page)[:1]))


def test_paused_it_stays_and_the_slider_goes_back(page: Any, scene: Any) -> None:
    page.keyboard.press("p")
    page.wait_for_selector("text=Jump to now")
    page.wait_for_selector(ROW)
    before = rows(page)
    maker = EventMaker("r-paused", "shim-paused", start_ms=scene.now + 60_000)
    scene.tell([maker.run_start(), *maker.call(tool="unseen"), maker.run_end()])
    page.focus("input[type=range]")
    page.keyboard.press("End")
    assert not any("unseen" in row for row in rows(page)) and before
    at = scene.now - 600_000
    visit(page, scene, f"/?at={at}")
    assert "r-0002" in rows(page)[0]
    page.click("text=Jump to now")
    until(page, lambda: any("unseen" in row for row in rows(page)[:1]))
    page.go_back()
    until(page, lambda: any("r-0002" in row for row in rows(page)[:1]))


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ("tool=git_push", "git/git_push"),
        ("tool=read_*&server=files", "files/read_file"),
        ("decision=BLOCK", "block"),
        ("status=ERROR", "ERROR"),
        ("rule=no-force-push", "no-force-push"),
        ("run=r-0003", "r-0003"),
        ("agent=repo-fixer&client=claude&text=src%2F7.py&run=r-0001", "r-0001"),
        ("since=1h&min-latency=3&run=r-0004", "r-0004"),
    ],
)
def test_a_link_with_filters_shows_what_sub_query_shows(page: Any, scene: Any, words: str, every: str) -> None:
    visit(page, scene, f"/?{words}")
    found = rows(page)
    assert found and all(every in row for row in found)
    assert page.locator(".chip").count() == len(words.split("&"))


def test_a_filter_is_typed_seen_and_taken_away(page: Any, scene: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.press("Tab")
    page.fill("#filter-value", "git_push")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?tool=git_push")
    until(page, lambda: all("git_push" in row for row in rows(page)))
    page.click("text=Copy as sub query")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "sub query --tool git_push"
    page.click("[aria-label='Remove filter tool git_push']")
    page.wait_for_url("**/")


def test_what_cannot_be_understood_is_a_sentence(page: Any, scene: Any) -> None:
    visit(page, scene, "/?since=yesterday", "[role=alert]")
    assert "yesterday is no time" in page.inner_text("[role=alert]")
    visit(page, scene, "/?decision=MAYBE", "[role=alert]")
    assert "is no decision" in page.inner_text("[role=alert]")
    visit(page, scene, "/call?call=none", "[role=alert]")
    assert "There is no call" in page.inner_text("[role=alert]")


def test_by_keys_alone_from_the_scoreboard_to_the_rule_that_refused(page: Any, scene: Any) -> None:
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.wait_for_selector(ROW)
    page.wait_for_selector(".spark rect")
    visit(page, scene, "/runs?agent=repo-fixer&until=10m&sort=started")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run?run=r-000*")
    page.wait_for_selector(ROW)
    page.keyboard.press("j")
    for _ in range(6):
        page.keyboard.press("j")
    until(page, lambda: "git_push" in page.locator(f"{ROW}.active").inner_text())
    page.keyboard.press("Enter")
    page.wait_for_url("**/call?*")
    page.wait_for_selector(".asked li.matched")
    told = page.inner_text("main")
    assert "REJECT_WITH_HINT by rule no-force-push" in told and "Push without force." in told
    assert '"force": true' in told and "Force pushes rewrite what others have." in told
    page.click("text=Copy as JSON")
    page.wait_for_selector("text=Copied")
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["rule_id"] == "no-force-push"
    page.keyboard.press("?")
    assert "next and previous row" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


RECOVERY = ".list .body .row [title^=recovery]"


def test_each_run_says_how_many_of_its_refusals_it_corrected(page: Any, scene: Any) -> None:
    maker = EventMaker("r-untouched", "shim-untouched", start_ms=scene.now - 1_200_000)
    scene.tell([maker.run_start(policy=scene.policy), *maker.call(), maker.run_end()])
    visit(page, scene, "/runs?run=r-untouched&run=r-0003&run=r-0001&sort=recovery", RECOVERY)
    asked = "run_id=r-0001&run_id=r-0003&run_id=r-untouched"
    told = scene.server.send(f"/v1/recovery?{asked}", Cookie=scene.server.enter()).json["runs"]
    rates = {one["run_id"]: one["recovery_rate"] for one in told}
    assert (rates["r-0001"], rates["r-0003"], rates["r-untouched"]) == (1 / 3, 0.0, None)
    words = [
        "recovery 33 %, 4 of 12 refusals corrected",
        "recovery 0 %, 0 of 16 refusals corrected",
        "nothing was refused",
    ]
    until(page, lambda: all(word in row for word, row in zip(words, rows(page), strict=True)))
    # A screen reader hears the words, not the figure as well.
    cell = page.locator(ROW).first.get_by_role("gridcell").filter(has_text="recovery")
    assert cell.aria_snapshot().count("33 %") == 1
    assert page.get_by_role("columnheader", name="Recovery").count() == 1
    visit(page, scene, "/compare?run=r-0001&with=r-0003")
    until(page, lambda: "12 refused (recovery 33 %, 4 of 12 refusals corrected)" in page.inner_text(".sides"))
    assert "(recovery 0 %, 0 of 16 refusals corrected)" in page.inner_text(".sides")


def test_the_recovery_of_a_run_that_goes_on_is_told_anew(page: Any, scene: Any) -> None:
    maker = EventMaker("r-recovers", "shim-recovers", start_ms=scene.now + 3000)
    scene.tell([maker.run_start(policy=scene.policy), *scene.call(maker, "git", "git_push")])
    visit(page, scene, "/runs?run=r-recovers")
    until(page, lambda: "no refusal counts yet" in rows(page)[0])
    scene.tell([*scene.call(maker, "git", "git_push", forced=False), maker.run_end()])
    until(page, lambda: "recovery 100 %, 1 of 1 refusal corrected" in rows(page)[0])


def test_the_timeline_and_its_table_are_in_step(page: Any, scene: Any) -> None:
    visit(page, scene, "/run?run=r-0001")
    box = page.locator(".lanes canvas").bounding_box()

    def first_bar_of_the_first_lane() -> int:
        """Drawn a frame or two after its rows."""
        page.mouse.click(box["x"] + 121, box["y"] + 33)
        return int(page.locator(f"{ROW}.active").count())

    until(page, first_bar_of_the_first_lane)
    assert "git/git_status" in page.locator(f"{ROW}.active").inner_text()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (make test-ui)")
@pytest.mark.parametrize("scheme", ["light", "dark"] if WHOLE else ["light"])
def test_no_surface_has_a_violation_of_accessibility(page: Any, scene: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    call = scene.server.send("/v1/calls?run_id=r-0001&rule_id=no-force-push&limit=1", Cookie=scene.server.enter()).json
    name = call["rows"][0]["call_id"]
    surfaces = {
        "/": ROW,
        "/?decision=BLOCK": ROW,
        "/runs": ROW,
        "/run?run=r-0001": ROW,
        f"/call?call={name}&run=r-0001": ".columns",
        "/call?call=none": "[role=alert]",
        "/overview": ".plot canvas",
        "/compare?run=r-0001&with=r-0002": ROW,
        f"/policy?directory={scene.directory}&{versions(scene)}": ".changes li",
        "/tools?server=git&key=git_push": ".opened .diff",
        "/hints": ".card",
    }
    for width in (1280, 320) if WHOLE else (1280,):
        page.set_viewport_size({"width": width, "height": 800})
        for path, wait in surfaces.items():
            visit(page, scene, path, wait)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            # The policy of the page lets no script in but its own: the checker comes through the debugger.
            page.context.new_cdp_session(page).send("Runtime.evaluate", {"expression": AXE.read_text()})
            tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
            found = page.evaluate("tags => axe.run({runOnly: tags})", tags)["violations"]
            told = [(one["id"], [node["html"][:160] for node in one["nodes"]][:3]) for one in found]
            assert told == [], (path, width)


def test_from_a_phone_to_a_wall(page: Any, scene: Any) -> None:
    for width, height in ((320, 640), (768, 1024), (1920, 1080), (3840, 2160))[:: 1 if WHOLE else 3]:
        page.set_viewport_size({"width": width, "height": height})
        for path in ("/", "/runs", "/run?run=r-0001", "/compare?run=r-0001&with=r-0002", "/tools"):
            visit(page, scene, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            until(page, lambda: page.locator(ROW).count() >= 3)
        for path, wait in (("/overview", ".plot canvas"), (f"/policy?directory={scene.directory}", ".written")):
            visit(page, scene, path, wait)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.skipif(not IMAGES, reason="UI_IMAGES names no directory")
def test_images_for_the_documentation(page: Any, scene: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    call = scene.server.send("/v1/calls?run_id=r-0001&rule_id=no-force-push&limit=1", Cookie=scene.server.enter()).json
    name = call["rows"][0]["call_id"]
    surfaces = {
        "live": ("/?since=1h", ROW),
        "runs": ("/runs?until=1m", ".spark rect"),
        "run": ("/run?run=r-0001", ROW),
        "call": (f"/call?call={name}&run=r-0001", ".asked li.matched"),
        "overview": ("/overview?since=1h", ".bars a"),
        "compare": ("/compare?run=r-0001&with=r-0002", ROW),
        "policy": (f"/policy?directory={scene.directory}", ".written"),
        "tools": ("/tools?server=git&key=git_push", ".opened .diff"),
        "hints": ("/hints", ".card"),
    }
    for surface, (path, wait) in surfaces.items():
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            visit(page, scene, path, wait)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=str(places.ROOT / str(IMAGES) / f"ui-{surface}-{scheme}.png"))

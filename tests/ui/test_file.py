"""`sub export run --html`: the same page in one file, without a daemon, to look at, to send and to print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.chromium import AXE, Faults, missing, until
from harness.ledger import sub_environment

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(300)]

ROW = ".list .body .row"


def export(scene: Any, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subluminal", "export", "run", *words, "--html"]
    return subprocess.run(
        command, env=sub_environment(scene.home), capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def tab(browser: Any) -> Any:
    found = browser.new_page()
    faults = Faults(found, "file://")
    yield found
    found.close()
    assert faults.found == []


def test_a_run_in_a_file_is_the_page_without_a_daemon(tab: Any, scene: Any, tmp_path: Path) -> None:
    target = tmp_path / "a run.html"
    done = export(scene, "r-0001", "-o", str(target))
    assert done.returncode == 0 and done.stdout.strip() == str(target), done.stderr
    tab.goto(target.as_uri())
    tab.wait_for_selector(ROW)
    told = tab.inner_text("body")
    assert "Run r-0001" in told and "Written " in told and "no daemon" not in told and "repo-fixer" in told
    assert tab.locator("nav a").count() == 0
    tab.locator(f"{ROW}:has-text('git_push')").first.click()
    tab.wait_for_selector(".columns")
    shown = tab.inner_text("main")
    assert "REJECT_WITH_HINT by rule no-force-push" in shown and '"force": true' in shown
    assert "Force pushes rewrite what others have." in shown and "tool_call_decision" in shown
    assert "#/call?" in tab.url
    tab.reload()
    tab.wait_for_selector(".columns")
    tab.click("text=Its run")
    tab.wait_for_selector(ROW)
    tab.go_back()
    tab.wait_for_selector(".columns")


def test_on_paper_all_of_it_stands(tab: Any, scene: Any, tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    assert export(scene, "r-0001", "-o", str(target)).returncode == 0
    tab.goto(target.as_uri())
    tab.wait_for_selector(ROW)
    seen = tab.locator(ROW).count()
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    until(tab, lambda: tab.locator(ROW).count() == 42 > seen)
    assert len(tab.pdf()) > 10_000
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    until(tab, lambda: tab.locator(ROW).count() < 42)


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (make test-ui)")
def test_the_file_is_as_accessible(tab: Any, scene: Any, tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    assert export(scene, "r-0002", "-o", str(target)).returncode == 0
    tab.goto(target.as_uri())
    tab.wait_for_selector(ROW)
    tab.context.new_cdp_session(tab).send("Runtime.evaluate", {"expression": AXE.read_text()})
    found = tab.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})")["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:160]) for one in found] == []


def test_a_place_that_is_none_is_a_sentence(scene: Any, tmp_path: Path) -> None:
    nowhere = export(scene, "r-0001", "-o", str(tmp_path / "none" / "run.html"))
    assert nowhere.returncode == 2 and "cannot be written" in nowhere.stderr

"""The page over a fleet, in a real browser: a real collector, two tenants, and what only a machine knows hidden."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.chromium import AXE, Faults, missing, until
from harness.collector import CollectorProcess, Machine, collector
from harness.fleet_names import run_id, shim_id
from harness.fleet_page import FleetPage
from harness.ledger import EventMaker
from harness.stores import chdb_dsn, need

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(300)]

ROW = ".list .body .row"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    need("zstandard")
    directory = tmp_path_factory.mktemp("fleet")
    with collector(directory / "collector", chdb_dsn(directory)) as started:
        yield started


class Tenant:
    """One machine of its own, and a page in the browser."""

    def __init__(self, fleet: CollectorProcess, directory: Path, name: str, number: int) -> None:
        self.machine = Machine(directory / name, fleet, tenant=name)
        self.token = fleet.token(name, "reader", may_read=True)
        self.run_id = run_id(number)
        self.maker = EventMaker(self.run_id, shim_id(number), start_ms=time.time_ns() // 1_000_000 - 60_000)
        lines = [self.maker.run_start(), *self.maker.call("BLOCK", tool="push"), *self.maker.call(tool="push")]
        self.ship([*lines, *self.maker.call(tool=f"of_{name}{HOSTILE}")])

    def ship(self, lines: list[bytes]) -> None:
        self.machine.record(lines)
        assert self.machine.ship().returncode == 0


@contextmanager
def looking(fleet: CollectorProcess, tenant: Tenant, directory: Path, browser: Any) -> Iterator[tuple[Any, FleetPage]]:
    """A tab that is let in; nothing that it must never do has happened when it is closed."""
    served = FleetPage(fleet, directory, tenant.token)
    try:
        tab = browser.new_page()
        faults = Faults(tab, served.origin)
        tab.goto(served.link)
        tab.wait_for_selector(ROW)
        yield tab, served
        tab.close()
        assert faults.found == []
    finally:
        served.end()


def rows(tab: Any) -> list[str]:
    return [" ".join(text.split()) for text in tab.locator(ROW).all_inner_texts()]


def visit(tab: Any, served: FleetPage, path: str, wait: str = ROW) -> None:
    tab.goto(served.origin + path)
    tab.wait_for_selector(wait)


def test_a_tenant_looks_at_its_fleet(fleet: CollectorProcess, browser: Any, tmp_path: Path) -> None:
    acme, umbra = Tenant(fleet, tmp_path, "acme", 1), Tenant(fleet, tmp_path, "umbra", 2)
    with (
        looking(fleet, acme, tmp_path / "a", browser) as (tab, served),
        looking(fleet, umbra, tmp_path / "b", browser) as (other, _),
    ):
        assert fleet.url.removeprefix("http://") in tab.inner_text("header .fleet")
        assert tab.locator("header nav a").all_inner_texts() == ["Live", "Overview", "Runs"]
        assert fleet.reader not in tab.content() and acme.token not in tab.content()
        assert len(rows(tab)) == 3 and any(f"of_acme{HOSTILE}" in row for row in rows(tab))
        assert len(rows(other)) == 3 and not any("of_acme" in row for row in rows(other))

        # A call that happens shows up on top and ends in place; the other tenant hears nothing of it.
        acme.maker.ms += 30_000
        acme.ship([acme.maker.start("deploy", "ops"), acme.maker.decision()])
        until(tab, lambda: "ops/deploy" in rows(tab)[0] and "running" in rows(tab)[0])
        acme.ship([acme.maker.end()])
        until(tab, lambda: "OK" in rows(tab)[0])
        assert len(rows(other)) == 3
        tab.click("text=Copy as sub query")
        tab.wait_for_selector("text=Copied")
        assert tab.evaluate("navigator.clipboard.readText()") == f"sub query --fleet {fleet.url}"

        # Back in time, and to now.
        visit(tab, served, f"/?at={acme.maker.ms - 20_000}")
        assert len(rows(tab)) == 3
        tab.click("text=Jump to now")
        until(tab, lambda: len(rows(tab)) == 4)

        # Runs, with recovery and sparks; the run; a call that was refused.
        visit(tab, served, "/runs", ".spark rect")
        until(tab, lambda: "100 %" in rows(tab)[0])
        assert [acme.run_id in row for row in rows(tab)] == [True]
        tab.click(ROW)
        tab.wait_for_url("**/run?run=*")
        tab.wait_for_selector(f"{ROW} >> text=ops/deploy")
        assert tab.locator("text=Stop this run").count() == 0 and "running" in tab.inner_text(".facts")
        tab.click(f"{ROW} >> text=block")
        tab.wait_for_url("**/call?*")
        tab.wait_for_selector("text=Neither the collector nor this machine")
        told = tab.inner_text("main")
        assert "BLOCK by rule deny-writes" in told and "Let it through" not in told
        assert "Copy as sub show" in told and "Copy as sub policy explain" not in told
        if AXE.exists():
            # The policy of the page lets no script in but its own: the checker comes through the debugger.
            tab.context.new_cdp_session(tab).send("Runtime.evaluate", {"expression": AXE.read_text()})
            found = tab.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag22aa', 'best-practice']})")["violations"]
            assert [each["id"] for each in found] == []
        tab.set_viewport_size({"width": 320, "height": 640})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 320
        tab.set_viewport_size({"width": 1280, "height": 800})

        # What only a machine knows: neither by its address nor by keys; another's run is not there.
        visit(tab, served, "/policy", "[role=alert]")
        assert "known to the machine itself" in tab.inner_text("main")
        tab.keyboard.press("g")
        tab.keyboard.press("t")
        assert tab.url.endswith("/policy")
        visit(tab, served, f"/run?run={umbra.run_id}", "[role=alert]")
        assert "There is no run" in tab.inner_text("main")


def test_a_collector_that_goes_is_a_sentence_and_its_calls_stay(
    fleet: CollectorProcess, browser: Any, tmp_path: Path
) -> None:
    tenant = Tenant(fleet, tmp_path, "initech", 3)
    with looking(fleet, tenant, tmp_path / "page", browser) as (tab, _):
        fleet.kill()
        tab.wait_for_selector(".state.away")
        tab.wait_for_selector("[role=alert] >> text=cannot be reached")
        assert len(rows(tab)) == 3
        fleet.start()
        tab.wait_for_selector(".state.live")
        until(tab, lambda: tab.locator("[role=alert]").count() == 0)
        tenant.ship(tenant.maker.call(tool="afterwards"))
        until(tab, lambda: "afterwards" in rows(tab)[0])

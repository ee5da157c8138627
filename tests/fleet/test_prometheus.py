"""Debian's Prometheus reads `/metrics` of ledgerd, with its token, and of a collector, where it is served."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.collector import CollectorProcess, collector, segment_of
from harness.ledger import EventMaker, ledgerd, spool_of
from harness.ports import free_port
from harness.waiting import wait_for

SCRAPE = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: subluminal
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


COLLECTOR = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: collector
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@contextmanager
def prometheus(directory: Path, scraping: str) -> Iterator[Callable[[str], float | None]]:
    """One that runs with this configuration; what it answers to a query."""
    config, port = directory / "prometheus.yml", free_port()
    config.write_text(scraping)
    data = f"--storage.tsdb.path={directory / 'tsdb'}"
    command = ["prometheus", f"--config.file={config}", data, f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def value(query: str) -> float | None:
        address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                found = json.loads(answer.read())["data"]["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None

    try:
        yield value
    finally:
        process.terminate()
        process.wait(30)


class Served:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = int(re.search(r"HTTP on 127\.0\.0\.1:(\d+)", (home / "ledgerd.log").read_text())[1])  # type: ignore[index]
        self.token = (home / "http_token").read_text().strip()

    def ask(self, token: str | None = None, **headers: str) -> tuple[int, str]:
        sent = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/metrics", headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def record(self, shim: str, lines: list[bytes]) -> None:
        journal = spool_of(self.home) / f"{shim}.jsonl"
        journal.write_bytes(b"".join(line + b"\n" for line in lines))
        wait_for(lambda: not journal.exists(), what="the journal to be taken in")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    home = tmp_path / "home"
    spool_of(home)
    with ledgerd(home, "--http", "127.0.0.1:0"):
        wait_for(lambda: (home / "ledgerd.log").exists() and "HTTP on" in (home / "ledgerd.log").read_text())
        yield Served(home)


def a_run(shim: str) -> list[bytes]:
    maker = EventMaker(f"run-of-{shim}", shim)
    timeout = {"class": "timeout", "message": "nobody answered"}
    lines = [maker.run_start(), *maker.call(), *maker.call(), *maker.call("BLOCK")]
    return [*lines, maker.start(), maker.decision(), maker.end("TIMEOUT", error=timeout), maker.run_end()]


def test_what_is_decided_while_it_serves_is_counted_by_decision_and_class(served: Served) -> None:
    assert 'subluminal_calls_total{decision="ALLOW"} 0' in served.ask()[1]
    served.record("shim-1", a_run("shim-1"))
    status, text = served.ask()
    lines = text.splitlines()
    assert status == 200
    assert (
        'subluminal_calls_total{decision="ALLOW"} 3' in lines and 'subluminal_calls_total{decision="BLOCK"} 1' in lines
    )
    assert 'subluminal_errors_total{class="timeout"} 1' in lines
    assert 'mcp_client_operation_duration_seconds_count{mcp_method_name="tools/call"} 2' in lines
    assert 'mcp_client_operation_duration_seconds_bucket{mcp_method_name="tools/call",le="0.01"} 2' in lines
    assert {"subluminal_ingest_lag_bytes 0", "subluminal_spool_bytes 0", "subluminal_rejected_lines 0"} < set(lines)
    assert not re.search(r"run-of|shim-1|repo-fixer|git_status", text)
    assert served.ask()[1] == text, "looking again counts nothing twice"


def test_a_line_that_is_no_event_and_a_journal_that_waits_are_seen(served: Served) -> None:
    served.record("shim-1", [b"this is no event"])
    assert "subluminal_rejected_lines 1" in served.ask()[1].splitlines()


def test_it_is_answered_as_the_other_routes_are(served: Served) -> None:
    assert served.ask(token="wrong")[0] == 401
    assert served.ask(Host="evil.example")[0] == 421
    assert served.ask(Origin="http://evil.example")[0] == 403
    assert served.ask(**{"Sec-Fetch-Site": "same-site"})[0] == 403


def test_a_machine_that_has_joined_no_fleet_has_no_figures_of_one(served: Served) -> None:
    assert not re.search("snapshot|stop|unacked", served.ask()[1])


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's prometheus is not installed")
def test_prometheus_scrapes_it_with_the_token_and_knows_every_series(served: Served, tmp_path: Path) -> None:
    with prometheus(tmp_path, SCRAPE.format(token=served.home / "http_token", port=served.port)) as value:
        wait_for(lambda: value('subluminal_calls_total{decision="ALLOW"}'), enough=lambda seen: seen == 0)
        served.record("shim-1", a_run("shim-1"))
        wait_for(lambda: value("sum(subluminal_calls_total)"), enough=lambda seen: seen == 4)
        assert value("up") == 1
        assert value('subluminal_errors_total{class="policy_block"}') == 1
        assert value("sum(mcp_client_operation_duration_seconds_count)") == 3
        assert value("histogram_quantile(0.5, mcp_client_operation_duration_seconds_bucket)") is not None
        assert value("scrape_samples_scraped") == value("scrape_samples_post_metric_relabeling")


@pytest.fixture
def fleet(one_store: str, tmp_path: Path) -> Iterator[tuple[CollectorProcess, int]]:
    """A collector that has taken a run of each of two tenants, and the port of its metrics."""
    port = free_port()
    with collector(tmp_path / "collector", one_store, "--metrics-listen", f"127.0.0.1:{port}") as process:
        for tenant in ("acme", "other"):
            lines = a_run("shim-1")
            assert process.send(segment_of(lines, "run-of-shim-1", "shim-1"), process.token(tenant, "m1")) == 200
        yield process, port


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's prometheus is not installed")
def test_prometheus_scrapes_a_collector_where_its_metrics_are_served(
    fleet: tuple[CollectorProcess, int], tmp_path: Path
) -> None:
    with prometheus(tmp_path, COLLECTOR.format(port=fleet[1])) as value:
        wait_for(lambda: value("sum(subluminal_collector_events_total)"), enough=lambda seen: seen == 28)
        assert value("up") == 1
        assert value('subluminal_collector_events_total{tenant="other"}') == 14
        assert value('subluminal_collector_segments_total{outcome="acked"}') == 2
        assert value('sum(subluminal_calls_total{decision="BLOCK"})') == 2
        assert value("histogram_quantile(0.5, subluminal_collector_commit_seconds_bucket)") is not None
        assert value("scrape_samples_scraped") == value("scrape_samples_post_metric_relabeling")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's promtool is not installed")
def test_promtool_has_nothing_to_say_about_the_page_of_a_collector(fleet: tuple[CollectorProcess, int]) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{fleet[1]}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=page, capture_output=True, encoding="utf-8", check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_collector_whose_metrics_have_a_listener_of_their_own_names_no_tenant_to_those_who_send(
    fleet: tuple[CollectorProcess, int],
) -> None:
    process, port = fleet
    assert process.ask("/metrics")[0] == 404
    assert process.ask("/health")[0] == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/cursor?run_id=a&shim_id=b", timeout=30)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's promtool is not installed")
def test_promtool_has_nothing_to_say_about_the_page(served: Served) -> None:
    served.record("shim-1", a_run("shim-1"))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=served.ask()[1], capture_output=True, encoding="utf-8", check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")

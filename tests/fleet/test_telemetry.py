"""OpenTelemetry out of the ledger: names of the conventions, ids that stay, and never what a call was about."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason="opentelemetry-proto is not installed (make test-fleet)")

from harness.ledger import EventMaker, ledgerd, spool_of, sub_environment
from harness.otlp import Receiver, attributes, receiver
from harness.ports import nobody_listens
from harness.waiting import wait_for
from subluminal.contracts.errors import ConfigError
from subluminal.fleet.telemetry.exporting import Place, batches
from subluminal.fleet.telemetry.ids import call_span_id, is_sampled, parent_of, run_span_id, trace_id
from subluminal.fleet.telemetry.sending import Later, NotTaken
from subluminal.fleet.telemetry.settings import Settings, read_settings
from subluminal.fleet.telemetry.task import Telemetry
from subluminal.ledger.read.ledger import open_ledger

SECRET = "sk-live-4711-in-an-argument"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def lines_of_a_run(maker: EventMaker) -> list[bytes]:
    upstream = {"class": "upstream_error", "message": SECRET, "code": -32602}
    is_error = {"class": "upstream_error", "message": SECRET}
    return [
        maker.run_start(),
        *(maker.start(preview=SECRET), maker.decision(), maker.end(preview=SECRET)),
        *(
            maker.start("git_push"),
            maker.decision("BLOCK", explain={"summary": SECRET, "reason_code": "DENYLIST_MATCH"}),
        ),
        maker.end("ERROR", error={"class": "policy_block", "message": SECRET}),
        *(maker.start("git_log"), maker.decision(), maker.end("ERROR", error=upstream)),
        *(maker.start("git_show"), maker.decision(), maker.end("ERROR", error=is_error)),
        *(maker.start("git_tag", call_context={"traceparent": TRACEPARENT, "callId": "toolu_1"}), maker.decision()),
        maker.end(),
        *(maker.start("Bash", "builtin", transport="hook"), maker.decision(), maker.end()),
        *(maker.start("never_ends"), maker.decision()),
        maker.run_end(),
    ]


def record(home: Path, lines: list[bytes], shim: str = "shim-1") -> None:
    (spool_of(home) / f"{shim}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    with ledgerd(home):
        wait_for(lambda: not list((home / "spool").glob("*.jsonl")), what="the journal to be taken in")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    record(place, lines_of_a_run(EventMaker("run-1", "shim-1")))
    monkeypatch.setenv("SUB_HOME", str(place))
    return place


@pytest.fixture
def sink() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def export(home: Path, sink: Receiver, **settings: Any) -> int:
    found = Settings(sink.endpoint, {}, **settings)
    return sum(batch.size for batch, _ in batches(str(home), found, from_start=True))


def place(home: Path) -> int | None:
    with open_ledger(str(home / "ledger.db")) as ledger:
        return Place(str(home)).read(ledger)


def by_name(sink: Receiver) -> dict[str, Any]:
    return {span.name: span for span in sink.spans()}


def test_each_call_that_ended_is_a_span_by_the_names_of_the_conventions(home: Path, sink: Receiver) -> None:
    assert export(home, sink) == 7  # six calls that ended, and the run
    span = by_name(sink)["tools/call git_status"]
    assert span.kind == span.SPAN_KIND_CLIENT and span.status.code == 0
    told = attributes(span)
    assert told["mcp.method.name"] == "tools/call" and told["gen_ai.operation.name"] == "execute_tool"
    assert told["gen_ai.tool.name"] == "git_status" and told["network.transport"] == "pipe"
    assert told["subluminal.server.name"] == "git" and told["subluminal.decision"] == "ALLOW"
    assert "error.type" not in told and "security_rule.name" not in told
    assert span.end_time_unix_nano > span.start_time_unix_nano > 1_700_000_000 * 10**9
    assert "tools/call never_ends" not in by_name(sink)


def test_a_refusal_names_its_rule_and_policy_and_an_error_its_type(home: Path, sink: Receiver) -> None:
    export(home, sink)
    spans = by_name(sink)
    refused = attributes(spans["tools/call git_push"])
    assert (refused["security_rule.name"], refused["security_rule.ruleset.name"]) == ("deny-writes", "team-default")
    assert refused["security_rule.version"] == "1.2.0" and refused["error.type"] == "DENYLIST_MATCH"
    assert spans["tools/call git_push"].status.code == spans["tools/call git_push"].status.STATUS_CODE_ERROR
    answered = attributes(spans["tools/call git_log"])
    assert (answered["error.type"], answered["rpc.response.status_code"]) == ("-32602", "-32602")
    assert attributes(spans["tools/call git_show"])["error.type"] == "tool_error"


def test_a_call_of_a_client_itself_is_no_call_of_mcp(home: Path, sink: Receiver) -> None:
    export(home, sink)
    span = by_name(sink)["execute_tool Bash"]
    assert span.kind == span.SPAN_KIND_INTERNAL and "mcp.method.name" not in attributes(span)


def test_the_run_is_the_parent_unless_the_client_named_one(home: Path, sink: Receiver) -> None:
    export(home, sink)
    spans = by_name(sink)
    run = spans["invoke_agent repo-fixer"]
    assert (run.trace_id, run.span_id, run.parent_span_id) == (trace_id("run-1"), run_span_id("run-1"), b"")
    own = spans["tools/call git_status"]
    assert (own.trace_id, own.parent_span_id) == (run.trace_id, run.span_id)
    told = spans["tools/call git_tag"]
    assert told.trace_id.hex() == TRACEPARENT[3:35] and told.parent_span_id.hex() == TRACEPARENT[36:52]
    assert attributes(told)["gen_ai.tool.call.id"] == "toolu_1"


def test_what_is_sent_twice_is_the_same_spans(home: Path, sink: Receiver) -> None:
    export(home, sink)
    export(home, sink)
    first, again = (sink.spans()[:7], sink.spans()[7:])
    assert [span.SerializeToString() for span in first] == [span.SerializeToString() for span in again]
    assert len({span.span_id for span in first}) == 7


def test_nothing_of_arguments_results_or_texts_leaves(home: Path, sink: Receiver) -> None:
    export(home, sink)
    assert SECRET.encode() not in sink.everything() and b"Writes are denied" not in sink.everything()
    with open_ledger(str(home / "ledger.db")) as ledger:
        hashes = {row["args_hash"].encode() for row in ledger.calls().rows}
    assert hashes and not any(one in sink.everything() for one in hashes)


def test_a_home_that_never_exported_begins_with_what_comes_next(home: Path, sink: Receiver) -> None:
    settings = Settings(sink.endpoint, {})
    assert list(batches(str(home), settings)) == [] and sink.requests == []
    record(home, EventMaker("run-2", "shim-2").whole_run(2), "shim-2")
    assert sum(batch.size for batch, _ in batches(str(home), settings)) == 3
    assert list(batches(str(home), settings)) == []


def sent(home: Path, sink: Receiver) -> int:
    return sum(batch.size for batch, _ in batches(str(home), Settings(sink.endpoint, {})))


def test_a_ledger_that_was_replaced_has_no_place_yet(home: Path, sink: Receiver) -> None:
    assert export(home, sink) == 7 and sent(home, sink) == 0
    (home / "ledger.db").rename(home / "ledger.old")
    record(home, EventMaker("run-2", "shim-2").whole_run(2), "shim-2")
    assert place(home) == 0
    assert sent(home, sink) == 3, "two calls and their run, although the other ledger had come further"
    assert sent(home, sink) == 0


def test_a_ledger_that_was_put_back_from_a_copy_has_no_place_yet(home: Path, sink: Receiver) -> None:
    copy = home / "ledger.copy"
    shutil.copyfile(home / "ledger.db", copy)
    record(home, EventMaker("run-2", "shim-2").whole_run(2), "shim-2")
    assert export(home, sink) == 10
    kept = os.stat(home / "ledger.db").st_ino
    shutil.copyfile(copy, home / "ledger.db")
    assert os.stat(home / "ledger.db").st_ino == kept, "it is the same file by its number"
    assert place(home) == 0
    record(home, EventMaker("run-3", "shim-3").whole_run(1), "shim-3")
    assert sent(home, sink) == 9, "all that is in it"
    assert sent(home, sink) == 0


def test_a_receiver_that_is_away_or_busy_is_asked_again_and_gets_everything_once(home: Path, sink: Receiver) -> None:
    with open_ledger(str(home / "ledger.db")) as ledger:
        Place(str(home)).write(0, ledger)
    with nobody_listens() as port, pytest.raises(Later):
        list(batches(str(home), Settings(f"http://127.0.0.1:{port}", {})))
    sink.answers = [(503, {"Retry-After": "7"}), (429, {}), (302, {"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(Later) as busy:
        list(batches(str(home), Settings(sink.endpoint, {})))
    assert busy.value.seconds == 7 and place(home) == 0
    with pytest.raises(Later):
        list(batches(str(home), Settings(sink.endpoint, {})))
    with pytest.raises(NotTaken):  # a redirect is not followed, and will not be answered otherwise the next time
        list(batches(str(home), Settings(sink.endpoint, {})))
    assert sink.spans() == [] and place(home) != 0


def test_sampling_keeps_whole_traces_and_whatever_was_refused_or_failed(home: Path, sink: Receiver) -> None:
    export(home, sink, sample=0.0)
    assert set(by_name(sink)) == {
        "invoke_agent repo-fixer", "tools/call git_push", "tools/call git_log", "tools/call git_show"
    }  # fmt: skip
    kept = sum(is_sampled(trace_id(f"run-{number}"), 0.25) for number in range(4000))
    assert 900 < kept < 1100


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        7,
        "",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        TRACEPARENT.upper(),
        TRACEPARENT + "-x",
        "ff" + TRACEPARENT[2:],
    ],
)
def test_a_traceparent_that_is_none_is_left_out(traceparent: object) -> None:
    assert parent_of("run-1", traceparent) == (trace_id("run-1"), run_span_id("run-1"))


def test_ids_of_different_calls_differ_however_their_names_are_cut() -> None:
    assert call_span_id("run", "s1", "2") != call_span_id("run", "s", "12") != call_span_id("runs", "", "12")


def test_the_task_is_off_by_default_and_sends_spans_and_figures_where_it_is_told(
    home: Path, sink: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Telemetry(str(home))
    assert task.step() > 10 and sink.requests == [] and not (home / "fleet").exists()
    monkeypatch.setenv("SUB_TELEMETRY_ENDPOINT", sink.endpoint)
    task.step()
    record(home, lines_of_a_run(EventMaker("run-2", "shim-2")), "shim-2")
    task._metrics_at = 0.0
    assert task.step() < 10
    assert len(sink.spans()) == 7 and task.facts()["spans_sent"] == 7
    metrics = sink.metrics()
    calls = {
        attributes(point)["subluminal.decision"]: point.as_double
        for point in metrics["subluminal.calls"].sum.data_points
    }
    assert calls["ALLOW"] == 6 and calls["BLOCK"] == 1 and metrics["subluminal.calls"].sum.is_monotonic
    errors = {
        attributes(point)["subluminal.class"]: point.as_double for point in metrics["subluminal.errors"].sum.data_points
    }
    assert (errors["policy_block"], errors["upstream_error"]) == (1, 2)
    took = {
        attributes(point).get("error.type", ""): point
        for point in metrics["mcp.client.operation.duration"].histogram.data_points
    }
    assert took[""].count == 2 and sum(took[""].bucket_counts) == 2 and took[""].sum == pytest.approx(0.006)
    assert metrics["subluminal.ingest.lag"].gauge.data_points[0].as_double == 0


def test_no_figure_has_a_run_an_agent_or_a_pod_in_it(
    home: Path, sink: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUB_TELEMETRY_ENDPOINT", sink.endpoint)
    task = Telemetry(str(home))
    task.step()
    sent = b"".join(body for path, _, body in sink.requests if path == "/v1/metrics")
    assert sent and not any(word in sent for word in (b"run-1", b"repo-fixer", b"shim-1", b"git_status"))


def test_headers_come_from_variables_and_faults_in_settings_are_sentences(home: Path) -> None:
    config = home / "config.toml"
    config.write_text(
        '[telemetry]\nendpoint = "http://127.0.0.1:4318/"\nheader_env = {Authorization = "OTLP_AUTH"}\nsample = 0.5\n'
    )
    environ = {"SUB_HOME": str(home), "OTLP_AUTH": "Bearer x"}
    assert read_settings(environ) == ("http://127.0.0.1:4318", {"Authorization": "Bearer x"}, 60.0, 0.5)
    assert read_settings({"SUB_HOME": str(home.parent)}) is None
    for text in (
        'endpoint = "ftp://x"',
        'endpoint = "http://u:p@x/"',
        'endpoint = "http://x"\nsample = 2',
        "other = 1",
    ):
        config.write_text(f"[telemetry]\n{text}\n")
        with pytest.raises(ConfigError) as fault:
            read_settings(environ)
        assert "u:p" not in str(fault.value)
    with pytest.raises(ConfigError):
        config.write_text('[telemetry]\nendpoint = "http://x"\nheader_env = {A = "NOT_SET"}\n')
        read_settings(environ)


def test_a_broken_telemetry_table_keeps_no_shim_from_its_work(home: Path) -> None:
    from subluminal.host.config import load_config

    (home / "config.toml").write_text("[telemetry]\nnonsense = 1\n")
    load_config({"SUB_HOME": str(home)}, str(home))


def run_sub(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subluminal", "fleet", "telemetry", *words],
        env=sub_environment(home),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_the_command_shows_what_it_would_send_sends_it_and_says_so(home: Path, sink: Receiver) -> None:
    off = run_sub(home, "--from-start")
    assert off.returncode == 2 and "off" in off.stderr and "Traceback" not in off.stderr
    shown = [json.loads(line) for line in run_sub(home, "--dry-run", "--from-start").stdout.splitlines()]
    assert len(shown) == 7 and {"tools/call git_push"} < {span["name"] for span in shown}
    sent = run_sub(home, "--endpoint", sink.endpoint, "--from-start", "--json")
    assert json.loads(sent.stdout) == {"sent": 7, "refused": 0, "left_out": 0}, sent.stderr
    assert {span.span_id.hex() for span in sink.spans()} == {span["span_id"] for span in shown}
    sink.not_taken = 2
    again = run_sub(home, "--endpoint", sink.endpoint, "--from-start")
    assert again.returncode == 1 and "did not take 2" in again.stderr


def test_a_process_that_does_not_export_loads_nothing_of_it(home: Path) -> None:
    code = (
        "import sys\nfrom subluminal.fleet.telemetry.standing import fleet_figures\n"
        "import subluminal.adapters.stdio.shim, subluminal.ledger.http.api\n"
        "assert fleet_figures(sys.argv[1]) == []\n"
        "loaded = [name for name in sys.modules if name.startswith(('opentelemetry', 'google.protobuf'))]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code, str(home)], env={**os.environ}, check=True, timeout=60)

"""What has ended since a place in the ledger's order of arrival, as spans; and batches of them to the receiver.

The place is kept in `$SUB_HOME/fleet/telemetry.json` and moves after the receiver has answered. Killed in between, the
same spans are sent again under the same ids. It belongs to one ledger: where that was replaced or put back from a copy,
all that is in it now is sent, for nobody knows what of it was, and what was is the same span.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from subluminal import __version__
from subluminal.fleet.shipping.progress import ledger_name
from subluminal.fleet.telemetry.ids import is_sampled
from subluminal.fleet.telemetry.sending import NotTaken, post
from subluminal.host.files import read_private, replace_file
from subluminal.host.home import ensure_private_dir, ledger_db, telemetry_file
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.store.lines import arrivals, belongs_here, head_at, newest_arrival

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from subluminal.fleet.telemetry.settings import Settings

# Events looked at for one batch: about a third of them end a call, and a span has half a kilobyte.
LOOK_EVENTS = 1_500
SCOPE = "subluminal"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"


class _Source(msgspec.Struct):
    host_id: str
    shim_id: str


class _Event(msgspec.Struct):
    type: str
    run_id: str
    source: _Source
    call: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class Batch(NamedTuple):
    """`after`: the place that is reached with it. `left_out`: calls that were not sampled."""

    spans: dict[str, list[Span]]  # by host_id
    after: int
    left_out: int

    @property
    def size(self) -> int:
        return sum(map(len, self.spans.values()))


def next_batch(ledger: Ledger, after: int, sample: float) -> Batch | None:
    """None: nothing has arrived."""
    from subluminal.fleet.telemetry.spans import call_span, run_span

    found = arrivals(ledger.connection, after, LOOK_EVENTS)
    if not found:
        return None
    spans: dict[str, list[Span]] = {}
    runs: dict[str, str] = {}
    left_out = 0
    for _, line in found:
        event = _decode(line)
        if event.type == "run_end":
            runs[event.run_id] = event.source.host_id
        elif event.type == "tool_call_end":
            call = _ended_call(ledger, event)
            if call is None:
                continue
            span = call_span(call)
            if _is_wanted(call, span.trace_id, sample):
                spans.setdefault(event.source.host_id, []).append(span)
            else:
                left_out += 1
    for run_id, host_id in runs.items():
        run = _ended_run(ledger, run_id)
        if run is not None:
            spans.setdefault(host_id, []).append(run_span(run))
    return Batch(spans, found[-1][0], left_out)


def _is_wanted(call: dict[str, Any], trace: bytes, sample: float) -> bool:
    return call["decision"] != "ALLOW" or call["status"] != "OK" or is_sampled(trace, sample)


def _ended_call(ledger: Ledger, event: _Event) -> dict[str, Any] | None:
    """None: it was pruned meanwhile, is another producer's, or another door's stands for it."""
    call_id = event.call.get("call_id") if isinstance(event.call, dict) else None
    sql = (
        "SELECT 1 FROM tool_calls c JOIN producers p USING (producer_no) WHERE c.call_id = ? AND c.run_id = ?"
        " AND p.shim_id = ? AND c.ended_at IS NOT NULL AND c.id NOT IN (SELECT id FROM joined WHERE run_id = ?)"
    )
    words = (call_id, event.run_id, event.source.shim_id, event.run_id)
    if ledger.connection.execute(sql, words).fetchone() is None:
        return None
    return ledger.call(str(call_id), event.run_id, event.source.shim_id)


def _ended_run(ledger: Ledger, run_id: str) -> dict[str, Any] | None:
    if ledger.connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        return None
    run = ledger.run(run_id)
    return run if run["ended_at"] is not None else None


def resource(host_id: str) -> Any:
    """`service.instance.id` keeps the streams of two machines apart, as OTLP asks."""
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    from subluminal.fleet.telemetry.spans import attributes

    told = {"service.name": SCOPE, "service.version": __version__, "service.instance.id": host_id}
    return Resource(attributes=attributes(told))


def traces_request(batch: Batch) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

    scope = InstrumentationScope(name=SCOPE, version=__version__)
    groups = [
        ResourceSpans(
            resource=resource(host_id),
            scope_spans=[ScopeSpans(scope=scope, spans=spans, schema_url=SCHEMA_URL)],
            schema_url=SCHEMA_URL,
        )
        for host_id, spans in batch.spans.items()
    ]
    return bytes(ExportTraceServiceRequest(resource_spans=groups).SerializeToString())


def send_traces(settings: Settings, batch: Batch) -> int:
    """How many the receiver says it did not take."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if not batch.spans:
        return 0
    answer = post(settings.endpoint, "/v1/traces", traces_request(batch), settings.headers)
    return int(_read(ExportTraceServiceResponse, answer).partial_success.rejected_spans)


def _read(kind: Any, raw: bytes) -> Any:
    """Some receivers answer with JSON, or with a page: what they say is then not known."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(raw)
    except DecodeError:
        return kind()


class Place:
    """How far was exported; `home` is absolute."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = telemetry_file(home)

    def read(self, ledger: Ledger) -> int | None:
        """None: nothing was ever exported from here, or what is written there is not ours."""
        try:
            kept = json.loads(read_private(self._path, 1024))
            after, of, head = kept["after"], kept["ledger"], kept["head"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(after, int) or after < 0:
            return None
        is_ours = of == ledger_name(self._home) and belongs_here(ledger.connection, after, head)
        return after if is_ours else 0

    def write(self, after: int, ledger: Ledger) -> None:
        ensure_private_dir(os.path.dirname(self._path), self._home)
        kept = {"after": after, "ledger": ledger_name(self._home), "head": head_at(ledger.connection, after)}
        replace_file(self._path, json.dumps(kept).encode())


def look(home: str, sample: float, *, from_start: bool = False) -> Iterator[Batch]:
    """What `batches` would send."""
    with open_ledger(ledger_db(home)) as ledger:
        after = 0 if from_start else Place(home).read(ledger)
        after = newest_arrival(ledger.connection) if after is None else after
        while (batch := next_batch(ledger, after, sample)) is not None:
            after = batch.after
            yield batch


def batches(home: str, settings: Settings, *, from_start: bool = False) -> Iterator[tuple[Batch, int]]:
    """Send everything that has ended since the last time; each batch, with how many of it were not taken.

    A home that has never exported begins with what comes next: a receiver has no use for last year's calls.
    """
    place = Place(home)
    with open_ledger(ledger_db(home)) as ledger:
        after = 0 if from_start else place.read(ledger)
        if after is None:
            after = newest_arrival(ledger.connection)
            place.write(after, ledger)
        while (batch := next_batch(ledger, after, settings.sample)) is not None:
            try:
                refused = send_traces(settings, batch)
            except NotTaken:
                place.write(batch.after, ledger)  # the same again would be refused again
                raise
            place.write(batch.after, ledger)
            after = batch.after
            yield batch, refused

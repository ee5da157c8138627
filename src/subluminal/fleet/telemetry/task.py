"""The keeper's task: spans as calls end, figures each `metrics_every_s`."""

from __future__ import annotations

import os
from time import monotonic, time_ns
from typing import Any

from subluminal import __version__
from subluminal.contracts.figures import Reading
from subluminal.fleet.extras import require_extra
from subluminal.fleet.telemetry.exporting import SCHEMA_URL, SCOPE, batches, resource
from subluminal.fleet.telemetry.sending import Later, post
from subluminal.fleet.telemetry.settings import Settings, read_settings
from subluminal.fleet.telemetry.standing import fleet_figures
from subluminal.host.identity import host_id
from subluminal.ledger.read.figures import Watch
from subluminal.ledger.store.schema import NoLedger

LOOK_S = 2.0
OFF_S = 60.0


class Telemetry:
    """Settings are read at each step: telemetry is turned on and off while the keeper runs."""

    name = "telemetry"

    def __init__(self, home: str) -> None:
        self._home = home
        self._watch: Watch | None = None
        self._began_ns = 0
        self._metrics_at = 0.0
        self.spans_sent = 0
        self.spans_refused = 0
        self.said: str | None = None  # why nothing was taken the last time

    def step(self) -> float:
        """Seconds until it wants to run again. Raises what the keeper is to write down."""
        settings = read_settings({**os.environ, "SUB_HOME": self._home})
        if settings is None:
            self._watch = None
            return OFF_S
        require_extra("opentelemetry.proto")
        self.said = None
        try:
            self._export(settings)
        except Later as later:
            self.said = str(later)
            return later.seconds
        except NoLedger:
            return LOOK_S
        return LOOK_S

    def facts(self) -> dict[str, Any]:
        return {"spans_sent": self.spans_sent, "spans_refused": self.spans_refused, "waiting": self.said}

    def _export(self, settings: Settings) -> None:
        if self._watch is None:
            self._watch, self._began_ns = Watch(self._home), time_ns()
        for batch, refused in batches(self._home, settings):
            self.spans_sent += batch.size - refused
            self.spans_refused += refused
        if monotonic() >= self._metrics_at:
            send_metrics(settings, [*self._watch.look(), *fleet_figures(self._home)], self._began_ns)
            self._metrics_at = monotonic() + settings.metrics_every_s


def send_metrics(settings: Settings, readings: list[Reading], began_ns: int) -> None:
    body = metrics_request(readings, began_ns, time_ns())
    post(settings.endpoint, "/v1/metrics", body, settings.headers)


def metrics_request(readings: list[Reading], began_ns: int, now_ns: int) -> bytes:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics, ScopeMetrics

    from subluminal.fleet.telemetry.points import metrics_of

    scope = InstrumentationScope(name=SCOPE, version=__version__)
    own = ScopeMetrics(scope=scope, metrics=metrics_of(readings, began_ns, now_ns), schema_url=SCHEMA_URL)
    whole = ResourceMetrics(resource=resource(host_id()), scope_metrics=[own], schema_url=SCHEMA_URL)
    return bytes(ExportMetricsServiceRequest(resource_metrics=[whole]).SerializeToString())

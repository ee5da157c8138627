"""The figures that are watched, as OTLP metrics: cumulative from when whoever counts began."""

from __future__ import annotations

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from subluminal.fleet.telemetry.spans import attributes
from subluminal.ledger.read.figures import Figure, Figures
from subluminal.ledger.read.tally import BOUNDS_S, Durations


def metrics_of(watched: Figures, began_ns: int, now_ns: int) -> list[Metric]:
    found = [_metric(figure, began_ns, now_ns) for figure in watched.figures]
    if watched.durations:
        points = [_durations(error, one, began_ns, now_ns) for error, one in sorted(watched.durations.items())]
        whole = Histogram(data_points=points, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
        found.append(Metric(name="mcp.client.operation.duration", unit="s", histogram=whole))
    return found


def _metric(figure: Figure, began_ns: int, now_ns: int) -> Metric:
    is_count = figure.kind == "count"
    points = [
        NumberDataPoint(
            attributes=attributes({f"subluminal.{name}": value for name, value in labels}),
            start_time_unix_nano=began_ns if is_count else 0,
            time_unix_nano=now_ns,
            as_double=value,
        )
        for labels, value in figure.points
    ]
    metric = Metric(name=figure.name, description=figure.about, unit=figure.unit)
    if is_count:
        metric.sum.CopyFrom(
            Sum(data_points=points, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE, is_monotonic=True)
        )
    else:
        metric.gauge.CopyFrom(Gauge(data_points=points))
    return metric


def _durations(error: str, durations: Durations, began_ns: int, now_ns: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=attributes({"mcp.method.name": "tools/call", "error.type": error or None}),
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=durations.count,
        sum=durations.sum_s,
        bucket_counts=durations.counts,
        explicit_bounds=BOUNDS_S,
    )

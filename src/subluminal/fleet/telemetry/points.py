"""The figures that are watched, as OTLP metrics: cumulative from when whoever counts began."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from subluminal.contracts.figures import Histogram, Labels, Reading
from subluminal.fleet.telemetry.spans import attributes

_CUMULATIVE = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE


def metrics_of(readings: list[Reading], began_ns: int, now_ns: int) -> list[otlp.Metric]:
    return [_metric(reading, began_ns, now_ns) for reading in readings]


def _metric(reading: Reading, began_ns: int, now_ns: int) -> otlp.Metric:
    figure = reading.figure
    began = 0 if figure.kind == "gauge" else began_ns
    points = [_point(labels, value, began, now_ns) for labels, value in reading.points]
    metric = otlp.Metric(name=figure.name, description=figure.about, unit=figure.unit)
    if figure.kind == "histogram":
        metric.histogram.CopyFrom(otlp.Histogram(data_points=points, aggregation_temporality=_CUMULATIVE))
    elif figure.kind == "count":
        whole = otlp.Sum(data_points=points, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
        metric.sum.CopyFrom(whole)
    else:
        metric.gauge.CopyFrom(otlp.Gauge(data_points=points))
    return metric


def _point(
    labels: Labels, value: float | Histogram, began_ns: int, now_ns: int
) -> otlp.NumberDataPoint | otlp.HistogramDataPoint:
    point: otlp.NumberDataPoint | otlp.HistogramDataPoint
    if isinstance(value, Histogram):
        point = otlp.HistogramDataPoint(count=sum(value.counts), sum=value.sum, bucket_counts=value.counts)
        point.explicit_bounds.extend(value.bounds)
    else:
        point = otlp.NumberDataPoint(as_double=value)
    point.attributes.extend(_attributes(labels))
    point.start_time_unix_nano, point.time_unix_nano = began_ns, now_ns
    return point


def _attributes(labels: Labels) -> list[KeyValue]:
    return attributes({name if "." in name else f"subluminal.{name}": value for name, value in labels})

"""A span for a person who asks what would be sent: OTLP's own JSON, attributes as one object."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

_KINDS = {Span.SPAN_KIND_CLIENT: "client", Span.SPAN_KIND_INTERNAL: "internal"}


def span_facts(span: Span) -> dict[str, Any]:
    return {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex() or None,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "start_time_unix_nano": span.start_time_unix_nano,
        "end_time_unix_nano": span.end_time_unix_nano,
        "error": span.status.code == Status.STATUS_CODE_ERROR,
        "attributes": {one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in span.attributes},
    }

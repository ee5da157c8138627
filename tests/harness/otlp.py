"""A receiver of OTLP over HTTP: decodes what it is sent with OpenTelemetry's own messages, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver:
    """`answers` are given to the next requests, one each: (status, headers). Then 200."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.not_taken = 0

    def spans(self) -> list[Any]:
        found = (ExportTraceServiceRequest.FromString(body) for path, _, body in self.requests if path == "/v1/traces")
        return [
            span for one in found for group in one.resource_spans for scope in group.scope_spans for span in scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        """The newest of each name."""
        found = (
            ExportMetricsServiceRequest.FromString(body) for path, _, body in self.requests if path == "/v1/metrics"
        )
        return {
            metric.name: metric
            for one in found
            for group in one.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        }

    def everything(self) -> bytes:
        return b"".join(body for _, _, body in self.requests)


def attributes(message: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in message.attributes}


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = found.answers.pop(0) if found.answers else (200, {})
            if status == 200:
                body = gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw
                found.requests.append((self.path, dict(self.headers), body))
            answer = ExportTraceServiceResponse()
            answer.partial_success.rejected_spans = found.not_taken
            told = answer.SerializeToString() if self.path == "/v1/traces" else b""
            self.send_response(status)
            for name, value in {"Content-Length": str(len(told)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

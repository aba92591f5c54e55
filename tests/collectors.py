"""A collector of traces for tests: it takes OTLP over HTTP, and decodes it with the protocol's own classes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What has come, also what was answered with `status` other than 200 afterwards."""

    url: str = ""
    status: int = 200
    refused: bytes = b""
    """A trace id; a request with it gets 400."""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they came."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        scopes = (scope for request in requests for of in request.resource_spans for scope in of.scope_spans)
        return [span for scope in scopes for span in scope.spans]


def attributes(span: Span) -> dict[str, str | int]:
    """Those of a span, without our prefix."""
    pairs = ((one.key.removeprefix("switchboard."), one.value) for one in span.attributes)
    return {name: value.string_value or value.int_value for name, value in pairs}


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens."""
    found = Collector()

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.bodies.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(400 if found.refused and found.refused in found.bodies[-1] else found.status)
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        found.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()

"""Spans to a collector of OpenTelemetry: OTLP over HTTP, as its own exporter sends it.

`app/ops/traces.py` imports it where traces are switched on, as its packages are those of the extra `traces`. In: spans
of `core/traces.py`; out: one request for them, or `SpansRefused`. Next: the collector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from switchboard import __version__
from switchboard.ports.traces import SpansRefused, TraceSpan
from switchboard.transport.signed_post import header_with_key

_KINDS: Final = {
    "server": SpanKind.SERVER,
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
}
_LOGGER: Final = logging.getLogger(OTLPSpanExporter.__module__)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_TIMEOUT_S: Final = 5.0
"""For a request with its repetitions; the end of the process may have to wait for so long."""


def open_spans(url: str, key_env: str | None, key_header: str) -> OtlpSpans:
    """The collector at this URL; the key is as in `header_with_key`. Raises ConfigurationError."""
    hint = ", as the operator of the collector gives it"
    return OtlpSpans(url, header_with_key(key_env, key_header, hint=hint))


class OtlpSpans:
    """Implements `switchboard.ports.traces.SpanSink`. Close it at the end."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._exporter: SpanExporter = OTLPSpanExporter(
            url, headers=headers, timeout=_TIMEOUT_S, compression=Compression.Gzip
        )
        self._resource = Resource({SERVICE_NAME: "switchboard", SERVICE_VERSION: __version__})
        self._scope = InstrumentationScope("switchboard", __version__)
        self._said = _Said()
        _LOGGER.propagate = False  # we log ourselves that a collector fails, and once
        _LOGGER.addHandler(self._said)

    async def send(self, spans: Sequence[TraceSpan]) -> None:
        """As in the port."""
        self._said.first = ""
        result = await asyncio.to_thread(self._send_spans, spans)
        if result is not SpanExportResult.SUCCESS:
            raise SpansRefused(self._said.first or "it does not answer")

    def close(self) -> None:
        """End the repetitions of a request, if one is on its way."""
        self._exporter.shutdown()
        _LOGGER.removeHandler(self._said)

    def _send_spans(self, spans: Sequence[TraceSpan]) -> SpanExportResult:
        return self._exporter.export([self._make_readable(span) for span in spans])

    def _make_readable(self, span: TraceSpan) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context_of(span.trace_id, span.span_id),
            None if span.parent_id is None else _context_of(span.trace_id, span.parent_id),
            self._resource,
            span.attributes,
            links=[Link(_context_of(span.trace_id, link)) for link in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


class _Said(logging.Handler):
    """What the exporter has logged first of a request: it returns only that it failed, and logs less in the end."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


def _context_of(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)

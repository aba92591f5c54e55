"""Spans to a collector of OpenTelemetry: OTLP over HTTP, as its own exporter sends it.

`app/ops/traces.py` imports it where traces are switched on, as its packages are those of the extra `traces`. In: spans
of `core/traces.py`; out: one request for them, or `SpansRefused`. Next: the collector.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping, Sequence
from typing import Final

import httpx2
import structlog
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from switchboard import __version__
from switchboard.ports.traces import SpansRefused, TraceSpan
from switchboard.transport.signed_post import header_with_key

log = structlog.get_logger(__name__)

_KINDS: Final = {
    "server": SpanKind.SERVER,
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_PROTOBUF: Final = "application/x-protobuf"
_TIMEOUT_S: Final = 5.0
"""For a request and its whole answer."""
_MOST_ANSWER: Final = 65_536
_OF_THE_SPANS: Final = frozenset({400, 413, 422})
"""What is wrong is in the spans, so they would be refused again."""


def open_spans(url: str, key_env: str | None, key_header: str) -> OtlpSpans:
    """The collector at this URL; the key is as in `header_with_key`. Raises ConfigurationError."""
    hint = ", as the operator of the collector gives it"
    return OtlpSpans(url, header_with_key(key_env, key_header, hint=hint))


class OtlpSpans:
    """Implements `switchboard.ports.traces.SpanSink`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = {**headers, "content-type": _PROTOBUF, "accept": _PROTOBUF, "content-encoding": "gzip"}
        self._resource = Resource({SERVICE_NAME: "switchboard", SERVICE_VERSION: __version__})
        self._scope = InstrumentationScope("switchboard", __version__)

    async def send(self, spans: Sequence[TraceSpan]) -> None:
        """As in the port."""
        body = await asyncio.to_thread(self._encode, spans)
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                httpx2.AsyncClient(timeout=_TIMEOUT_S) as client,
                client.stream("POST", self._url, content=body, headers=self._headers) as answer,
            ):
                _require_success(answer)
                _require_taken(await _read_answer(answer))
        except TimeoutError:
            raise SpansRefused(f"it did not answer within {_TIMEOUT_S:.0f} s") from None
        except httpx2.HTTPError as error:
            raise SpansRefused(str(error) or type(error).__name__) from error

    def _encode(self, spans: Sequence[TraceSpan]) -> bytes:
        readable = [self._make_readable(span) for span in spans]
        return gzip.compress(encode_spans(readable).SerializeToString())

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


def _require_success(answer: httpx2.Response) -> None:
    if answer.has_redirect_location:
        raise SpansRefused(f"it redirects to {answer.headers['location'][:200]}: name that as traces.url")
    if not answer.is_success:
        raise SpansRefused(f"it answers {answer.status_code}", about_spans=answer.status_code in _OF_THE_SPANS)
    if (kind := answer.headers.get("content-type", _PROTOBUF)) != _PROTOBUF:
        raise SpansRefused(f"it answers with {kind[:50]}, as no collector does")


async def _read_answer(answer: httpx2.Response) -> bytes:
    read = b""
    async for piece in answer.aiter_bytes():
        read += piece
        if len(read) > _MOST_ANSWER:
            raise SpansRefused("its answer is too long for a collector's")
    return read


def _require_taken(body: bytes) -> None:
    """What a collector rejects of a request that it takes is lost, as it asks."""
    partial = ExportTraceServiceResponse.FromString(body).partial_success
    if partial.rejected_spans:
        log.warning("the collector rejected spans", spans=partial.rejected_spans, reason=partial.error_message[:200])


def _context_of(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)

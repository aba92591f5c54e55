"""The port of collectors of traces.

`transport/otlp.py` implements it, `app/ops/traces.py` sends through it. In: spans; out: nothing, once the collector has
them. Next: `core/traces.py`, which makes the spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

SpanKind = Literal["server", "internal", "client", "producer"]
SpanValue = str | int


class TraceSpan(Struct, frozen=True):
    """A span: ids are numbers, times are nanoseconds since 1970. `links` are ids of spans of the same trace."""

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: Mapping[str, SpanValue]
    links: tuple[int, ...] = ()
    failed: bool = False


class SpansRefused(Exception):
    """The collector has not taken them; the message says why. `about_spans`: it would refuse these again."""

    def __init__(self, why: str, *, about_spans: bool = False) -> None:
        super().__init__(why)
        self.about_spans = about_spans


class SpanSink(Protocol):
    """A collector of the settings."""

    async def send(self, spans: Sequence[TraceSpan]) -> None:
        """Raises `SpansRefused` within seconds; may be cancelled. What is sent again has the same ids."""
        ...

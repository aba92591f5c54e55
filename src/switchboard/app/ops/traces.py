"""Traces of messages, made of what is on record, and sent to a collector beside the work, never within it.

`app/wiring.py` makes a `TraceExport` for every worker if `traces.url` is set; a maintenance task, which one of them
runs, starts what is due. Messages enter as rows of the ledger, spans leave. What a collector has taken is recorded
afterwards, so that nothing is lost; what is sent twice because a worker was killed in between has the same ids. Next:
`core/traces.py`, `transport/otlp.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Final
from uuid import UUID

import structlog
from msgspec import Struct

from switchboard.app.settings import TraceSettings
from switchboard.core.traces import MessageRecord, spans_of
from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.ports.traces import SpanSink, SpansRefused, TraceSpan
from switchboard.store import traces as store
from switchboard.store.database import Database
from switchboard.store.traces import Claimed, Exported
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

_PACKAGE: Final = "opentelemetry.exporter.otlp.proto.http"
_MESSAGES: Final = 200
"""Messages at once."""
_SPANS: Final = 1000
"""Spans of a request, so that it is well below what collectors accept."""
_LEASE: Final = timedelta(seconds=30)
_PAUSE: Final = 49.0
"""Times what a run took: at most a fiftieth of the time is spent on traces."""
_LONGEST_S: Final = 60.0
"""Between two tries, whatever the last one took or met."""
_SOON: Final = timedelta(seconds=2)
_SELDOM: Final = timedelta(minutes=10)
_GIVEN_UP: Final = timedelta(days=30)
"""What happens to a message later than that is in no trace."""


class News(Struct, frozen=True):
    """The spans of a message that the collector does not have yet; `again` as in `Exported`."""

    request_id: UUID
    spans: Sequence[TraceSpan]
    again: timedelta | None


class TraceExport:
    """`start_due` returns at once; what it starts ends on its own, or with `aclose`. `clock`: monotonic seconds."""

    def __init__(
        self, database: Database, sink: SpanSink, share: float = 1.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._sink = sink
        self._share = share
        self._clock = clock
        self._not_before = clock()
        self._failures = 0
        self._running: asyncio.Task[None] | None = None

    async def start_due(self) -> bool:
        """Start to send what is due, unless that is going on, or a pause after the last time; returns whether it did.

        Raises what the last run met and did not expect.
        """
        if self._running is not None and not self._running.done():
            return False
        ended, self._running = self._running, None
        if ended is not None:
            ended.result()
        if self._clock() < self._not_before:
            return False
        self._running = asyncio.create_task(self._run(), name="traces")
        return True

    async def aclose(self) -> None:
        """Stop. What was not recorded is sent again."""
        if self._running is not None:
            await cancel_tasks(self._running)

    async def export_due(self) -> int:
        """Send what is due, and record it; returns how many spans. Raises SpansRefused, Unavailable."""
        now = datetime.now(UTC)
        if not self._failures:  # messages wait where they are while there is nobody to take their spans
            await store.begin(self._database, now)
            await store.take(self._database, now, self._share, _MESSAGES)
        claimed = await store.claim(self._database, _MESSAGES, _LEASE)
        if not claimed:
            return 0
        records = await store.load(self._database, [one.request_id for one in claimed])
        sent = 0
        for part in await asyncio.to_thread(_batches_of, claimed, records, now):
            sent += await self._send(part)
        return sent

    async def _send(self, part: Sequence[News]) -> int:
        """One message whose spans the collector refuses for what they are holds up no other."""
        spans = [span for one in part for span in one.spans]
        try:
            for start in range(0, len(spans), _SPANS):
                await self._sink.send(spans[start : start + _SPANS])
        except SpansRefused as refused:
            if not refused.about_spans:
                raise
            if len(part) > 1:
                return sum([await self._send([one]) for one in part])
            message = part[0].request_id
            log.warning("the spans of a message are refused, and left out", request_id=message, reason=str(refused))
            await store.record(self._database, [Exported(message, (), None)])
            return 0
        exported = [Exported(one.request_id, [span.span_id for span in one.spans], one.again) for one in part]
        await store.record(self._database, exported)
        return len(spans)

    async def _run(self) -> None:
        began = self._clock()
        try:
            sent = await self.export_due()
            if sent and self._failures:
                log.info("traces are sent again")
            self._failures = 0  # also if another worker has sent what was due
            pause = (self._clock() - began) * _PAUSE
        except SpansRefused as refused:
            self._failures += 1
            pause = 2.0**self._failures if self._failures < 6 else _LONGEST_S
            if self._failures == 1:
                log.warning("traces cannot be sent, and wait", reason=str(refused))
            await store.fail(self._database, str(refused))
        except Unavailable:  # the worker notices that itself
            pause = 0.0
        self._not_before = self._clock() + min(pause, _LONGEST_S)


def open_sink(settings: TraceSettings) -> SpanSink | None:
    """The collector of the settings, None without one. Raises ConfigurationError if the extra or the key is missing."""
    if settings.url is None:
        return None
    if not _is_installed():
        raise ConfigurationError(
            f"traces.url needs the exporter of OpenTelemetry, which is missing: {install_command('traces')}"
        )
    from switchboard.transport.otlp import open_spans

    return open_spans(settings.url, settings.key_env, settings.key_header)


def _is_installed() -> bool:
    try:
        return find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:  # a package above it is missing, too
        return False


def _batches_of(claimed: Sequence[Claimed], records: Sequence[MessageRecord], now: datetime) -> list[list[News]]:
    """What is new of each, in parts that fit into one request; a message that does not is a part alone."""
    known = {one.message.request_id: one for one in records}
    parts: list[list[News]] = [[]]
    size = 0
    for news in (_news_of(one, known.get(one.request_id), now) for one in claimed):
        if parts[-1] and size + len(news.spans) > _SPANS:
            parts.append([])
            size = 0
        parts[-1].append(news)
        size += len(news.spans)
    return parts


def _news_of(claimed: Claimed, record: MessageRecord | None, now: datetime) -> News:
    if record is None:
        return News(claimed.request_id, (), None)
    message, has = record.message, frozenset(claimed.exported)
    spans = [] if _is_history(record) else [span for span in spans_of(record) if span.span_id not in has]
    age = now - message.received_at
    if age > _GIVEN_UP or not (message.working or message.later):
        return News(claimed.request_id, spans, None)
    again = min(max(age / 10, _SOON), _SELDOM) if message.working else _SELDOM
    return News(claimed.request_id, spans, again)


def _is_history(record: MessageRecord) -> bool:
    """It was imported with what had become of it elsewhere."""
    return any(one.branches == 0 for one in record.decisions)

"""What is counted: messages in, refusals, and at each scrape the state of the ledger.

`app/intake.py` counts for every door; `GET /metrics` asks `render`. Own registry: nothing of the process leaks in, and
two servers in one process (tests) do not meet. Next: Prometheus.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from switchboard.store import books, dead_letters, inbox, ledger, verdicts
from switchboard.store.database import Database

_BOOKS_EVERY_S: Final = 30.0
"""The books are a pass over the largest tables: not at every scrape."""
_LANE_STATES: Final = ("ready", "running", "paused")
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Meters:
    """Counters that doors increment, gauges that a scrape fills."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.accepted = self._counter("accepted", "Messages stored.", "channel")
        self.duplicates = self._counter("duplicates", "Messages that were already stored.")
        self.refused = self._counter("refused", "Messages refused, by error code.", "code")
        self.seconds = Histogram(
            "switchboard_ingest_seconds",
            "From the whole body to the commit, per message or batch.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._backlog = self._gauge("backlog", "Items that wait or run.")
        self._lanes = self._gauge("lanes", "Lanes that are not idle, by state.", "state")
        self._workers = self._gauge("workers_alive", "Registered workers with a fresh beat.")
        self._dead = self._gauge("dead_letters_pending", "Dead letters that nobody has handled.")
        self._oldest = self._gauge("oldest_waiting_seconds", "The longest that a ready lane has waited.")
        self._tokens = self._gauge("model_tokens_today", "Tokens that models took today (UTC).")
        self._cost = self._gauge("model_cost_today_dollars", "What models cost today (UTC), by their prices.")
        self._capped = self._gauge("model_refused_today", "How often a cap of the day forbade to ask a model today.")
        self._resting = self._gauge("models_resting", "Models that some worker leaves alone, because they failed.")
        self._difference = self._gauge("books_difference", "Accepted minus accounted for; 0 is right.", "kind")
        self.polls = self._gauge("long_polls", "Requests that wait for a reply or an outbox at the moment.")
        self._by_channel: dict[str, Counter] = {}
        self._booked_at = float("-inf")

    def accepted_from(self, channel: str) -> Counter:
        """The counter of a channel, kept: asking for it by its label takes as long as looking a token up."""
        counter = self._by_channel.get(channel)
        if counter is None:
            counter = self._by_channel[channel] = self.accepted.labels(channel)
        return counter

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"switchboard_{name}", what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"switchboard_{name}", what, labels, registry=self._registry)

    async def render(self, database: Database) -> bytes:
        """The text that Prometheus reads. Raises Unavailable."""
        self._backlog.set(await inbox.count_backlog(database))
        lanes, oldest = await ledger.lane_states(database)
        for state in _LANE_STATES:
            self._lanes.labels(state).set(lanes.get(state, 0))
        self._oldest.set(oldest)
        self._workers.set(sum(worker.alive for worker in await ledger.list_workers(database)))
        self._dead.set(await dead_letters.count_pending(database))
        await self._render_models(database)
        await self._render_books(database)
        return generate_latest(self._registry)

    async def _render_models(self, database: Database) -> None:
        day = await verdicts.account_of(database, datetime.now(UTC).date())
        self._tokens.set(day.tokens)
        self._cost.set(day.micros / 1e6)
        self._capped.set(day.refused)
        self._resting.set(len(await verdicts.resting(database)))

    async def _render_books(self, database: Database) -> None:
        if time.monotonic() - self._booked_at < _BOOKS_EVERY_S:
            return
        self._booked_at = time.monotonic()
        messages, targets = await books.balance(database)
        self._difference.labels("messages").set(messages.difference)
        self._difference.labels("targets").set(targets.difference)

"""Metrics: incoming messages, refusals, and at each scrape the state of the ledger.

`app/messages/intake.py` counts for every interface; `GET /metrics` calls `render`. It has its own registry: no metrics
of the process leak in, and two servers in one process (tests) do not conflict. Next: Prometheus.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from switchboard.domain.shown import Connector
from switchboard.store import books, traces
from switchboard.store.connectors import heartbeats as connectors
from switchboard.store.connectors import quarantine
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters, inbox, outbox
from switchboard.store.messages.outbox import OpenReplies
from switchboard.store.models import usage as model_usage
from switchboard.store.work import approvals, ledger, processes

_LANE_STATES: Final = ("ready", "running", "paused")
_UNSENT_STATES: Final = ("uncertain", "failed", "dead")
_CONNECTOR_STATES: Final = ("starting", "healthy", "degraded", "failed", "standby", "stale", "offline")
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters that the interfaces increment, gauges that a scrape fills."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.accepted = self._make_counter("accepted", "Messages stored.", "channel")
        self.duplicates = self._make_counter("duplicates", "Messages that had been stored before.")
        what = "Messages stored although their id belonged to another one, with another content."
        self.same_ids = self._make_counter("same_ids", what)
        self.refused = self._make_counter("refused", "Messages refused, by error code.", "code")
        what = "Seconds from the complete request body to the commit, per message or batch."
        self.seconds = Histogram("switchboard_ingest_seconds", what, buckets=_BUCKETS, registry=self._registry)
        self._backlog = self._make_gauge("backlog", "Items that are waiting or running.")
        self._lanes = self._make_gauge("lanes", "Lanes that are not idle, by state.", "state")
        self._workers = self._make_gauge("workers_alive", "Registered workers with a recent heartbeat.")
        self._servers = self._make_gauge("servers_alive", "Registered servers with a recent heartbeat.")
        self._dead = self._make_gauge("dead_letters_pending", "Dead letters not handled yet.")
        self._approvals = self._make_gauge("approvals_pending", "Calls and questions that wait for people.")
        self._oldest_approval = self._make_gauge(
            "oldest_approval_seconds", "Seconds since the oldest of these was asked."
        )
        self._oldest = self._make_gauge("oldest_waiting_seconds", "Seconds since the oldest ready lane became ready.")
        self._waiting = self._make_gauge("replies_waiting", "Replies not sent yet.")
        self._oldest_reply = self._make_gauge(
            "oldest_reply_seconds", "Seconds since the oldest of these replies was made."
        )
        self._unsent = self._make_gauge("replies_unsent", "Replies that an operator may send again, by state.", "state")
        self._quarantined = self._make_gauge("quarantined_events", "Events that could not be made into messages.")
        self._connectors = self._make_gauge("connectors", "Connectors by state.", "state")
        account = ("channel", "endpoint")
        self._healthy = self._make_gauge("connector_healthy", "1: its last heartbeat is recent and healthy.", *account)
        self._lag = self._make_gauge("connector_lag_seconds", "How far it is behind its platform.", *account)
        self._counters = self._make_gauge("connector_counters", "What its connector counts.", *account, "counter")
        self._outcomes = self._make_gauge("outcomes_today", "Outcomes of today's messages (UTC).", "outcome")
        self._tokens = self._make_gauge("model_tokens_today", "Tokens used by models today (UTC).")
        self._cached = self._make_gauge("model_cache_tokens_today", "Of these, read from or written to caches.", "way")
        self._cost = self._make_gauge(
            "model_cost_today_dollars", "Usage and cost of models today (UTC), by their prices."
        )
        self._capped = self._make_gauge("model_refused_today", "Calls to models prevented by a limit today.")
        self._cooldowns = self._make_gauge("models_in_cooldown", "Models in cooldown on some worker.")
        self._refused_keys = self._make_gauge("models_paused", "Models whose provider refuses their key.")
        self._difference = self._make_gauge("books_difference", "Accepted minus accounted for; must be 0.", "kind")
        self._books_age = self._make_gauge("books_age_seconds", "Since a worker balanced the books; infinite if never.")
        self._snapshot = self._make_gauge("oldest_snapshot_seconds", "Age of the oldest snapshot in this database.")
        self._traces_behind = self._make_gauge(
            "traces_behind_seconds", "How far the export of traces is behind; 0 if off."
        )
        self._traces_failing = self._make_gauge(
            "traces_failing_seconds", "For how long the collector has refused them, in seconds; 0 if it takes them."
        )
        self.polls = self._make_gauge("long_polls", "Requests currently waiting for a reply or an outbox.")
        self._by_channel: dict[str, Counter] = {}

    def accepted_from(self, channel: str) -> Counter:
        """The counter of a channel, cached: looking it up by label takes as long as looking up a token."""
        counter = self._by_channel.get(channel)
        if counter is None:
            counter = self._by_channel[channel] = self.accepted.labels(channel)
        return counter

    def _make_counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"switchboard_{name}", what, labels, registry=self._registry)

    def _make_gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"switchboard_{name}", what, labels, registry=self._registry)

    async def render(self, database: Database) -> bytes:
        """The text that Prometheus reads. Raises Unavailable."""
        self._backlog.set(await inbox.count_backlog(database))
        lanes, oldest = await ledger.lane_states(database)
        for state in _LANE_STATES:
            self._lanes.labels(state).set(lanes.get(state, 0))
        self._oldest.set(oldest)
        self._workers.set(await processes.count_alive(database, "worker"))
        self._servers.set(await processes.count_alive(database, "server"))
        self._dead.set(await dead_letters.count_pending(database))
        waiting = await approvals.count(database)
        self._approvals.set(waiting.approvals)
        self._oldest_approval.set(waiting.oldest_s)
        self._quarantined.set(await quarantine.count(database))
        self._snapshot.set(await processes.oldest_snapshot_s(database))
        await self._render_replies(database)
        await self._render_models(database)
        await self._render_books(database)
        await self._render_traces(database)
        return generate_latest(self._registry)

    async def _render_replies(self, database: Database) -> None:
        found = await outbox.count_open(database)
        waiting = [found.get(state, OpenReplies()) for state in ("pending", "sending")]
        self._waiting.set(sum(one.replies for one in waiting))
        self._oldest_reply.set(max(one.oldest_s for one in waiting))
        for state in _UNSENT_STATES:
            self._unsent.labels(state).set(found.get(state, OpenReplies()).replies)
        # A connector's last report means nothing once the connector is silent.
        known = await connectors.list_connectors(database)
        states: Counts[str] = Counts(one.state if one.liveness == "online" else one.liveness for one in known)
        for state in _CONNECTOR_STATES:
            self._connectors.labels(state).set(states[state])
        self._render_accounts(connectors.by_account(known))

    def _render_accounts(self, known: Sequence[Connector]) -> None:
        for gauge in (self._healthy, self._lag, self._counters):
            gauge.clear()
        for one in known:
            self._healthy.labels(one.channel, one.endpoint).set(one.liveness == "online" and one.state == "healthy")
            self._lag.labels(one.channel, one.endpoint).set(one.lag_s or 0.0)
            for name, count in one.counters.items():
                self._counters.labels(one.channel, one.endpoint, name).set(count)

    async def _render_models(self, database: Database) -> None:
        today = datetime.now(UTC).date()
        day = await model_usage.spending_of(database, today)
        self._tokens.set(day.tokens)
        models = await model_usage.models_of(database, today)
        self._cached.labels("read").set(sum(one.cache_read for one in models))
        self._cached.labels("write").set(sum(one.cache_write for one in models))
        self._cost.set(day.micros / 1e6)
        self._capped.set(day.refused + day.senders_refused)
        self._cooldowns.set(len(await model_usage.cooldowns(database)))
        self._refused_keys.set(len(await model_usage.refused_keys(database)))

    async def _render_traces(self, database: Database) -> None:
        now = datetime.now(UTC)
        standing = await traces.standing(database, now)
        failing = None if standing is None else standing.failing_since
        self._traces_behind.set(0.0 if standing is None else standing.behind_s)
        self._traces_failing.set(0.0 if failing is None else (now - failing).total_seconds())

    async def _render_books(self, database: Database) -> None:
        kept = await books.kept_books(database)
        self._difference.labels("messages").set(kept.books.messages.difference)
        self._difference.labels("targets").set(kept.books.targets.difference)
        self._books_age.set(kept.age)
        outcomes = await books.outcomes_of(database, datetime.now(UTC).date())
        for name in ("routed", "classified", "dead"):
            self._outcomes.labels(name).set(getattr(outcomes, name))

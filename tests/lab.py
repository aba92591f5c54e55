"""What most tests of the engine need: a small tree of teams, envelopes, and the parts wired together on a database."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import UUID

from switchboard.core.channels.email import trusting
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.envelope.identity import conversation, dedupe_key
from switchboard.core.envelope.read import read_envelope
from switchboard.core.envelope.strict import strict
from switchboard.core.people.strangers import Policy
from switchboard.core.policy.budget import Amount
from switchboard.core.policy.rates import AcceptLimits
from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Message, RequestId
from switchboard.domain.routing import Rule, Team
from switchboard.journey.accept import AcceptLeg, Submission
from switchboard.journey.ask import Classifier
from switchboard.journey.classify import RouteLeg, RouteLimits
from switchboard.journey.decide import DecideLeg
from switchboard.journey.people_book import PeopleBook
from switchboard.journey.reply import ReplyService, ReplyWays
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.strangers import Strangers
from switchboard.journey.turn import TurnLeg, TurnLimits
from switchboard.lanes.kinds import NOTICE, ROUTE, TURN
from switchboard.lanes.notifier import Notifier
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.ports.engine import Engine
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.migrate import migrate
from switchboard.store.rules import teams
from switchboard.testing.echo import Echo
from tests.routing import ROOT, butler, member, rule, team_of, to

__all__ = ("ROOT", "butler", "member", "rule", "team_of", "to")
"""Of `tests/routing.py`, so that a test of the engine has all that it needs from here."""

_numbers = itertools.count(1)


def envelope(text: str = "hello", *, channel: str = "telegram", sender: str = "alice", **more: Any) -> Envelope:
    """A message; `thread`, `event`, `tier`, `key`, `endpoint` and `pinned` may be given."""
    return strict(Envelope, envelope_json(text, channel=channel, sender=sender, **more))


def native(channel: str = "telegram", raw: object = None, **more: Any) -> Envelope:
    """A message as its channel has it in `raw`; always the same event, of the same sender."""
    return envelope(channel=channel, raw=raw, **{"event": "77", "sender": "5488423581", **more})


def envelope_json(
    text: str = "hello", *, channel: str = "telegram", sender: str = "alice", **more: Any
) -> dict[str, Any]:
    """The same as the JSON that a connector would send."""
    providers = {"telegram": "telegram", "email": "imap", "api": "http", "cli": "internal"}
    return {
        "schema_version": "ingest.v1",
        "source": {
            "channel": channel,
            "provider": more.get("provider", providers.get(channel, channel)),
            "endpoint_identity": more.get("endpoint", "bot:house"),
        },
        "event": {
            "external_event_id": more.get("event", f"event-{next(_numbers)}"),
            "external_thread_id": more.get("thread"),
            "observed_at": "2026-11-21T12:00:00Z",
            **more.get("of_event", {}),
        },
        "sender": {"identity": sender, "chat_type": more.get("chat_type"), **more.get("of_sender", {})},
        "payload": {"raw": more.get("raw"), **more.get("payload", {"normalized_text": text})},
        "control": {
            "idempotency_key": more.get("key"),
            "policy_tier": more.get("tier", "default"),
            "pinned_target": more.get("pinned"),
            **more.get("of_control", {}),
        },
    }


def submission(text: str = "hello", **more: Any) -> Submission:
    """An envelope with its bytes, ready for the accept leg."""
    raw = json.dumps(envelope_json(text, **more)).encode()
    return Submission(read_envelope(raw), raw)


def message(text: str = "hello", **more: Any) -> Message:
    """A message as the accept leg would make it."""
    given = envelope(text, **more)
    channel = CHANNELS[given.source.channel]
    names = conversation(given, channel), dedupe_key(given, channel)
    return Message(RequestId(new_uuid7()), *names, given, b"{}", "application/json", datetime.now(UTC))


async def spent_on(database: Database, day: date) -> Amount:
    """What models have cost on a day, without reservations."""
    row = await database.row("select tokens, micros from model_day where day = $1", day)
    return Amount() if row is None else Amount(row["tokens"], row["micros"])


@dataclass(frozen=True, slots=True)
class Lab:
    """The parts of one process."""

    database: Database
    notifier: Notifier
    rule_book: RuleBook
    accept: AcceptLeg
    replies: ReplyService
    channels: Channels
    people_book: PeopleBook

    def worker(
        self, engines: Mapping[str, Engine] | None = None, *, classifier: Classifier | None = None, **settings: Any
    ) -> Worker:
        """A worker with fast timings; `limits`, `route_limits` and `hearing` may be given.

        Only its TTL is long: where the machine stands still for a while, a worker with a short one would rightly be
        taken for dead, by itself first.
        """
        limits = settings.pop("limits", TurnLimits(attempts=3, timeout=10, backoff_base=0.05, backoff_cap=0.2))
        quickly = RouteLimits(attempts=3, timeout=10, backoff_base=0.02, backoff_cap=0.05)
        route_limits = settings.pop("route_limits", quickly)
        parts, hearing = (self.database, self.notifier, self.rule_book), settings.pop("hearing", None)
        route = RouteLeg(*parts, classifier, route_limits, hearing=hearing)
        ways = ReplyWays(self.database, {}, self.channels)
        leg = TurnLeg(*parts, engines or {"echo": Echo()}, ways, limits, hearing=hearing)
        quick = WorkerSettings(**{"poll": 0.1, "rescue_every": 0.1, "ttl": 60.0, **settings})
        return Worker(self.database, self.notifier, {TURN: leg, NOTICE: leg, ROUTE: route}, quick)

    async def count(self, sql: str, *args: object) -> int:
        """One number from the database."""
        return int(await self.database.value(sql, *args))

    async def replies_to(self, request_id: UUID) -> list[str]:
        """The texts that were replied to a message, in order."""
        rows = await self.database.rows("select text from outbox where request_id = $1 order by seq", request_id)
        return [row["text"] for row in rows]


DEFAULT_TEAMS = (team_of(butler("echo"), "System4/root"),)
OWN_CLOCK = DatabaseClock()
TRUSTING: Final = Channels((*CHANNELS.values(), trusting({"*": ["mx.example"]})))
"""As if the settings said of every mailbox that mx.example tells truly who wrote."""
DEFAULT_RULES = (rule("System1/echo"),)


@asynccontextmanager
async def lab(
    url: str,
    teams_: Sequence[Team] = DEFAULT_TEAMS,
    rules: Sequence[Rule] = DEFAULT_RULES,
    *,
    classifying: bool = False,
    clock: DatabaseClock = OWN_CLOCK,
    direct_url: str | None = None,
    policies: Mapping[tuple[str, str], Policy] | None = None,
    channels: Channels = CHANNELS,
    size: int = 8,
    **limits: Any,
) -> AsyncIterator[Lab]:
    """Migrate if it is empty, seed and wire on the database at `url`. `classifying`: this process has models.

    With `direct_url`, `url` is a pooler before it. `size`: the most connections.
    """
    if direct_url is not None:
        await _migrate_behind_pooler(direct_url)
    database = await Database.connect(url, size=size, direct_url=direct_url)
    try:
        if await database.value("select to_regclass('installed_functions') is null"):
            await migrate(database)
        await teams.seed(database, teams_, rules, author="test", reason="lab")
        notifier = Notifier(database)
        rule_book = await RuleBook.open(database, notifier, classifying=classifying, channels=channels)
        strangers = Strangers(database, notifier, channels, policies or {}, owns=rule_book.is_owner)
        people_book = PeopleBook(database, notifier)
        decide = DecideLeg(rule_book, channels, people_book)
        accepting = AcceptLimits(**{"sender_per_minute": 0, **limits})
        accept = AcceptLeg(database, decide, notifier, accepting, channels, clock, strangers=strangers)
        replies = ReplyService(database, notifier, lambda: rule_book.rules.members)
        yield Lab(database, notifier, rule_book, accept, replies, channels, people_book)
    finally:
        await database.close()


async def _migrate_behind_pooler(url: str) -> None:
    database = await Database.connect(url, size=1)
    try:
        await migrate(database, pooled=True)
    finally:
        await database.close()

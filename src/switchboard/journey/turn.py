"""Turn: a butler answers one delivery, and everything that follows from it is one write.

The worker (`lanes/worker.py`) calls `TurnLeg` with a claimed item of a `turn:` or `notice:` lane. The butler's engine
runs through the journal; its answer, its delivery, the reply in the outbox or the dead letter, and the step to the next
item are settled in one fenced transaction. Next: `reply.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Protocol, runtime_checkable

import structlog

from switchboard.core.policy.retry import backoff
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.domain.remote import Presence
from switchboard.domain.routing import DeadLetterCategory, Member
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.batch import Batch
from switchboard.lanes.bell import WORK, Bell, outbox_topic, settled_topic
from switchboard.lanes.faults import point
from switchboard.lanes.journal import Fenced, Journal, OutcomeUnknown
from switchboard.lanes.worker import Hold
from switchboard.store import lanes as store
from switchboard.store.database import Database, storable_text
from switchboard.store.ids import new_uuid7
from switchboard.store.lanes import Burial, Settlement, Work

log = structlog.get_logger(__name__)

ErrorClass = Literal["validation", "routing", "target_unavailable", "timeout", "overload", "internal"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The butler replies."""

    text: str


@dataclass(frozen=True, slots=True)
class NoReply:
    """The butler has dealt with it, and no reply is needed."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The butler declines; the message becomes a dead letter."""

    reason: str


TurnResult = Answer | NoReply | Refusal


class EngineFailure(Exception):
    """An engine could not do its turn. Retryable ones are tried again; the others end the delivery at once."""

    def __init__(self, message: str, *, error_class: ErrorClass = "internal", retryable: bool = True) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class Turn:
    """What an engine is given: the work, the butler it is for, and which attempt this is (from 1)."""

    work: Work
    member: Member
    attempt: int


class Engine(Protocol):
    """What answers for a butler. Whatever has an effect goes through `journal.step`."""

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; `Fenced` and `OutcomeUnknown` of the journal pass through."""
        ...


@runtime_checkable
class ChecksOptions(Protocol):
    """An engine that can say before the first message whether a member's options make sense."""

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option."""
        ...


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """`attempts` of one delivery, lost workers included; seconds of `timeout` for one attempt; backoff in seconds."""

    attempts: int = 5
    timeout: float = 300.0
    backoff_base: float = 1.0
    backoff_cap: float = 300.0


ReplyPool = Callable[[Work], str | None]
"""Where a reply to this work waits: a pool name, or None for the mailbox that is read at the door."""


class TurnLeg:
    """Handles `turn:` and `notice:` lanes."""

    def __init__(
        self,
        database: Database,
        bell: Bell,
        rule_book: RuleBook,
        engines: Mapping[str, Engine],
        reply_pool: ReplyPool,
        limits: TurnLimits,
    ) -> None:
        self._database = database
        self._bell = bell
        self._rule_book = rule_book
        self._engines = engines
        self._reply_pool = reply_pool
        self._limits = limits
        self._load: Batch[Item, Work] = Batch(lambda items: store.load_work(database, items), writers=2)
        self._settle: dict[int, Batch[Settlement, store.Settled]] = {}

    async def __call__(self, item: Item, hold: Hold) -> Item | None:
        try:
            work = await self._load.put(item)
        except Unavailable:
            raise
        except Exception as error:
            if item.attempts <= self._limits.attempts:
                raise
            return await self._save(self._unreadable(item, hold, error), hold)
        if not hold.alive():
            raise Fenced
        settlement = await self._attempt(item, work, hold)
        if settlement.outcome == "failed" and settlement.burial is None:
            await self._retry(settlement, hold)
            return None
        following = await self._save(settlement, hold)
        self._announce(work, settlement)
        return following

    async def _save(self, settlement: Settlement, hold: Hold) -> Item | None:
        """Write the end of a turn; gives the next item of the lane if it was handed on."""
        point("before_complete")
        settled = await self._settle_batch(hold.worker).put(settlement)
        point("after_complete")
        if not settled.ok:
            raise Fenced
        return None if settled.next_seq is None else replace(settlement.item, seq=settled.next_seq, attempts=1)

    def _unreadable(self, item: Item, hold: Hold, error: Exception) -> Settlement:
        """The end of an item whose message this release cannot read; nobody is told, for nobody could read it."""
        reason = storable_text(f"the message cannot be read: {error}")[:2000]
        burial = Burial(new_uuid7(), "poison", reason, None) if item.kind == "turn" else None
        return Settlement(
            item,
            "failed" if burial else "refused",
            *(None, None),
            error_class="poison",
            error=reason,
            hand_on=hold.hand_on,
            burial=burial,
        )

    async def _attempt(self, item: Item, work: Work, hold: Hold) -> Settlement:
        """Run the engine and say in one value how it ended."""
        member = self._rule_book.rules.members.get(work.system_id)
        draft = Settlement(
            item,
            "failed",
            engine=None if member is None else member.engine,
            started_at=datetime.now(UTC),
            hand_on=hold.hand_on,
            pause=False,
        )
        engine = None if member is None else self._engines.get(member.engine)
        if item.attempts > self._limits.attempts:
            return self._buried(draft, work, "poison", f"given up after {self._limits.attempts} attempts")
        presence = self._rule_book.presences.get(work.system_id)
        barred = presence is not None and presence.by
        if member is None or engine is None or barred:
            return self._buried(draft, work, "target_unavailable", _nobody(work, member, presence))
        try:
            async with asyncio.timeout(self._patience(member)):
                journal = await Journal.open(self._database, hold.worker, item, resumed=work.resumed)
                result = await engine.run(Turn(work, member, item.attempts), journal)
        except OutcomeUnknown as error:
            return self._buried(replace(draft, outcome="unknown"), work, "outcome_unknown", str(error))
        except TimeoutError:
            return self._failed(draft, work, EngineFailure("the turn took too long", error_class="timeout"))
        except EngineFailure as error:
            return self._failed(draft, work, error)
        return self._finished(draft, work, result)

    def _patience(self, member: Member) -> float:
        """A little more than the engine's own limit, whose error says more. What is no number the engine refuses."""
        own = member.options.get("timeout")
        return own + 5.0 if isinstance(own, (int, float)) and own > 0 else self._limits.timeout

    def _finished(self, draft: Settlement, work: Work, result: TurnResult) -> Settlement:
        if isinstance(result, Refusal):
            return self._buried(replace(draft, outcome="refused"), work, "refused", result.reason)
        if isinstance(result, NoReply):
            return replace(draft, outcome="declined", error=storable_text(result.reason) or None)
        if work.dead_letter is not None:
            return replace(draft, outcome="answered")  # a notice has nobody to reply to
        return replace(
            draft,
            outcome="answered",
            outbox_id=new_uuid7(),
            text=storable_text(result.text),
            pool=self._reply_pool(work),
        )

    def _failed(self, draft: Settlement, work: Work, error: EngineFailure) -> Settlement:
        failed = replace(draft, error_class=error.error_class, error=storable_text(str(error))[:2000])
        if not error.retryable:
            return self._buried(failed, work, "target_unavailable", str(error))
        # Silence is a suspicion, so whoever is quarantined for it was asked all the same: once, and now we know.
        presence = self._rule_book.presences.get(work.system_id)
        if presence is not None and presence.away:
            return self._buried(failed, work, "target_unavailable", f"quarantined: {presence.why}; and now: {error}")
        if draft.item.attempts >= self._limits.attempts:
            return self._buried(failed, work, "retry_exhausted", str(error))
        return failed

    def _buried(self, draft: Settlement, work: Work, category: DeadLetterCategory, reason: str) -> Settlement:
        """The end of a delivery that nobody could carry out; a notice has no dead letter of its own."""
        clean = storable_text(reason)[:2000]
        ended = replace(draft, error=draft.error or clean, error_class=draft.error_class or category)
        if work.dead_letter is not None:
            return replace(ended, outcome="refused" if draft.outcome == "failed" else draft.outcome)
        rules = self._rule_book.rules
        handler = rules.index.handler(work.team_id)
        member = rules.members.get(work.system_id)
        pause = member is not None and member.options.get("on_dead") == "pause"
        return replace(ended, burial=Burial(new_uuid7(), category, clean, handler), pause=pause)

    async def _retry(self, settlement: Settlement, hold: Hold) -> None:
        limits = self._limits
        delay = backoff(
            settlement.item.attempts, base=limits.backoff_base, cap=limits.backoff_cap, jitter=random.random()
        )
        if not await store.retry(self._database, hold.worker, settlement, delay):
            raise Fenced
        log.info("turn failed", lane=settlement.item.lane, error=settlement.error, retry_in_s=round(delay, 2))

    def _settle_batch(self, worker: int) -> Batch[Settlement, store.Settled]:
        """Turns of one worker id settle together; a session that is over takes its batch with it."""
        if worker not in self._settle:
            self._settle = {worker: Batch(lambda batch: store.settle(self._database, worker, batch))}
        return self._settle[worker]

    def _announce(self, work: Work, settlement: Settlement) -> None:
        self._bell.ring(settled_topic(work.request_id))
        if settlement.pool is not None:
            self._bell.ring(WORK if settlement.pool == store.WORK_POOL else outbox_topic(settlement.pool))
        if settlement.burial is not None:
            self._bell.ring(WORK)


def _nobody(work: Work, member: Member | None, presence: Presence | None) -> str:
    """Why there is nobody to ask."""
    if member is None:
        return f"{work.system_id} is not a member any more"
    if presence is not None and presence.by:
        return f"quarantined: {presence.why}"
    return f"no engine {member.engine!r}"

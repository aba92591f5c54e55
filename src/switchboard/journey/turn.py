"""Turn: a butler answers one delivery, and everything that follows from it is one write.

The worker (`lanes/worker.py`) calls `TurnLeg` with a claimed item of a `turn:` or `notice:` lane. The butler's engine
runs through the journal; its answer, its delivery, the reply in the outbox or the dead letter, and the advance to the
next item are settled in one fenced transaction. Next: `reply.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import structlog
from msgspec.structs import replace

from switchboard.core.calls import CALL, is_call
from switchboard.core.files.blobs import stored_blob
from switchboard.core.files.reply_files import ChosenFiles, choose_files
from switchboard.core.mail.telling import ANSWERED_MAIL
from switchboard.core.people.owners import decides_in_chat
from switchboard.core.policy.retry import OutagePolicy, TurnSettings, backoff, outage_pause
from switchboard.core.text.storable import storable_text
from switchboard.core.turns.entries import entry_of
from switchboard.core.turns.stop import STOPPED
from switchboard.core.voice.transcripts import with_transcripts
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.domain.remote_agents import RemoteAgent
from switchboard.domain.routing import DeadLetterCategory, Member, SystemId
from switchboard.journey.approving import ChatDecisions, Conversations, PlaceOfAsking, tell
from switchboard.journey.deltas import Deltas
from switchboard.journey.handing_on import below, decide_next_receiver
from switchboard.journey.hearing import Listens, NotHeardYet
from switchboard.journey.linking import LinkCodes
from switchboard.journey.memory_commands import MemoryCommands
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.stopping import STOP, StopEngine, built_in, watch_for_stop
from switchboard.lanes.batch import BatchWriter
from switchboard.lanes.faults import point
from switchboard.lanes.journal import StoredJournal
from switchboard.lanes.kinds import TURN, WORK_POOL, Claim
from switchboard.lanes.notifier import WORK, Notifier, outbox_topic, settled_topic
from switchboard.ports.engine import (
    Answer,
    Engine,
    EngineFailure,
    Fenced,
    HandedOn,
    NoReply,
    Outage,
    OutcomeUnknown,
    Parked,
    Refusal,
    Remembers,
    SetsPatience,
    Stoppable,
    Turn,
    TurnResult,
)
from switchboard.ports.facts import OwnWords
from switchboard.ports.history import Entry
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.history import HistoryAddition
from switchboard.store.messages.blobs import sendable
from switchboard.store.messages.reroutes import was_withdrawn
from switchboard.store.work import lanes as store
from switchboard.store.work.lanes import NewDeadLetter, Settlement, Work

log = structlog.get_logger(__name__)


DELAYED: Final = "This takes longer than usual: what I work with cannot be reached at the moment. I will answer then."


class TurnLimits(TurnSettings, frozen=True):
    """Those of the settings, and how long to wait during outages."""

    outage: OutagePolicy = OutagePolicy()


def turn_of(work: Work, member: Member, attempt: int) -> Turn:
    """The engine's view of the work."""
    return Turn(
        member,
        work.team_id,
        work.request_id,
        work.conversation,
        work.envelope,
        work.received_at,
        attempt,
        work.segment,
        work.whole_text,
        work.dead_letter,
        place=work.seq,
    )


class Replies(Conversations, Protocol):
    """Whether and where replies wait, and who reads them: see `reply.py`."""

    def pool(self, work: Work) -> str | None: ...

    async def withheld(self, work: Work, *, allowed: bool = False) -> str | None: ...


class TurnLeg:
    """Handles `turn:` and `notice:` lanes."""

    def __init__(  # noqa: PLR0913 - the parts of an installation that every turn needs
        self,
        database: Database,
        notifier: Notifier,
        rule_book: RuleBook,
        engines: Mapping[str, Engine],
        replies: Replies,
        limits: TurnLimits,
        *,
        hearing: Listens | None = None,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._rule_book = rule_book
        self._replies = replies
        decisions = ChatDecisions(database, notifier, lambda: rule_book.rules.members, replies)
        links = LinkCodes(database, notifier, replies)
        memory = MemoryCommands(database, replies)
        stop = StopEngine(database, self._can_stop, decisions, replies, links.answer, memory.answer)
        self._engines = {**engines, STOP: stop}
        # Determined once: checking whether an engine has such a method takes longer than some turns.
        self._stoppable = {name: engine for name, engine in self._engines.items() if isinstance(engine, Stoppable)}
        remembering = {name: engine for name, engine in self._engines.items() if isinstance(engine, Remembers)}
        self._remembering = frozenset(name for name, engine in remembering.items() if engine.remembers)
        self._patient = {name: engine for name, engine in self._engines.items() if isinstance(engine, SetsPatience)}
        self._limits = limits
        self._hearing = hearing
        self._deltas = Deltas(database, notifier)
        self._load: BatchWriter[Item, Work] = BatchWriter(lambda items: store.load_work(database, items), writers=2)
        self._settle: dict[int, BatchWriter[Settlement, store.SettlementOutcome]] = {}

    async def aclose(self) -> None:
        """Flush the deltas of turns before the database is closed."""
        await self._deltas.aclose()

    async def __call__(self, item: Item, claim: Claim) -> Item | None:
        try:
            work = await self._load.put(item)
        except Unavailable:
            raise
        except Exception as error:
            if item.attempts <= self._limits.attempts:
                raise
            return await self._save(self._unreadable(item, error), claim)
        if not claim.alive():
            raise Fenced
        if work.stopped and await was_withdrawn(self._database, item):
            return await self._save(Settlement(item, "cancelled", None, None, error_class="rerouted"), claim)
        try:
            work = await self._listen_to(item, work, claim)
        except NotHeardYet as not_yet:
            await self._retry(_not_heard(item, not_yet), work, claim)
            return None
        settlement = await self._with_question(await self._attempt(item, work, claim), work)
        if settlement.outcome == "failed" and settlement.dead_letter is None:
            await self._retry(settlement, work, claim)
            return None
        following = await self._save(settlement, claim)
        self._announce(work, settlement)
        return following

    async def _save(self, settlement: Settlement, claim: Claim) -> Item | None:
        """Write the end of a turn; returns the next item of the lane if this worker keeps the lane."""
        point("before_complete")
        settled = await self._store_settlement(replace(settlement, hand_on=claim.keeps()), claim.worker)
        point("after_complete")
        if not settled.ok:
            raise Fenced
        return None if settled.next_seq is None else replace(settlement.item, seq=settled.next_seq, attempts=1)

    async def _store_settlement(self, settlement: Settlement, worker: int) -> store.SettlementOutcome:
        if settlement.handed_on is not None:
            return await store.hand_on(self._database, worker, settlement, settlement.handed_on)
        return await self._settle_batch(worker).put(settlement)

    async def _listen_to(self, item: Item, work: Work, claim: Claim) -> Work:
        """The work with what the recordings of the message say; a part that a model has cut has it already."""
        if self._hearing is None or work.whole_text is not None or work.stopped:
            return work
        heard = await self._hearing.listen(item, claim, work.request_id, work.envelope)
        return replace(work, envelope=with_transcripts(work.envelope, heard)) if heard else work

    def _unreadable(self, item: Item, error: Exception) -> Settlement:
        """End an item whose message this release cannot read; nobody is notified, as nobody could read it."""
        reason = storable_text(f"the message cannot be read: {error}")[:2000]
        dead_letter = NewDeadLetter(new_uuid7(), "poison", reason, None) if item.kind == TURN.name else None
        return Settlement(
            item,
            "failed" if dead_letter else "refused",
            *(None, None),
            error_class="poison",
            error=reason,
            dead_letter=dead_letter,
        )

    async def _attempt(self, item: Item, work: Work, claim: Claim) -> Settlement:
        """Run the engine and return its outcome as one value."""
        member = self._find_receiver(work)
        draft = Settlement(
            item,
            "failed",
            engine=None if member is None else member.engine,
            started_at=datetime.now(UTC),
            pause=False,
        )
        engine = None if member is None else self._engines.get(member.engine)
        if item.attempts > self._limits.attempts:
            return self._dead_letter(draft, work, "poison", f"given up after {self._limits.attempts} attempts")
        remote_agent = self._rule_book.remote_agents.get(work.system_id)
        barred = remote_agent is not None and remote_agent.by
        if member is None or engine is None or barred:
            return self._dead_letter(draft, work, "target_unavailable", _nobody(work, member, remote_agent))
        result = await self._run(draft, work, member, engine, claim)
        return result if isinstance(result, Settlement) else await self._settle_result(draft, work, member, result)

    def _find_receiver(self, work: Work) -> Member | None:
        """Who is to answer; for a call of a tool, the butler with the engine that makes it instead of its own.

        So it is for an answer to a mail of the butler, which tells of it.
        """
        member = self._rule_book.rules.members.get(work.system_id)
        if member is None:
            return built_in(work.system_id, work.team_id)
        if work.dead_letter is not None:
            return member
        if work.envelope.control.answers_mail is not None:
            return replace(member, engine=ANSWERED_MAIL)
        if not is_call(work.envelope):
            return member
        # The limit of a turn says nothing about a call.
        options = {name: value for name, value in member.options.items() if name != "timeout"}
        return replace(member, engine=CALL, options=options)

    async def _run(
        self, draft: Settlement, work: Work, member: Member, engine: Engine, claim: Claim
    ) -> TurnResult | Settlement:
        """The engine's result, or how the attempt ended without one."""
        item = draft.item
        journal = await StoredJournal.open(claim.steps, item, work.request_id, resumed=work.resumed)
        turn = turn_of(work, member, item.attempts)
        turn = dataclasses.replace(
            turn, keeps=partial(claim.steps.keep, item), below=self._below(member), drain=claim.drain
        )
        try:
            async with journal, asyncio.timeout(self._patience(member)):
                return await self._ran(item, work, turn, engine, journal)
        except OutcomeUnknown as error:
            return self._dead_letter(replace(draft, outcome="unknown"), work, "outcome_unknown", str(error))
        except TimeoutError:
            slow = EngineFailure("the turn took too long", error_class="timeout")
            return self._settle_failure(_reset_attempts(draft, journal), work, slow)
        except Outage as error:
            return await self._away(_reset_attempts(draft, journal), work, error, claim)
        except Parked:
            await self._tell_what_waits(item, work, member, claim)
            raise
        except EngineFailure as error:
            return self._settle_failure(_reset_attempts(draft, journal), work, error)

    async def _ran(self, item: Item, work: Work, turn: Turn, engine: Engine, journal: StoredJournal) -> TurnResult:
        """Some engines can be stopped midway; for the others, the next attempt is skipped."""
        if self._can_be_stopped(turn.member):
            async with watch_for_stop(self._database, self._notifier, item, stopped=work.stopped) as stop:
                with self._deltas.publishing(item, work) as on_delta:
                    return await engine.run(dataclasses.replace(turn, stop=stop, on_delta=on_delta), journal)
        if work.stopped and (item.attempts > 1 or work.resumed):
            return Answer(STOPPED, stop_reason="aborted")
        return await engine.run(turn, journal)

    def _below(self, member: Member) -> Callable[[], Mapping[str, str]]:
        book = self._rule_book
        return lambda: below(book.rules, book.remote_agents, member.team_id)

    def _can_stop(self, system_id: SystemId) -> bool:
        member = self._rule_book.rules.members.get(system_id)
        return member is not None and self._can_be_stopped(member)

    def _can_be_stopped(self, member: Member) -> bool:
        engine = self._stoppable.get(member.engine)
        return engine is not None and engine.stoppable

    def _patience(self, member: Member) -> float:
        """Slightly above the engine's own limit, whose error is more specific. The engine rejects non-numbers."""
        own = member.options.get("timeout")
        if own is None and (engine := self._patient.get(member.engine)) is not None:
            return engine.patience(member)
        return own + 5.0 if isinstance(own, (int, float)) and own > 0 else self._limits.timeout

    async def _settle_result(self, begun: Settlement, work: Work, member: Member, result: TurnResult) -> Settlement:
        turn = turn_of(work, member, 1)
        said = await self._history_addition(turn, result.entries, result.remembered) if result.entries else None
        warning = storable_text(result.warning)[:2000] or None
        draft = replace(begun, stop_reason=result.stop_reason, usage=result.usage, said=said, error=warning)
        if isinstance(result, Refusal):
            return self._dead_letter(replace(draft, outcome="refused"), work, "refused", result.reason)
        if isinstance(result, HandedOn):
            return await self._handed_on(draft, work, member, result)
        if isinstance(result, NoReply):
            return replace(draft, outcome="declined", error=storable_text(result.reason) or None)
        if work.dead_letter is not None:
            return replace(draft, outcome="answered")  # a notice has nobody to reply to
        files = await self._files(work, result)
        text = storable_text("\n".join(filter(None, (result.text, *files.lines))))
        allowed = member.options.get("reply_to_automatic") is True
        if sign := await self._replies.withheld(work, allowed=allowed):
            reason = f"no reply is made to automatic messages ({sign}); it would have been: {text}"
            return replace(draft, outcome="declined", error=storable_text(reason)[:2000], said=None)
        pool = self._replies.pool(work)
        return replace(draft, outcome="answered", outbox_id=new_uuid7(), text=text, files=files.files, pool=pool)

    async def _handed_on(self, draft: Settlement, work: Work, member: Member, result: HandedOn) -> Settlement:
        """The write that ends this turn also hands the message on.

        If nobody takes it, it becomes a dead letter here.
        """
        to = storable_text(result.to)[:200]
        if work.dead_letter is not None:
            return replace(draft, outcome="refused", error="a dead letter is sent on by rerouting it")
        known = await store.facts_of(self._database, draft.item)
        found = decide_next_receiver(self._rule_book.rules, member, to, storable_text(result.reason)[:1000], known)
        if found is None:
            reason = f"{to} is not a butler or team below {member.team_id}, so the message cannot be handed on"
            return self._dead_letter(draft, work, "target_unavailable", reason)
        if not found.chosen:
            lost = found.unrouted[0]
            return self._dead_letter(draft, work, lost.category, f"handed on to {to}: {lost.reason}")
        error = "; ".join(filter(None, (f"handed on to {to}", draft.error)))[:2000]
        return replace(draft, outcome="declined", error_class="handed_on", error=error, handed_on=found)

    async def _files(self, work: Work, answer: Answer) -> ChosenFiles:
        """The files that the answer may contain: knowing a hash does not give a butler access to its blob."""
        blobs = {blob for one in answer.attachments if (blob := stored_blob(one)) is not None}
        stored = await sendable(self._database, blobs, work.request_id, work.system_id) if blobs else {}
        return choose_files(answer.attachments, stored, self._limits.reply_files)

    async def _history_addition(
        self, turn: Turn, entries: tuple[Entry, ...], remembered: tuple[OwnWords, ...] = ()
    ) -> HistoryAddition | None:
        """The record kept of the turn; a notice is not a conversation."""
        if turn.dead_letter is not None:
            return None
        return HistoryAddition(await self._replies.reader(turn), turn.received_at, entries, remembered)

    async def _with_question(self, ended: Settlement, work: Work) -> Settlement:
        """The end of a turn that became a dead letter, with what it was asked, so that later turns know of it."""
        member = self._find_receiver(work)
        if ended.dead_letter is None or ended.said is not None or member is None:
            return ended
        if member.engine not in self._remembering:
            return ended
        turn = turn_of(work, member, 1)
        return replace(ended, said=await self._history_addition(turn, (entry_of(turn, ()),)))

    async def _away(self, draft: Settlement, work: Work, error: Outage, claim: Claim) -> Settlement:
        """The lane waits, to keep its order; a shared outage does not count as an attempt of this message."""
        policy = self._limits.outage
        elapsed = max(0.0, (datetime.now(UTC) - error.since).total_seconds())
        failed = replace(draft, error_class=error.error_class, error=storable_text(str(error))[:2000])
        if elapsed >= policy.given_up:
            reason = f"given up after {elapsed / 3600:.1f} h: {error}"
            return self._dead_letter(failed, work, "retry_exhausted", reason)
        if elapsed >= policy.told and work.dead_letter is None and not await self._replies.withheld(work):
            await self._tell_of_delay(draft.item, work, claim)
        pause = outage_pause(policy, elapsed, error.retry_after, jitter=random.random())
        return replace(failed, item=replace(draft.item, attempts=draft.item.attempts - 1), retry_in=pause)

    async def _tell_of_delay(self, item: Item, work: Work, claim: Claim) -> None:
        pool = self._replies.pool(work)
        if await store.tell_of_delay(self._database, claim.worker, item, DELAYED, pool):
            self._announce_reply(pool)

    async def _tell_what_waits(self, item: Item, work: Work, member: Member, claim: Claim) -> None:
        """Machines are not told: two of them could otherwise answer each other forever."""
        if is_call(work.envelope):
            self._notifier.notify(settled_topic(work.request_id))  # its caller asks what it waits for
            return
        if work.dead_letter is not None or await self._replies.withheld(work):
            return
        pool = self._replies.pool(work)
        reader = await self._replies.reader(turn_of(work, member, 1))
        decides = decides_in_chat(member, work.envelope, reader)
        mark = self._replies.channel_of(work.envelope).command_mark
        if await tell(self._database, claim.worker, item, PlaceOfAsking(pool, decides, mark)):
            self._announce_reply(pool)

    def _settle_failure(self, draft: Settlement, work: Work, error: EngineFailure) -> Settlement:
        failed = replace(draft, error_class=error.error_class, error=storable_text(str(error))[:2000])
        if not error.retryable:
            return self._dead_letter(failed, work, "target_unavailable", str(error))
        # Silence is only a suspicion, so a butler quarantined for it was asked once more, and now we know.
        remote_agent = self._rule_book.remote_agents.get(work.system_id)
        if remote_agent is not None and remote_agent.away:
            return self._dead_letter(
                failed, work, "target_unavailable", f"quarantined: {remote_agent.why}; and now: {error}"
            )
        if draft.item.attempts >= self._limits.attempts:
            return self._dead_letter(failed, work, "retry_exhausted", str(error))
        return failed

    def _dead_letter(self, draft: Settlement, work: Work, category: DeadLetterCategory, reason: str) -> Settlement:
        """End a delivery that could not be carried out; a notice does not become a dead letter."""
        clean = storable_text(reason)[:2000]
        ended = replace(draft, error=draft.error or clean, error_class=draft.error_class or category)
        if work.dead_letter is not None:
            return replace(ended, outcome="refused" if draft.outcome == "failed" else draft.outcome)
        rules = self._rule_book.rules
        handler = rules.index.handler(work.team_id)
        member = rules.members.get(work.system_id)
        pause = member is not None and member.options.get("on_dead") == "pause"
        return replace(ended, dead_letter=NewDeadLetter(new_uuid7(), category, clean, handler), pause=pause)

    async def _retry(self, settlement: Settlement, work: Work, claim: Claim) -> None:
        limits, attempt = self._limits, settlement.item.attempts
        delay = settlement.retry_in
        if delay is None:
            delay = backoff(attempt, base=limits.backoff_base, cap=limits.backoff_cap, jitter=random.random())
        if not await store.retry(self._database, claim.worker, settlement, delay):
            raise Fenced
        # Not the error itself, which may quote the message: `explain` shows it.
        why = {"attempt": attempt, "error_class": settlement.error_class, "retry_in_s": round(delay, 2)}
        log.info("turn failed", request_id=str(work.request_id), system_id=work.system_id, **why)

    def _settle_batch(self, worker: int) -> BatchWriter[Settlement, store.SettlementOutcome]:
        """Turns of one worker id are settled together; the end of a session ends its batch."""
        if worker not in self._settle:
            self._settle = {worker: BatchWriter(lambda batch: store.settle(self._database, worker, batch))}
        return self._settle[worker]

    def _announce(self, work: Work, settlement: Settlement) -> None:
        self._notifier.notify(settled_topic(work.request_id))
        self._announce_reply(settlement.pool)
        if settlement.dead_letter is not None or settlement.handed_on is not None:
            self._notifier.notify(WORK)

    def _announce_reply(self, pool: str | None) -> None:
        if pool is not None:
            self._notifier.notify(WORK if pool == WORK_POOL.name else outbox_topic(pool))


def _reset_attempts(draft: Settlement, journal: StoredJournal) -> Settlement:
    """After progress, the next failure counts as the first again, since the next attempt starts further on."""
    return replace(draft, item=replace(draft.item, attempts=1)) if journal.progressed else draft


def _nobody(work: Work, member: Member | None, remote_agent: RemoteAgent | None) -> str:
    """Why there is no butler to ask."""
    if member is None:
        return f"{work.system_id} is no longer a member"
    if remote_agent is not None and remote_agent.by:
        return f"quarantined: {remote_agent.why}"
    return f"no engine {member.engine!r}"


def _not_heard(item: Item, not_yet: NotHeardYet) -> Settlement:
    """An attempt that gave its place away because it is not known yet what the message says; it does not count."""
    return Settlement(
        replace(item, attempts=item.attempts - 1),
        "failed",
        *(None, datetime.now(UTC)),
        error_class="target_unavailable",
        error=storable_text(f"not transcribed yet: {not_yet}")[:2000],
        retry_in=not_yet.retry_in,
    )

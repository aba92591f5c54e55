"""Classify: a message that no rule decided, and those behind it in its conversation, are decided in turn.

The worker (`lanes/worker.py`) calls `RouteLeg` with a claimed item of a `route:` lane. It is decided by the current
rules; wherever they require a model, the `Classifier` is asked. The decision, its deliveries and the advance to the
next item are settled in one fenced transaction. Next: `ask.py` for the question, then `turn.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.classification.prompt import AskedMessage
from switchboard.core.envelope.stored import stored_envelope
from switchboard.core.passages.folding import answers_something, folded
from switchboard.core.passages.own import passages_of
from switchboard.core.passages.showing import plain_text
from switchboard.core.policy.retry import backoff
from switchboard.core.policy.tiers import TIERS, tier_of
from switchboard.core.routing.decide import decide_with, is_kept, keep
from switchboard.core.routing.due import decide_task
from switchboard.core.routing.scope import subtree
from switchboard.core.text.storable import storable_text
from switchboard.core.voice.transcripts import HeardRecording, has_only_silence, with_transcripts
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.domain.routing import Classified, Decision, Route, SystemId, Target, TrailStep, Undecided, Unrouted
from switchboard.journey.ask import Classifier, ClassifierBusy, ClassifierFailure, Question
from switchboard.journey.candidates import candidate_of
from switchboard.journey.hearing import Listens, NotHeardYet
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.faults import point
from switchboard.lanes.journal import StoredJournal
from switchboard.lanes.kinds import Claim
from switchboard.lanes.notifier import WORK, Notifier, settled_topic
from switchboard.ports.engine import Fenced, OutcomeUnknown
from switchboard.store.database import Database
from switchboard.store.work import lanes, ledger
from switchboard.store.work import routing as store
from switchboard.store.work.lanes import Settlement
from switchboard.store.work.routing import Routed, WaitingMessage

log = structlog.get_logger(__name__)

_MAX_REASON: Final = 2000
_FAILED: Final = "classification"
_NOT_ASKED: Final = "not_asked"
_SILENT: Final = "no speech was recognised in it"


class RouteLimits(Struct, frozen=True):
    """`attempts` of one message, lost workers included; seconds of `timeout` for one team; backoff in seconds.

    `patience`: for how many seconds after its arrival a message waits for models that ask for a pause. After that its
    remaining attempts are made at once, so that its conversation is not held up for hours. Until then, an attempt in
    which no model could be asked does not count.
    """

    attempts: int = 5
    timeout: float = 120.0
    backoff_base: float = 1.0
    backoff_cap: float = 60.0
    patience: float = 900.0


class _NotYetError(Exception):
    """The message cannot be decided in this attempt; `kind` says whether the attempt counts."""

    def __init__(self, reason: str, retry_in: float, kind: str) -> None:
        super().__init__(reason)
        self.retry_in = retry_in
        self.kind = kind


class _Case(Struct, frozen=True):
    """A claimed item and its message. `item.attempts` count; in further `pauses`, no model was asked."""

    item: Item
    waiting: WaitingMessage
    pauses: int = 0
    heard: Sequence[HeardRecording] = ()
    """What its recordings say, once it has to be asked whom it is for."""

    @property
    def envelope(self) -> Envelope:
        """The message as it arrived."""
        return stored_envelope(self.waiting.envelope)


class RouteLeg:
    """Handles `route:` lanes. Without a classifier it still decides; asking one then counts as failed.

    Without `hearing`, recordings are files like any other.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        rule_book: RuleBook,
        classifier: Classifier | None,
        limits: RouteLimits,
        *,
        hearing: Listens | None = None,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._rule_book = rule_book
        self._classifier = classifier
        self._limits = limits
        self._hearing = hearing

    async def __call__(self, item: Item, claim: Claim) -> Item | None:
        started = datetime.now(UTC)
        waiting = await store.load_route(self._database, item)
        pauses = await self._pauses(item, waiting)
        item = replace(item, attempts=item.attempts - pauses)
        if not self._rule_book.queued:
            # Another process asks models, and this one has not noticed yet: its own rules might choose nobody.
            await self._rule_book.refresh()
        case = _Case(item, waiting, pauses)
        try:
            return await self._save(await self._decide(case, claim), item, waiting, claim, started)
        except _NotYetError as reason:
            await self._retry(case, claim, reason, started)
            return None
        except (Fenced, Unavailable):
            raise
        except Exception as error:
            # The worker retries unexpected errors, but not forever: the conversation waits behind this item.
            if item.attempts <= self._limits.attempts:
                raise
            log.exception("given up", lane=item.lane, seq=item.seq, request_id=str(waiting.request_id))
            return await self._save(self._poison(error), item, waiting, claim, started)

    def _poison(self, error: Exception) -> Decision:
        """End a message that cannot be routed, or whose decision cannot be stored, as a dead letter of the root."""
        index = self._rule_book.rules.index
        why = storable_text(f"the message cannot be routed: {type(error).__name__}: {error}")[:_MAX_REASON]
        lost = Unrouted(index.root, "poison", why, index.handler(index.root))
        return Decision(index.version, (), (lost,), (TrailStep(index.root, "classification_failed", detail=why),))

    async def _pauses(self, item: Item, waiting: WaitingMessage) -> int:
        """The number of attempts that asked no model, which do not count."""
        if item.attempts <= 1:
            return 0
        made = await ledger.route_attempts_of(self._database, waiting.request_id)
        here = [one for one in made if one.seq == item.seq]
        return sum(one.error_class == _NOT_ASKED for one in here)

    async def _save(
        self, decision: Decision, item: Item, waiting: WaitingMessage, claim: Claim, started: datetime
    ) -> Item | None:
        """Write the end of an item; returns the next one of the lane if this worker keeps the lane."""
        routed = Routed(item, decision, _tier(waiting), started, claim.keeps())
        point("before_route")
        settled = await store.settle_route(self._database, claim.worker, routed)
        point("after_route")
        if not settled.ok:
            raise Fenced
        self._notifier.notify(WORK)
        self._notifier.notify(settled_topic(waiting.request_id))
        return None if settled.next_seq is None else replace(item, seq=settled.next_seq, attempts=1)

    async def _decide(self, case: _Case, claim: Claim) -> Decision:
        """Walk down the current rules, from the top after every answer: they may have changed during the wait.

        Each decision thus belongs to one version of the rules, and only current candidates can be chosen.
        """
        answers: dict[Undecided, Classified] = {}
        journal: StoredJournal | None = None
        waiting = case.waiting
        if is_kept(kept := stored_envelope(waiting.envelope), waiting.pinned):
            return keep(self._rule_book.rules.index, waiting.facts, kept.event.kind)
        if kept.control.task is not None:
            return decide_task(self._rule_book.rules.index, waiting.facts, waiting.pinned, kept.control.task)
        while isinstance(
            found := decide_with(self._rule_book.rules.index, waiting.facts, answers, waiting.pinned), Undecided
        ):
            if case.item.attempts > self._limits.attempts:
                answers[found] = Classified(failed=f"given up after {self._limits.attempts} attempts")
                continue
            if journal is None:
                case = await self._listen_to(case, claim)
                journal = await StoredJournal.open(claim.steps, case.item, waiting.request_id, resumed=waiting.resumed)
            answers[found] = await self._ask(found, case, journal)
        if journal is not None:
            await journal.flush()
        return found

    async def _listen_to(self, case: _Case, claim: Claim) -> _Case:
        """The case with what its recordings say. Raises _NotYetError; waiting for it is no attempt."""
        if self._hearing is None:
            return case
        try:
            heard = await self._hearing.listen(case.item, claim, case.waiting.request_id, case.envelope)
        except NotHeardYet as not_yet:
            raise _NotYetError(str(not_yet), not_yet.retry_in, _NOT_ASKED) from not_yet
        return replace(case, heard=heard)

    async def _ask(self, asked: Undecided, case: _Case, journal: StoredJournal) -> Classified:
        """The classifier's answer for one team. In the last attempt, a failure counts as an answer."""
        if self._classifier is None:
            return Classified(failed="there is no model to ask")
        if has_only_silence(case.envelope, case.heard):
            return await self._choose_without_words(asked, case)
        question = self._question(asked, case)
        try:
            async with asyncio.timeout(self._limits.timeout):
                return await self._classifier.ask(question, journal)
        except TimeoutError:
            return self._handle_failure(case, ClassifierFailure("it took too long to classify"))
        except OutcomeUnknown as error:
            return Classified(failed=storable_text(str(error)))
        except ClassifierFailure as error:
            return self._handle_failure(case, error)

    async def _choose_without_words(self, asked: Undecided, case: _Case) -> Classified:
        """Whom the sender last wrote to: a model that is shown no words would only guess."""
        last = await store.last_butler(self._database, case.waiting.request_id)
        targets = self._rule_book.rules.index.candidates(asked.team_id)
        target = next((one for one in targets if last is not None and self._leads_to(one, SystemId(last))), None)
        if target is None:
            return Classified(failed=f"{_SILENT}, and its sender has not written to any of these butlers before")
        return Classified((Route(target),), detail=f"{_SILENT}, so no model was asked: to whom its sender last wrote")

    def _leads_to(self, target: Target, system_id: SystemId) -> bool:
        """Whether a candidate is this butler, or a team above it."""
        rules = self._rule_book.rules
        if target.team_id is None:
            return target.system_id == system_id
        member = rules.members.get(system_id)
        return member is not None and member.team_id in subtree(rules.teams, target.team_id)

    def _handle_failure(self, case: _Case, error: ClassifierFailure) -> Classified:
        """The failure as an answer if another attempt would be pointless. Raises _NotYetError otherwise."""
        reason, limits, attempts = storable_text(str(error))[:_MAX_REASON], self._limits, case.item.attempts
        left = limits.patience - (datetime.now(UTC) - case.waiting.received_at).total_seconds()
        busy = error if isinstance(error, ClassifierBusy) else None
        pausing = busy is not None and not busy.asked and left > 0
        if not error.retryable or (attempts >= limits.attempts and not pausing):
            return Classified(failed=reason)
        tries = attempts + case.pauses if pausing else attempts
        delay = backoff(tries, base=limits.backoff_base, cap=limits.backoff_cap, jitter=random.random())
        if busy is not None:
            delay = max(delay, min(busy.retry_in, left))
        raise _NotYetError(reason, delay, _NOT_ASKED if pausing else _FAILED)

    def _question(self, asked: Undecided, case: _Case) -> Question:
        item, waiting, rules = case.item, case.waiting, self._rule_book.rules
        envelope = with_transcripts(case.envelope, case.heard)
        sender, targets = envelope.sender, rules.index.candidates(asked.team_id)
        message = AskedMessage(
            _text_for_model(envelope) if asked.segment is None else asked.segment,
            envelope.source.channel,
            sender.identity,
            sender.display_name,
            sender.chat_type,
            envelope.event.observed_at.isoformat(),
        )
        return Question(
            waiting.request_id,
            waiting.conversation,
            asked.team_id,
            message,
            tuple(envelope.payload.attachments),
            tuple(candidate_of(target, rules.teams, self._rule_book.remote_agents) for target in targets),
            targets,
            attempt=item.attempts,
        )

    async def _retry(self, case: _Case, claim: Claim, reason: _NotYetError, started: datetime) -> None:
        made = replace(case.item, attempts=case.item.attempts + case.pauses)  # as the lane counts them
        failed = Settlement(made, "failed", None, started, error_class=reason.kind, error=str(reason))
        if not await lanes.retry(self._database, claim.worker, failed, reason.retry_in):
            raise Fenced
        # Not the reason itself, which may quote the message: `explain` shows it.
        why = {"attempt": case.item.attempts, "error_class": reason.kind, "retry_in_s": round(reason.retry_in, 2)}
        log.info("not classified", request_id=str(case.waiting.request_id), **why)


def _text_for_model(envelope: Envelope) -> str:
    """The text for a model that classifies, which need not read the history of a reply."""
    passages = passages_of(envelope)
    shown = folded(passages, answers_something(passages))
    return plain_text(shown) if any(one.folded for one in shown) else envelope.payload.normalized_text


def _tier(waiting: WaitingMessage) -> int:
    """The tier, by the sender's request and the message's age; None if this release cannot read the envelope."""
    try:
        return tier_of(stored_envelope(waiting.envelope), waiting.received_at)
    except msgspec.ValidationError:
        return TIERS["default"]

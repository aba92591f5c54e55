"""Classify: a message that no rule decided, and those behind it in its conversation, are decided one after the other.

The worker (`lanes/worker.py`) calls `RouteLeg` with a claimed item of a `route:` lane. It is decided by the rules of
now; wherever they say that a model must be asked, the `Classifier` is. The decision, its deliveries and the step to the
next item are settled in one fenced transaction. Next: `turn.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec
import structlog

from switchboard.core.policy.retry import backoff
from switchboard.core.routing.decide import deciding
from switchboard.core.stored import stored_envelope
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.pipeline import Candidate
from switchboard.domain.remote import Presence, self_description
from switchboard.domain.routing import Classified, Decision, SystemId, Target, Team, TrailStep, Undecided, Unrouted
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.bell import WORK, Bell, settled_topic
from switchboard.lanes.faults import point
from switchboard.lanes.journal import Fenced, Journal, NamedJournal, OutcomeUnknown
from switchboard.lanes.worker import Hold
from switchboard.store import lanes, ledger
from switchboard.store import routing as store
from switchboard.store.database import Database, storable_text
from switchboard.store.inbox import TIERS
from switchboard.store.lanes import Settlement
from switchboard.store.routing import Routed, Waiting

log = structlog.get_logger(__name__)

_MAX_REASON: Final = 2000
_FAILED: Final = "classification"
_NOT_ASKED: Final = "not_asked"


class ClassifierFailure(Exception):
    """No model could be asked, or none gave an answer. Retryable ones are tried again, the others end the matter."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class ClassifierBusy(ClassifierFailure):
    """Not now: try again in `retry_in` seconds at the earliest. `asked`: whether any model was asked at all."""

    def __init__(self, message: str, *, retry_in: float = 0.0, asked: bool = True) -> None:
        super().__init__(message)
        self.retry_in = retry_in
        self.asked = asked


@dataclass(frozen=True, slots=True)
class Question:
    """To which of the candidates of `team` does this message, or the `segment` of it that came there, go?

    `candidates` and `targets` are side by side: a candidate is called by its system_id or team_id.
    """

    request_id: RequestId
    conversation: Conversation
    team: Team
    candidates: tuple[Candidate, ...]
    targets: tuple[Target, ...]
    envelope: Envelope
    facts: Mapping[str, str]
    received_at: datetime
    lane: LaneKey
    seq: int
    attempt: int
    segment: str | None = None

    @property
    def text(self) -> str:
        """What is to be classified."""
        return self.envelope.payload.normalized_text if self.segment is None else self.segment


class Classifier(Protocol):
    """Asks models. What is not to be paid for twice goes through `journal.step`, named `classify <team_id> <digest>`.

    The digest is that of the text. The journal knows steps by their names, whatever their order: the rules may change
    between two attempts, and with them which part of the message comes to a team.
    """

    async def classify(self, question: Question, journal: Journal) -> Classified:
        """Who gets it. Raises `ClassifierFailure`; `Fenced`, `OutcomeUnknown` and `Unavailable` pass through."""
        ...


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """`attempts` of one message, lost workers included; seconds of `timeout` for one team; backoff in seconds.

    `patience`: so many seconds after it arrived, a message waits no more for a model that asks for a pause. What is
    left of its attempts is made at once, so that its conversation is not held up for hours. Until then an attempt in
    which nobody could be asked is none.
    """

    attempts: int = 5
    timeout: float = 120.0
    backoff_base: float = 1.0
    backoff_cap: float = 60.0
    patience: float = 900.0


class _NotYetError(Exception):
    """The message cannot be decided at this attempt; `kind` says whether that counts as one."""

    def __init__(self, reason: str, retry_in: float, kind: str) -> None:
        super().__init__(reason)
        self.retry_in = retry_in
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Case:
    """A claimed item and its message. Of its attempts `item.attempts` count; in `pauses` of them nobody was asked."""

    item: Item
    waiting: Waiting
    pauses: int = 0


class RouteLeg:
    """Handles `route:` lanes. Without a classifier it decides all the same: a team that would ask one has failed."""

    def __init__(
        self, database: Database, bell: Bell, rule_book: RuleBook, classifier: Classifier | None, limits: RouteLimits
    ) -> None:
        self._database = database
        self._bell = bell
        self._rule_book = rule_book
        self._classifier = classifier
        self._limits = limits

    async def __call__(self, item: Item, hold: Hold) -> Item | None:
        started = datetime.now(UTC)
        waiting = await store.load_route(self._database, item)
        pauses = await self._pauses(item, waiting)
        item = replace(item, attempts=item.attempts - pauses)
        if not self._rule_book.queued:
            # Somebody asks models, and this process has not heard of it: by its own rules nobody might get the message.
            await self._rule_book.refresh()
        try:
            return await self._save(
                await self._decide(_Case(item, waiting, pauses), hold), item, waiting, hold, started
            )
        except _NotYetError as reason:
            await self._retry(item, hold, reason, started)
            return None
        except (Fenced, Unavailable):
            raise
        except Exception as error:
            # What nobody foresaw is tried again by the worker, but not for ever: the conversation waits behind it.
            if item.attempts <= self._limits.attempts:
                raise
            log.exception("given up", lane=item.lane, seq=item.seq, request_id=str(waiting.request_id))
            return await self._save(self._poison(error), item, waiting, hold, started)

    def _poison(self, error: Exception) -> Decision:
        """The end of a message whose way cannot be decided, or its decision not be stored: a letter of the root."""
        index = self._rule_book.rules.index
        why = storable_text(f"the message cannot be routed: {type(error).__name__}: {error}")[:_MAX_REASON]
        lost = Unrouted(index.root, "poison", why, index.handler(index.root))
        return Decision(index.version, (), (lost,), (TrailStep(index.root, "classification_failed", detail=why),))

    async def _pauses(self, item: Item, waiting: Waiting) -> int:
        """How many of its attempts asked nobody: they do not count."""
        if item.attempts <= 1:
            return 0
        made = await ledger.route_attempts_of(self._database, waiting.request_id)
        here = [one for one in made if (one.lane, one.seq) == (item.lane, item.seq)]
        return sum(one.error_class == _NOT_ASKED for one in here)

    async def _save(
        self, decision: Decision, item: Item, waiting: Waiting, hold: Hold, started: datetime
    ) -> Item | None:
        """Write the end of an item; gives the next one of the lane if it was handed on."""
        routed = Routed(item, waiting.conversation, decision, _tier(waiting), started, hold.hand_on)
        point("before_route")
        settled = await store.settle_route(self._database, hold.worker, routed)
        point("after_route")
        if not settled.ok:
            raise Fenced
        self._bell.ring(WORK)
        self._bell.ring(settled_topic(waiting.request_id))
        return None if settled.next_seq is None else replace(item, seq=settled.next_seq, attempts=1)

    async def _decide(self, case: _Case, hold: Hold) -> Decision:
        """Walk down by the rules of now, from the top after every answer: rules may have changed while it was awaited.

        So a decision is of one version of the rules, and nobody is chosen who is no candidate any more.
        """
        answers: dict[Undecided, Classified] = {}
        journal: Journal | None = None
        while isinstance(found := self._walk(case.waiting, answers), Undecided):
            if case.item.attempts > self._limits.attempts:
                answers[found] = Classified(failed=f"given up after {self._limits.attempts} attempts")
                continue
            if journal is None:
                journal = await NamedJournal.open(self._database, hold.worker, case.item)
            answers[found] = await self._ask(found, case, journal)
        return found

    def _walk(self, waiting: Waiting, answers: Mapping[Undecided, Classified]) -> Decision | Undecided:
        """The decision, or the first team whose answer is not there yet."""
        walk = deciding(self._rule_book.rules.index, waiting.facts, waiting.pinned)
        try:
            asked = next(walk)
            while asked in answers:
                asked = walk.send(answers[asked])
        except StopIteration as end:
            decision: Decision = end.value
            return decision
        walk.close()
        return asked

    async def _ask(self, asked: Undecided, case: _Case, journal: Journal) -> Classified:
        """The classifier's answer for one team. At the last attempt whatever goes wrong is an answer, too."""
        if self._classifier is None:
            return Classified(failed="there is no model to ask")
        question = self._question(asked, case)
        try:
            async with asyncio.timeout(self._limits.timeout):
                return await self._classifier.classify(question, journal)
        except TimeoutError:
            return self._failed(case, ClassifierFailure("it took too long to classify"))
        except OutcomeUnknown as error:
            return Classified(failed=storable_text(str(error)))
        except ClassifierFailure as error:
            return self._failed(case, error)

    def _failed(self, case: _Case, error: ClassifierFailure) -> Classified:
        """An answer, when it is not worth another attempt. Raises _NotYetError when it is."""
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
        item, waiting = case.item, case.waiting
        rules = self._rule_book.rules
        team = next(team for team in rules.teams if team.team_id == asked.team_id)
        targets = rules.index.candidates(asked.team_id)
        return Question(
            request_id=waiting.request_id,
            conversation=waiting.conversation,
            team=team,
            candidates=tuple(_candidate(target, rules.teams, self._rule_book.presences) for target in targets),
            targets=targets,
            envelope=stored_envelope(waiting.envelope),
            facts=waiting.facts,
            received_at=waiting.received_at,
            lane=item.lane,
            seq=item.seq,
            attempt=item.attempts,
            segment=asked.segment,
        )

    async def _retry(self, item: Item, hold: Hold, reason: _NotYetError, started: datetime) -> None:
        failed = Settlement(item, "failed", None, started, error_class=reason.kind, error=str(reason))
        if not await lanes.retry(self._database, hold.worker, failed, reason.retry_in):
            raise Fenced
        log.info("not classified", lane=item.lane, error=str(reason), retry_in_s=round(reason.retry_in, 2))


def _tier(waiting: Waiting) -> int:
    """What the sender asked for; an envelope that this release cannot read asks for nothing."""
    try:
        return TIERS[stored_envelope(waiting.envelope).control.policy_tier]
    except msgspec.ValidationError:
        return TIERS["default"]


def _candidate(target: Target, teams: tuple[Team, ...], presences: Mapping[SystemId, Presence]) -> Candidate:
    if target.team_id is not None:
        team = next(team for team in teams if team.team_id == target.team_id)
        return Candidate(team.team_id, team.purpose)
    member = next(one for team in teams for one in team.members if one.system_id == target.system_id)
    return Candidate(member.system_id, *self_description(member, presences.get(member.system_id)))

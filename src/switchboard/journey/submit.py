"""The leg for messages that another program submits through `MessagePipeline`: decided first, then accepted.

In: a message, the question about it, and a function that answers questions; out: a `RoutingResult`, and the message in
the inbox with its decision and deliveries. Reasons for this order: docs/decisions/0058. Next: `ask.py`,
`store/messages/inbox.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.judge import resolve
from switchboard.core.classification.result import result_of
from switchboard.core.envelope.content import compared_content
from switchboard.core.envelope.identity import content_of, conversation, dedupe_key, key_of_its_own, named_in, thread_of
from switchboard.core.routing.decide import decide_with
from switchboard.core.routing.facts import facts
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.classification import Candidate, RoutedPart, RoutingResult
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import Classified, Decision, Target, TeamId, Undecided
from switchboard.journey.ask import Question, SessionOutcome, classified_from_outcome
from switchboard.journey.candidates import Live, read_live
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.store.database import Database
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Arrival
from switchboard.store.models import classification as store

Answers = Callable[[Question], Awaitable[SessionOutcome]]
"""Answers a question and records what it cost."""


class DecidedSubmission(Struct, frozen=True):
    """A message and the question about it; the answer is the choice for the first team."""

    message: Message
    question: Question
    answer: SessionOutcome


class SubmitLeg:
    """Stores decisions made elsewhere. `snapshots` is the same database, read in snapshots ("repeatable read")."""

    def __init__(self, database: Database, snapshots: Database) -> None:
        self._database = database
        self._snapshots = snapshots
        self._notifier = Notifier(database)

    async def check_month(self, request_id: RequestId) -> None:
        """Raise InvalidInput for an id that no month can store; call this before paying a model."""
        if not await store.has_month(self._database, request_id):
            raise InvalidInput(
                "the request_id of a request context is a UUIDv7 of a month that Switchboard keeps",
                field="request_context.request_id",
            )

    async def is_stored(self, request_id: UUID) -> bool:
        """Whether the message is in the inbox, so that Switchboard itself delivers it."""
        return await store.is_stored(self._database, request_id)

    async def message(
        self, envelope: Envelope, request_id: RequestId, place: str, *, dedupe: bool, keep: bool
    ) -> Message:
        """The message as the inbox stores it, in the conversation `place` if that is known.

        Without `dedupe`, its key is unique. `keep`: whether to keep a conversation named for the first time.
        """
        channel = CHANNELS[envelope.source.channel]
        named = named_in(envelope, channel)
        if not place and named is not None:
            [place] = await inbox.find_places(self._database, [named], keep=keep)
        return Message(
            request_id=request_id,
            conversation=Conversation(place) if place else conversation(envelope, channel),
            dedupe_key=dedupe_key(envelope, channel) if dedupe else f"event:{request_id}",
            envelope=envelope,
            raw=msgspec.json.encode(envelope),
            media_type="application/json",
            received_at=uuid7_time(request_id),
            thread=thread_of(envelope, channel),
            content=content_of(envelope, channel),
        )

    async def once(self, message: Message, process: Callable[[Message], Awaitable[RoutingResult]]) -> RoutingResult:
        """Process a message unless its key is taken; the key of a message that came to nothing is free again."""
        keys = await self._database.keys()
        source, body = message.envelope.source, keys.of("body", compared_content(message))
        key = keys.event(source.channel, source.endpoint_identity, message.dedupe_key)
        holder = await store.claim_key(self._database, key, message.request_id)
        if holder is not None:
            if message.content is None or not await store.is_of_another(self._database, key, body):
                return _duplicate(holder)
            # Strangers choose the ids of this channel, so an id in use must not hide another message.
            own_key = key_of_its_own(message.dedupe_key, message.content)
            return await self.once(replace(message, dedupe_key=own_key), process)
        kept = False
        try:
            result = await process(message)
            kept = bool(result.target_butler)
        finally:
            if kept:
                await store.keep_key(self._database, key, body, message.request_id)
            else:
                await store.release_key(self._database, key, message.request_id)
        return result

    async def with_candidates(self, question: Question) -> Question:
        """The question about the live candidates of its team."""
        live = await read_live(self._snapshots, TeamId(question.team_id))
        return _question_for_team(live, live.start, question)

    async def deliver(self, given: DecidedSubmission, answers: Answers) -> RoutingResult:
        """Store the message with its deliveries, if any; chosen teams decide further, and may ask again."""
        outcomes: dict[str, str | None] = dict.fromkeys(given.answer.carried_out)
        left = [part for part in given.answer.classification.chosen if part.butler not in outcomes]
        start = TeamId(given.question.team_id)
        live = await read_live(self._snapshots, start)
        targets, unknown = _targets(left, live)
        outcomes |= unknown
        if not targets:
            return _result(given, outcomes)
        if teams := [target.team_id for target in targets.values() if target.team_id is not None]:
            live = await read_live(self._snapshots, start, teams)
        decision = await _decide_submission(given, live, targets, answers)
        accepted = await inbox.accept_split(self._database, Arrival(given.message, decision), self._wake)
        if accepted.duplicate:
            return _duplicate(accepted.request_id)
        if accepted.waits:
            return _result(given, outcomes, "waiting")
        return _result(
            given, outcomes | {name: _loss_reason(target, decision, live) for name, target in targets.items()}
        )

    def _wake(self) -> None:
        self._notifier.notify(WORK)


async def _decide_submission(
    given: DecidedSubmission, live: Live, targets: Mapping[str, Target], answers: Answers
) -> Decision:
    """Walk down the tree from the team that was asked about: by the rules, and by the model where no rule matches."""
    envelope = given.message.envelope
    # An embedder has no settings, so there are no schedules here, and no channels but ours; docs/models.md says so.
    known = facts(envelope, CHANNELS[envelope.source.channel])
    found_so_far = {Undecided(live.start): _first(given, targets)}
    while isinstance(found := decide_with(live.index, known, found_so_far, start=live.start), Undecided):
        question = _question_for_team(live, found.team_id, _part(given.question, found.segment))
        found_so_far[found] = classified_from_outcome(question, await answers(question))
    return found


def _first(given: DecidedSubmission, targets: Mapping[str, Target]) -> Classified:
    """The model's choices that have a target."""
    found = given.answer.classification
    routed = tuple(part for part in found.routed if part.butler in targets)
    candidates = tuple(Candidate(name) for name in targets)
    question = replace(given.question, candidates=candidates, targets=tuple(targets.values()))
    return classified_from_outcome(question, replace(given.answer, classification=replace(found, routed=routed)))


def _part(question: Question, segment: str | None) -> Question:
    return question if segment is None else replace(question, message=replace(question.message, text=segment))


def _question_for_team(live: Live, team_id: TeamId, question: Question) -> Question:
    candidates, targets = live.candidates(team_id), live.targets(team_id)
    return replace(question, team_id=team_id, candidates=candidates, targets=targets)


def _targets(parts: Iterable[RoutedPart], live: Live) -> tuple[dict[str, Target], dict[str, str]]:
    """The live target of each name, and why others have none: a context may bring its own names."""
    candidates, targets, unknown = live.candidates(live.start), dict[str, Target](), dict[str, str]()
    by_name = dict(zip((one.name for one in candidates), live.targets(live.start), strict=True))
    for part in parts:
        found = resolve(part.butler, candidates)
        if isinstance(found, str):
            targets[part.butler] = by_name[found]
        else:
            unknown[part.butler] = found.why
    return targets, unknown


def _loss_reason(target: Target, decision: Decision, live: Live) -> str | None:
    """Why the part of a target reached no butler; None if it was delivered."""
    if target.team_id is None:
        teams = frozenset({live.start})
        got = any(one.system_id == target.system_id for one in decision.chosen)
    else:
        teams = live.below(target.team_id)
        got = any(one.team_id in teams for one in decision.chosen)
    return None if got else "; ".join(one.reason for one in decision.unrouted if one.team_id in teams) or "not reached"


def _result(given: DecidedSubmission, outcomes: Mapping[str, str | None], status: str = "") -> RoutingResult:
    found = given.answer
    return result_of(str(given.message.request_id), found.model, found.classification, outcomes, status)


def _duplicate(first: UUID) -> RoutingResult:
    return RoutingResult("", {"status": "duplicate", "request_id": str(first)})

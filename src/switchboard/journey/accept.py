"""Accept: a submitted message is stored once, with its decision, before "accepted" is returned.

The interfaces call `AcceptLeg.accept` with validated envelopes. Messages that arrive during a commit share the next
one; if there are many, it starts before the first has finished, provided no conversation is in both. Next: `turn.py`,
where a worker has claimed a delivery, or `classify.py` for messages that are not decided yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

import structlog
from msgspec import Struct, convert
from msgspec.structs import replace

from switchboard.core.channels.registry import Channels
from switchboard.core.envelope.content import compared_content
from switchboard.core.envelope.identity import content_of, conversation, dedupe_key, key_of_its_own, named_in, thread_of
from switchboard.core.envelope.read import check_cause
from switchboard.core.files.blobs import named_blobs, unknown_blob
from switchboard.core.people.strangers import Contact
from switchboard.core.policy.rates import AcceptLimits
from switchboard.core.turns.asking import is_answer, is_command
from switchboard.core.turns.choices import is_press
from switchboard.core.turns.house import house_command
from switchboard.core.turns.stop import is_stop
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import (
    EventMismatch,
    Forbidden,
    IdempotencyMismatch,
    Overloaded,
    SwitchboardError,
    Unavailable,
)
from switchboard.domain.message import Conversation, Message, Named, OtherContent, RequestId
from switchboard.domain.routing import SWITCHBOARD, Decision, SystemId
from switchboard.journey.admission import Admission
from switchboard.journey.mail_answers import MailAnswers
from switchboard.journey.stopping import announce
from switchboard.journey.strangers import Strangers
from switchboard.lanes.batch import BatchWriter
from switchboard.lanes.faults import point
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.channel import Channel
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import Database
from switchboard.store.ids import IdSequence
from switchboard.store.memory.history import begin_anew
from switchboard.store.memory.told import switch_learning
from switchboard.store.messages import blobs
from switchboard.store.messages import inbox as store
from switchboard.store.messages.inbox import Acceptance, Arrival, Prepared, ToClassify
from switchboard.store.messages.mails import AnsweredMail
from switchboard.store.people.strangers import forget_heard_elsewhere
from switchboard.store.work.stopping import stop_earlier

log = structlog.get_logger(__name__)

_HEARD_BY_NOBODY: Final = frozenset({"held", "history", "dead", "cancelled"})
"""States of a message that no butler got."""


class Submission(Struct, frozen=True, gc=False):
    """A validated envelope with the original bytes, which `GET …/raw` returns.

    `by_operator`: accepted even when the backlog is too full for others; `pinned_target` may be any butler, not only
    one that has written in the conversation. `other`: what another content under a known id is, where the channel does
    not decide it. `id_for`: how long its id counts, from its first arrival; None: as long as that message is kept.
    `due`: nobody has written it, but something is due.
    """

    envelope: Envelope
    raw: bytes
    media_type: str = "application/json"
    by_operator: bool = True
    other: OtherContent = "duplicate"
    id_for: timedelta | None = None
    due: bool = False


class _Ask(Struct, frozen=True):
    """A message waiting for the next commit; not `ready` until the author of the message it `answers` is known.

    `named`: its conversation must still be found. `refused`: there is no room for it, but it may be a duplicate.
    `command`: it is for Switchboard itself; `stops`: it is the command that ends its sender's running turns; `renews`:
    it is the one with which its conversation starts over; `learns`: it switches there whether anything is learned.
    `late`: it came too late to be answered. `mail`: it answers this mail of a butler. `blobs`: those that it names.
    `forgets`: an older message with its id is forgotten.
    """

    message: Message
    answers: str | None = None
    named: Named | None = None
    ready: Prepared | None = None
    refused: Overloaded | None = None
    command: bool = False
    stops: bool = False
    renews: bool = False
    late: bool = False
    blobs: Collection[bytes] = ()
    forgets: datetime | None = None
    learns: bool | None = None
    mail: AnsweredMail | None = None


NoFiles = Literal["known", "history", "stranger"]
"""Why files are not wanted: the message was accepted before, nobody will see it, or its sender must be let in first."""


class Decide(Protocol):
    """Decides a message, given the butler it is pinned to, by the rules in force: see `decide.py`."""

    @property
    def queued(self) -> bool: ...

    def __call__(self, envelope: Envelope, pinned: SystemId | None, received_at: datetime) -> Decision | ToClassify: ...

    def names_command(self, envelope: Envelope, received_at: datetime) -> bool: ...


class AcceptLeg:
    """Accepts messages. Back-pressure needs `watch_backlog` to run alongside.

    `program`: of a program that asks for the turns itself, its process.
    """

    def __init__(  # noqa: PLR0913 - the parts of a process
        self,
        database: Database,
        decide: Decide,
        notifier: Notifier,
        limits: AcceptLimits,
        channels: Channels,
        clock: DatabaseClock,
        *,
        strangers: Strangers | None = None,
        program: Callable[[], int] | None = None,
    ) -> None:
        self._program = program
        self._database = database
        self._decide = decide
        self._notifier = notifier
        self._admission = Admission(database, limits)
        self._channels = channels
        self._clock = clock
        self._strangers = strangers
        self._answers = None if strangers is None else strangers.answers
        self._ids = IdSequence()
        # Two commits at a time: one runs while the other is flushed, or while its result is on the way to us.
        self._batch: BatchWriter[_Ask, Acceptance] = BatchWriter(
            self._store, most=100, least=40, writers=2, key=_conversation
        )

    async def accept(self, submission: Submission) -> Acceptance:
        """Store one message; returns after the commit. Raises InvalidInput, TooLarge, Overloaded, Unavailable."""
        [outcome] = await self.accept_all([submission])
        if isinstance(outcome, Acceptance):
            return outcome
        raise outcome

    async def accept_all(self, submissions: Sequence[Submission]) -> list[Acceptance | SwitchboardError]:
        """Store many; returns an answer or an error per submission, in order.

        Errors do not affect other submissions.
        """
        point("after_receive")
        try:
            now = self._clock.now()
        except Unavailable as error:
            return [error for _ in submissions]
        ids = self._ids.next(len(submissions), now.timestamp())
        given = [self._ask(one, RequestId(new), now) for one, new in zip(submissions, ids, strict=True)]
        left = await self._admit_asks(submissions, given)
        answers = iter(await self._batch.put_all([ask for ask in left if isinstance(ask, _Ask)]))
        outcomes = [_outcome(ask, next(answers)) if isinstance(ask, _Ask) else ask for ask in left]
        if any(isinstance(outcome, EventMismatch) for outcome in outcomes):
            outcomes = await self._without_repeats(submissions, outcomes)
        point("after_commit")
        self._give_back_unused(submissions, given, outcomes)
        return outcomes

    async def needs_no_files(self, submission: Submission) -> NoFiles | None:
        """Why the files of a message need not be fetched before it is submitted; None if they are needed.

        Raises InvalidInput, Unavailable.
        """
        envelope, now = submission.envelope, self._clock.now()
        [new] = self._ids.next(1, now.timestamp())
        message = _message(submission, self._channels.of(envelope), RequestId(new), now)
        if envelope.kept_as_history:
            return "history"
        if (await store.are_known(self._database, [(message, None)]))[0]:
            return "known"
        contact = self._strangers.contact(message) if self._strangers is not None else None
        if contact is None or self._strangers is None or contact in await self._strangers.let_in([contact]):
            return None
        return "stranger"

    async def _without_repeats(
        self, submissions: Sequence[Submission], outcomes: Sequence[Acceptance | SwitchboardError]
    ) -> list[Acceptance | SwitchboardError]:
        """What differs in its files alone is a duplicate, as links change, and so is what the first one stands for."""
        return [
            await self._resolve_mismatch(one, outcome) if isinstance(outcome, EventMismatch) else outcome
            for one, outcome in zip(submissions, outcomes, strict=True)
        ]

    async def _resolve_mismatch(self, one: Submission, refusal: EventMismatch) -> Acceptance | SwitchboardError:
        try:
            first = await store.get_message(self._database, refusal.first)
        except Unavailable as error:
            return error
        if first is None:
            return refusal
        known = convert(first.envelope, Envelope)
        is_repeat = one.envelope.event.external_event_id in known.event.also or _words(known) == _words(one.envelope)
        return Acceptance(first.request_id, duplicate=True) if is_repeat else refusal

    def _give_back_unused(
        self,
        submissions: Sequence[Submission],
        given: Sequence[_Ask | SwitchboardError],
        outcomes: Sequence[Acceptance | SwitchboardError],
    ) -> None:
        for one, ask, outcome in zip(submissions, given, outcomes, strict=True):
            if not isinstance(outcome, Acceptance) or outcome.duplicate:
                self._give_back(one, ask)

    def _give_back(self, submission: Submission, ask: _Ask | SwitchboardError) -> None:
        """Messages that were not stored do not count against the rate of their sender."""
        if isinstance(ask, _Ask) and ask.refused is None:
            self._admission.give_back(submission.envelope, by_operator=submission.by_operator)

    def _ask(self, submission: Submission, request_id: RequestId, now: datetime) -> _Ask | SwitchboardError:
        envelope = submission.envelope
        try:
            channel = self._channels.of(envelope)
            _check_model(submission)
            if not submission.due:
                check_cause(envelope)
            self._admission.check_size(len(submission.raw))
            message = _message(submission, channel, request_id, now)
            answers = None if submission.due else channel.replied_to(envelope)
            named = named_in(envelope, channel)
            routed = not envelope.kept_as_history
            late = routed and envelope.control.ingestion_tier == "held"
            stops = routed and not late and is_stop(envelope, channel)
            command = stops or (routed and not late and is_command(envelope, channel)) or is_press(envelope, channel)
            command = command or _is_said(envelope)
            house = house_command(envelope, channel) if routed and not late and not command else None
            if house is not None and not self._decide.names_command(envelope, now):
                command = True
            renews = command and house is not None and house.name == "new"
            learns = house.switches_learning if command and house is not None else None
        except Exception as error:  # also raised by a plug-in's channel, which must not lose other messages
            return _refusal(error)
        forgets = None if submission.id_for is None else now - submission.id_for
        try:
            self._admission.check(envelope, by_operator=submission.by_operator, now=now.timestamp())
        except Overloaded as refused:
            return _Ask(message, answers, named, None, refused, command, stops, renews, late, forgets=forgets)
        ready = None if answers or named or command or late else self._ready(message)
        return _Ask(message, answers, named, ready, None, command, stops, renews, late, forgets=forgets, learns=learns)

    async def _admit_asks(
        self, submissions: Sequence[Submission], given: list[_Ask | SwitchboardError]
    ) -> Sequence[_Ask | Acceptance | SwitchboardError]:
        """The asks left for the next commit, after removing refused ones and holding those of strangers."""
        ready = all(map(_is_ready, given))
        asks = given if ready else await self._assign_conversations(await self._with_room(given))
        asks = asks if ready or self._answers is None else await self._with_answered_mails(asks, self._answers)
        if any(map(_is_pinned, submissions)):
            asks = await self._with_good_pins(submissions, asks)
        if any(map(_has_files, submissions)):
            asks = await self._with_known_blobs(submissions, asks)
        strangers = self._strangers
        return (
            await self._hold_messages(asks, strangers) if strangers is not None and (strangers or not ready) else asks
        )

    async def _with_room(self, asks: list[_Ask | SwitchboardError]) -> list[_Ask | SwitchboardError]:
        """Refuse messages for which there is no space, except duplicates: their sender may have missed our response."""
        refused = {n: (ask, ask.refused) for n, ask in enumerate(asks) if isinstance(ask, _Ask) and ask.refused}
        if not refused:
            return asks
        try:
            known = await store.are_known(self._database, [(ask.message, ask.forgets) for ask, _ in refused.values()])
        except Unavailable as error:
            return _with_refusals(dict.fromkeys(refused, error), asks)
        unknown = {n: why for (n, (_, why)), one in zip(refused.items(), known, strict=True) if not one}
        return _with_refusals(unknown, asks)

    async def _assign_conversations(self, asks: list[_Ask | SwitchboardError]) -> list[_Ask | SwitchboardError]:
        """Where anyone can name any thread, a message joins a conversation only if its author is known there."""
        naming = {n: ask.named for n, ask in enumerate(asks) if isinstance(ask, _Ask) and ask.named}
        if not naming:
            return asks
        try:
            found = dict(zip(naming, await store.find_places(self._database, list(naming.values())), strict=True))
        except Unavailable as error:
            return _with_refusals(dict.fromkeys(naming, error), asks)
        return [
            _move_to_conversation(ask, found[n]) if isinstance(ask, _Ask) and n in found else ask
            for n, ask in enumerate(asks)
        ]

    async def _with_answered_mails(
        self, asks: list[_Ask | SwitchboardError], answers: MailAnswers
    ) -> list[_Ask | SwitchboardError]:
        """What answers a mail of a butler is for that butler, whoever may write otherwise."""
        naming = {n: (ask, ask.named) for n, ask in enumerate(asks) if isinstance(ask, _Ask) and _may_answer_mail(ask)}
        known = {n: (ask.message, named) for n, (ask, named) in naming.items() if named is not None}
        if not known:
            return asks
        try:
            found = dict(zip(known, await answers.find([*known.values()]), strict=True))
        except Unavailable as error:
            return _with_refusals(dict.fromkeys(known, error), asks)
        return [
            _as_answer(ask, mail) if isinstance(ask, _Ask) and (mail := found.get(n)) is not None else ask
            for n, ask in enumerate(asks)
        ]

    async def _with_good_pins(
        self, submissions: Sequence[Submission], asks: list[_Ask | SwitchboardError]
    ) -> list[_Ask | SwitchboardError]:
        """A pin overrides all rules, so a connector may only pin a butler that has written in the conversation."""
        pins = {
            n: (ask.message.conversation, pinned)
            for n, (one, ask) in enumerate(zip(submissions, asks, strict=True))
            if not one.by_operator and isinstance(ask, _Ask) and (pinned := one.envelope.control.pinned_target)
        }
        if not pins:
            return asks
        try:
            written = await store.have_written(self._database, list(pins.values()))
        except Unavailable as error:
            return _with_refusals(dict.fromkeys(pins, error), asks)
        return _with_refusals({n: _bad_pin(pin[1]) for n, pin in pins.items() if pin not in written}, asks)

    async def _hold_messages(
        self, asks: list[_Ask | SwitchboardError], strangers: Strangers
    ) -> list[_Ask | Acceptance | SwitchboardError]:
        """Hold messages from strangers, and of the rest those that came too late."""
        return [
            await self._hold(ask, strangers.late(ask.message), strangers)
            if isinstance(ask, _Ask) and ask.late and ask.mail is None
            else ask
            for ask in await self._held_of_strangers(asks, strangers)
        ]

    async def _held_of_strangers(
        self, asks: list[_Ask | SwitchboardError], strangers: Strangers
    ) -> list[_Ask | Acceptance | SwitchboardError]:
        """Hold messages from strangers one by one: a code among them admits those that follow."""
        contacts = {
            n: one
            for n, ask in enumerate(asks)
            if isinstance(ask, _Ask) and ask.mail is None and (one := strangers.contact(ask.message))
        }
        left: list[_Ask | Acceptance | SwitchboardError] = list(asks)
        if not contacts:
            return left
        try:
            known = await strangers.let_in(set(contacts.values()))
            invited = await _find_invited(asks, contacts, strangers)
        except Unavailable as error:
            return [*_with_refusals(dict.fromkeys(contacts, error), asks)]
        for n in sorted(contacts.keys() - invited):
            ask, contact = asks[n], contacts[n]
            if isinstance(ask, _Ask) and (contact not in known or strangers.may_be_code(ask.message, contact)):
                left[n] = await self._hold(ask, contact, strangers)
        return left

    async def _hold(self, ask: _Ask, contact: Contact, strangers: Strangers) -> _Ask | Acceptance | SwitchboardError:
        try:
            author = (await self._authors([ask])).get(ask.message.request_id)
            arrival = store.prepare(self._arrival(ask.message, author, command=ask.command))
            taken = await strangers.hold(arrival, contact, ask.blobs)
            if taken and taken.differs and (own := _apart(ask.message)):
                arrival = store.prepare(self._arrival(own, author, command=ask.command))
                again = await strangers.hold(arrival, contact, ask.blobs)
                taken = None if again is None else replace(again, same_id=not again.duplicate)
            if taken and (own := await self._rekey_undelivered_duplicate(ask.message, taken)) is not None:
                arrival = store.prepare(self._arrival(own, author, command=ask.command))
                taken = await strangers.hold(arrival, contact, ask.blobs)
        except Exception as error:
            return _refusal(error)
        return ask if taken is None else _outcome(ask, taken)

    async def _with_known_blobs(
        self, submissions: Sequence[Submission], asks: list[_Ask | SwitchboardError]
    ) -> list[_Ask | SwitchboardError]:
        """Only the endpoint that uploaded a blob may name it; otherwise, blobs could be read by guessing."""
        return [
            await self._with_blobs(one, ask) if isinstance(ask, _Ask) and _has_files(one) else ask
            for one, ask in zip(submissions, asks, strict=True)
        ]

    async def _with_blobs(self, submission: Submission, ask: _Ask) -> _Ask | SwitchboardError:
        source, by_operator = submission.envelope.source, submission.by_operator
        owner = (source.channel, source.endpoint_identity)
        try:
            named = named_blobs(submission.envelope.payload.attachments)
            known = await blobs.name(self._database, named, *owner, by_operator=by_operator) if named else set()
        except SwitchboardError as error:
            return error
        unknown = next((field for blob, field in named.items() if blob not in known), None)
        return replace(ask, blobs=tuple(named)) if unknown is None else unknown_blob(unknown)

    def _ready(self, message: Message) -> Prepared | None:
        """Do as much as is possible before the current commit has ended."""
        try:
            return store.prepare(self._arrival(message, None))
        except Exception:  # raised again in `_store`, where it does not affect other messages
            return None

    async def _store(self, asks: Sequence[_Ask]) -> list[Acceptance]:
        authors = await self._authors(asks)
        answers = await self._put(asks, authors)
        apart = {n: own for n, ask in enumerate(asks) if answers[n].differs and (own := _apart(ask.message))}
        if apart:
            # Strangers choose the ids of this channel, so an id in use must not hide another message.
            log.warning("messages of one id and different contents; all are kept", messages=len(apart))
            again = [replace(asks[n], message=own, ready=None) for n, own in apart.items()]
            for n, answer in zip(apart, await self._put(again, authors), strict=True):
                answers[n] = replace(answer, same_id=not answer.duplicate)
        for n, ask in enumerate(asks):
            first = answers[n].request_id
            if (own := await self._rekey_undelivered_duplicate(ask.message, answers[n])) is not None:
                [answers[n]] = await self._put([replace(ask, message=own, ready=None)], authors)
                # The copy is not acknowledged yet: after a crash in between it comes again, and gets here again.
                await forget_heard_elsewhere(self._database, first)
        return answers

    async def _rekey_undelivered_duplicate(self, message: Message, answer: Acceptance) -> Message | None:
        """The message under a key of its own, if it is a duplicate of one that nobody got, in another conversation."""
        envelope = message.envelope
        if not answer.duplicate or not self._channels.of(envelope).comes_twice(envelope):
            return None
        first, thread = await store.get_message(self._database, answer.request_id), envelope.event.external_thread_id
        if first is None or first.thread == thread or first.went_to or first.state not in _HEARD_BY_NOBODY:
            return None
        return replace(message, dedupe_key=key_of_its_own(message.dedupe_key, thread or ""))

    async def _put(self, asks: Sequence[_Ask], authors: Mapping[RequestId, SystemId | None]) -> list[Acceptance]:
        batch = [
            ask.ready or self._arrival(ask.message, authors.get(ask.message.request_id), command=ask.command)
            for ask in asks
        ]
        return await self._commit_and_obey(batch, asks)

    async def _commit(self, database: Database, batch: Sequence[Arrival | Prepared]) -> list[Acceptance]:
        point("before_commit")
        program = None if self._program is None else self._program()
        return await store.accept(database, batch, queued=self._decide.queued, wake=self._wake, program=program)

    async def _commit_and_obey(self, batch: Sequence[Arrival | Prepared], asks: Sequence[_Ask]) -> list[Acceptance]:
        """A command takes effect when it is stored, ahead of all lanes, so that its answer can say what it stopped."""
        stops = [ask.message.request_id for ask in asks if ask.stops]
        renews = [ask.message.request_id for ask in asks if ask.renews]
        named = [(blob, ask.message.request_id) for ask in asks for blob in ask.blobs]
        forgotten = [(ask.message, ask.forgets) for ask in asks if ask.forgets is not None]
        switches = [(ask.message.request_id, ask.learns) for ask in asks if ask.learns is not None]
        if not stops and not renews and not named and not forgotten and not switches:
            return await self._commit(self._database, batch)
        async with self._database.transaction() as one:
            if forgotten:
                await store.forget_events(one, forgotten)
            answers = await self._commit(one, batch)
            stopped = await stop_earlier(one, stops) if stops else []
            if renews:
                await begin_anew(one, renews)
            if switches:
                await switch_learning(one, switches)
            new = {answer.request_id for answer in answers if not answer.duplicate}
            await blobs.refer(one, [(blob, request_id) for blob, request_id in named if request_id in new])
        self._wake()
        try:
            await announce(self._database, self._notifier, stopped)
        except Unavailable as error:
            log.warning("workers will find out by themselves what is to stop", reason=error.message)
        return answers

    def _wake(self) -> None:
        self._notifier.notify(WORK)

    def _arrival(self, message: Message, author: SystemId | None, *, command: bool = False) -> Arrival:
        """A reply goes to the author of the message it replies to, unless the connector pins another butler.

        A command goes to Switchboard itself, and so does a reply to its question; nothing else does.
        """
        named = message.envelope.control.pinned_target
        pinned = author if named is None or named == SWITCHBOARD else SystemId(named)
        if pinned == SWITCHBOARD and not is_answer(message.envelope, self._channels[message.envelope.source.channel]):
            pinned = None
        if command:
            pinned = SWITCHBOARD
        return Arrival(message, self._decide(message.envelope, pinned, message.received_at), pinned)

    async def _authors(self, asks: Sequence[_Ask]) -> dict[RequestId, SystemId | None]:
        """For replies to earlier messages of their conversation: the butler that wrote the earlier message."""
        known: dict[RequestId, SystemId | None] = {
            ask.message.request_id: ask.mail.system_id for ask in asks if ask.mail is not None
        }
        answers = [(ask.message, ask.answers) for ask in asks if ask.answers and ask.mail is None]
        if not answers:
            return known
        authors = await store.find_authors(self._database, [(m.conversation, answered) for m, answered in answers])
        return known | {message.request_id: author for (message, _), author in zip(answers, authors, strict=True)}

    def check_clock(self) -> None:
        """Raise Unavailable while the clocks differ too much to accept messages."""
        self._clock.now()

    async def watch_backlog(self, every: float = 0.5) -> None:
        """Measure the backlog periodically. Runs until cancelled."""
        await self._admission.watch(self._notifier.looks, every)


def _message(submission: Submission, channel: Channel, request_id: RequestId, now: datetime) -> Message:
    envelope = submission.envelope
    return Message(
        request_id=request_id,
        conversation=conversation(envelope, channel),
        dedupe_key=dedupe_key(envelope, channel),
        envelope=envelope,
        raw=submission.raw,
        media_type=submission.media_type,
        received_at=now,
        thread=thread_of(envelope, channel),
        content=content_of(envelope, channel),
        other=submission.other,
    )


def _check_model(submission: Submission) -> None:
    """Not everyone may choose a model that costs ten times as much. Raises Forbidden."""
    if submission.envelope.control.model is not None and not submission.by_operator:
        raise Forbidden("only an operator may name the model: leave it out", field="control.model")


def _is_said(envelope: Envelope) -> bool:
    """Whether Switchboard itself says the text, because a task is due."""
    return envelope.control.task is not None and envelope.control.task.say


def _is_ready(ask: _Ask | SwitchboardError) -> bool:
    return isinstance(ask, _Ask) and ask.ready is not None


def _is_pinned(one: Submission) -> bool:
    """Whether a connector pinned it: an operator may pin a message to any butler."""
    return not one.by_operator and bool(one.envelope.control.pinned_target)


def _has_files(one: Submission) -> bool:
    return bool(one.envelope.payload.attachments)


def _with_refusals(
    refused: Mapping[int, SwitchboardError], asks: Sequence[_Ask | SwitchboardError]
) -> list[_Ask | SwitchboardError]:
    """The same, with refusals in these places."""
    return [refused.get(n, ask) for n, ask in enumerate(asks)]


async def _find_invited(
    asks: Sequence[_Ask | SwitchboardError], among: Collection[int], strangers: Strangers
) -> set[int]:
    """Which of them are of programs of calendars whose people we have invited. Raises Unavailable."""
    given = [(n, ask) for n, ask in enumerate(asks) if n in among and isinstance(ask, _Ask)]
    return {n for n, ask in given if await strangers.answers.is_of_invited(ask.message, ask.named)}


def _may_answer_mail(ask: _Ask) -> bool:
    """Whether it is a message to a butler that refers to others."""
    routed = not ask.message.envelope.kept_as_history and not ask.message.envelope.edits
    return routed and not ask.command and ask.named is not None and bool(ask.named.answered)


def _as_answer(ask: _Ask, mail: AnsweredMail) -> _Ask:
    envelope = ask.message.envelope
    marked = replace(envelope, control=replace(envelope.control, answers_mail=str(mail.request_id)))
    return replace(ask, message=replace(ask.message, envelope=marked), mail=mail)


def _move_to_conversation(ask: _Ask, to: Conversation) -> _Ask:
    return replace(ask, message=replace(ask.message, conversation=to))


def _apart(message: Message) -> Message | None:
    """The same message under a separate key, if its channel or its submitter requires that."""
    if message.content is not None:
        content = message.content
    elif message.other == "event":
        content = compared_content(message).decode()
    else:
        return None
    return replace(message, dedupe_key=key_of_its_own(message.dedupe_key, content))


def _words(envelope: Envelope) -> tuple[str, str, str | None]:
    return envelope.payload.normalized_text, envelope.sender.identity, envelope.event.external_thread_id


def _conversation(ask: _Ask) -> Conversation:
    return ask.message.conversation


def _outcome(ask: _Ask, answer: Acceptance | BaseException) -> Acceptance | SwitchboardError:
    if isinstance(answer, Acceptance):
        if not answer.differs:
            return answer
        if ask.message.envelope.control.idempotency_key is not None:
            return IdempotencyMismatch(answer.request_id)
        return EventMismatch(answer.request_id) if ask.message.other == "refused" else answer
    if not isinstance(answer, Exception):
        raise answer
    return _refusal(answer)


def _bad_pin(pinned: str) -> Forbidden:
    return Forbidden(
        f"{pinned} has not written in this conversation, so this token may not pin a message to it; "
        "leave pinned_target out, and the rules decide",
        code="pin_refused",
        field="control.pinned_target",
    )


def _refusal(error: Exception) -> SwitchboardError:
    if isinstance(error, SwitchboardError):
        return error
    log.error("message not stored", exc_info=error)
    return SwitchboardError("this message could not be stored; nothing of it was kept, and the reason is in the log")

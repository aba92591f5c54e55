"""Explains one message: why it went where it went, and what became of it, from everything on record.

Called by `GET /v1/messages/{id}/explain` and `switchboard explain`; `app/rules/replays.py` takes the steps from here.
In: a request_id; out: an `Explanation`, which msgspec turns into JSON as it is, each decision with the rules of its own
time. Reads only. Next: the reader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.app.access import OPERATOR, Action
from switchboard.app.messages.planned import plans_of
from switchboard.app.messages.same_ids import find_same_id
from switchboard.app.messages.views import MessageView, message_view
from switchboard.app.runtime import Runtime
from switchboard.core.envelope.identity import EMBEDDED, named_in
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.routing.explain import Considered, Survey, TieBreak
from switchboard.core.routing.facts import facts, shown_fact, shown_facts, split_people_version
from switchboard.core.routing.index import has_only_inactive_butlers
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import OutboxRow
from switchboard.domain.message import RequestId
from switchboard.domain.routing import Decision, Member, Rule, SystemId, Team, TeamId
from switchboard.domain.shown import (
    Attempt,
    FactInTurn,
    Logged,
    Notice,
    OfferedTools,
    RefusedCall,
    ShownApproval,
    ShownDeadLetter,
    ShownDelivery,
    ShownPlan,
    ShownStep,
    ShownTranscription,
    ShownWaiting,
)
from switchboard.ports.channel import Implies
from switchboard.store.database import Database
from switchboard.store.memory import history
from switchboard.store.messages import dead_letters, inbox, outbox
from switchboard.store.messages.inbox import StoredMessage
from switchboard.store.models import classification
from switchboard.store.people import strangers
from switchboard.store.rules.versions import open_rules_at
from switchboard.store.work import approvals, lanes, ledger, routing, transcriptions
from switchboard.store.work.ledger import DecisionHead, ShownDecision

EXPLAIN: Final = Action("explain", OPERATOR)

_BY_MODEL: Final = frozenset({"classified", "classification_failed", "undecided"})
"""Steps in which the rules of the team were asked, but no catch-all, because a model was asked next."""
_BY_RULES: Final = _BY_MODEL | {"rule", "catch_all", "no_route", "dead_letter_rule", "target_unavailable"}
"""Steps in which the rules of the team were asked."""


@dataclass(frozen=True, slots=True)
class ConsideredRule:
    """A rule that was evaluated.

    `failed_filter` is the first filter that did not match, null if the rule matched; `failed` counts all that did not.
    """

    rule_id: UUID
    name: str
    fired: bool
    failed_filter: str | None
    expected: str | Sequence[str] | None
    actual: str | Sequence[str] | None
    failed: int


@dataclass(frozen=True, slots=True)
class BeatenRule:
    """A rule that matched too but came later; `by` is what decided between the two."""

    rule_id: UUID
    name: str
    by: TieBreak


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """What happened in one team.

    `considered` lists the rules that were evaluated (`left_out` more are not shown), null if that version is no longer
    known. `nearest` are rules that narrowly failed to match; `beaten` are rules that matched too but came later.
    """

    team_id: str
    reason: str
    rule_id: str | None
    rule_name: str | None
    targets: Sequence[JsonMapping]
    detail: str
    considered: tuple[ConsideredRule, ...] | None
    left_out: int = 0
    nearest: tuple[ConsideredRule, ...] = ()
    beaten: tuple[BeatenRule, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedDecision(DecisionHead):
    """A decision, the version of the rules that made it, and its trail through the teams."""

    trail: tuple[ExplainedStep, ...]
    facts: Mapping[str, str | Sequence[str]] | None
    """What the rules saw; None if nobody kept it."""
    people_version: int | None = None
    """The version of the persons by which the sender was looked up; null if nobody was known."""


@dataclass(frozen=True, slots=True)
class ExplainedDelivery:
    """A delivery with its attempts and steps.

    `offered`: the tools that a model had; null if there is no model. `refused`: its calls that failed or were not made.
    `facts`: what it was told of earlier conversations.
    """

    delivery: ShownDelivery
    attempts: tuple[Attempt, ...]
    steps: tuple[ShownStep, ...]
    offered: OfferedTools | None = None
    refused: tuple[RefusedCall, ...] = ()
    facts: tuple[FactInTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedReply:
    """A reply with the receipts of all attempts to send it."""

    reply: OutboxRow
    receipts: tuple[JsonMapping, ...]


@dataclass(frozen=True, slots=True)
class ExplainedDeadLetter:
    """A dead letter and its notices."""

    dead_letter: ShownDeadLetter
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class ExplainedWaiting:
    """Where the message waits, or waited, for a decision: for a model, or for earlier messages of its conversation."""

    waiting: ShownWaiting
    attempts: tuple[Attempt, ...]
    steps: tuple[ShownStep, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything on record about one message, in order. `waiting` is null if it was routed at once."""

    message: MessageView
    waiting: ExplainedWaiting | None
    decisions: tuple[ExplainedDecision, ...]
    deliveries: tuple[ExplainedDelivery, ...]
    replies: tuple[ExplainedReply, ...]
    dead_letters: tuple[ExplainedDeadLetter, ...]
    classifications: tuple[Logged, ...] = ()
    approvals: tuple[ShownApproval, ...] = ()
    """What its butlers have asked people."""
    plans: tuple[ShownPlan, ...] = ()
    """What its butlers have planned."""
    notes: tuple[str, ...] = ()
    """What is unusual about the message."""
    attachments: Sequence[JsonObject] = ()
    """As in its envelope."""
    transcriptions: tuple[ShownTranscription, ...] = ()
    """What a machine heard in them."""


async def explain(runtime: Runtime, request_id: UUID) -> Explanation:
    """Everything about the message `request_id`. Raises NotFound."""
    message = await inbox.get_message(runtime.database, request_id)
    if message is None:
        return await _explain_saved_message(runtime.database, request_id)
    return Explanation(
        message=message_view(message),
        waiting=await _waiting(runtime.database, request_id),
        decisions=await _decisions(runtime, message),
        deliveries=await _deliveries(runtime.database, request_id),
        replies=await _replies(runtime.database, request_id),
        dead_letters=await _dead_letters(runtime.database, request_id),
        classifications=tuple(await classification.attempts(runtime.database, request_id)),
        approvals=tuple(await approvals.of_message(runtime.database, request_id)),
        plans=tuple(await plans_of(runtime.database, request_id)),
        notes=await _notes(runtime, message),
        attachments=message.envelope["payload"]["attachments"],
        transcriptions=tuple(await transcriptions.of_message(runtime.database, request_id)),
    )


async def _explain_saved_message(database: Database, saved_id: UUID) -> Explanation:
    """What a program has saved outside of turns. Raises NotFound."""
    saved = await history.saved(database, saved_id)
    if saved is None:
        raise NotFound(f"there is no message {saved_id}")
    sender = saved.person if saved.role == "user" else saved.system_id
    view = MessageView(
        request_id=RequestId(saved_id),
        conversation=saved.conversation,
        channel=saved.conversation.partition("/")[0],
        endpoint=f"{EMBEDDED}{saved.system_id}",
        sender=sender,
        thread=None,
        text=saved.text,
        state="history",
        went_to=(),
        is_code=False,
        received_at=saved.created_at,
    )
    said = "the person" if saved.role == "user" else "the butler"
    note = f"a program saved it outside of turns in the history of {saved.system_id}, as said by {said}"
    return Explanation(view, None, (), (), (), (), notes=(note,))


async def _notes_on_hold(database: Database, request_id: UUID) -> list[str]:
    held = await strangers.held_by(database, request_id)
    if held is None:
        return []
    if held.state == "held":
        late = held.scope == "late"
        until = "it is released, as it arrived too late to be answered" if late else "its sender is approved"
        return [f"held until {until}: switchboard pairing approve {held.contact_id}"]
    if held.scope == "late":
        return ["it arrived too late to be answered; forgotten"]
    if held.state == "code":
        return ["it is a code for pairing, so it went to no butler; the audit says whom it let in, if anybody"]
    return ["its sender was not approved; forgotten"]


async def _late(database: Database, request_id: UUID) -> list[str]:
    others = await lanes.late_before(database, request_id)
    if others is None:
        return []
    what = f"of its account, {others} such conversations are worked on now"
    return [f"it arrived late, so current messages go first; {what}"]


async def _notes(runtime: Runtime, message: StoredMessage) -> tuple[str, ...]:
    notes = await _notes_on_hold(runtime.database, message.request_id) + await _late(
        runtime.database, message.request_id
    )
    envelope = await _whole(runtime, message)
    if envelope is None:
        return tuple(notes)
    channel = runtime.channels[message.channel]
    first = await find_same_id(runtime, message, envelope)
    if first is not None:
        notes.append(f"message {first} has the same id, but another sender or text; both are kept")
    named = named_in(envelope, channel)
    if named is not None and message.conversation == named.apart:
        notes.append("its sender is not known in the thread that it refers to, so it is in a separate conversation")
    return tuple(notes)


async def _waiting(database: Database, request_id: UUID) -> ExplainedWaiting | None:
    waiting = await routing.waiting_of(database, request_id)
    if waiting is None:
        return None
    attempts = await ledger.route_attempts_of(database, request_id)
    return ExplainedWaiting(waiting, tuple(attempts), tuple(await ledger.route_steps_of(database, request_id)))


async def _decisions(runtime: Runtime, message: StoredMessage) -> tuple[ExplainedDecision, ...]:
    decisions = await ledger.decisions_of(runtime.database, message.request_id)
    return tuple([await _decision(runtime, message, decision) for decision in decisions])


async def _decision(runtime: Runtime, message: StoredMessage, decision: ShownDecision) -> ExplainedDecision:
    # Decisions of an earlier release did not keep their facts; most can be derived from the bytes.
    known = await _facts(runtime, message) if decision.facts is None else decision.facts
    trail = await _explain_steps(runtime, decision.version, decision.trail, known)
    seen, people = (None, None) if known is None else split_people_version(known)
    shown = None if seen is None else shown_facts(seen)
    head = decision.n, decision.version, decision.branches, decision.decided_at
    return ExplainedDecision(*head, trail, shown, people)


async def explained_trail(runtime: Runtime, decision: Decision) -> tuple[ExplainedStep, ...]:
    """The trail of a decision, with the rules evaluated in each team."""
    trail = [msgspec.to_builtins(step) for step in decision.trail]
    return await _explain_steps(runtime, decision.version, trail, decision.facts)


async def _explain_steps(
    runtime: Runtime, version: int, trail: Sequence[JsonMapping], known: Mapping[str, str] | None
) -> tuple[ExplainedStep, ...]:
    """Each step by the rules of that version. Parts that a rule could not serve follow as a step of the same team."""
    asked = list(dict.fromkeys(TeamId(step["team_id"]) for step in trail if step["reason"] in _BY_RULES))
    fired = {str(step["rule_id"]) for step in trail if step.get("rule_id")}
    surveys = None if known is None else await _surveys(runtime, _Then(version, fired), asked, known)
    if surveys is None:
        return tuple(_step(step, None) for step in trail)
    seen: set[str] = set()
    steps: list[ExplainedStep] = []
    for step in trail:
        if step["reason"] in _BY_MODEL:
            steps.append(_by_rules(step, surveys[step["team_id"]].ruled))
            continue
        by_rules = step["reason"] in _BY_RULES and step["team_id"] not in seen
        if by_rules:
            seen.add(step["team_id"])
            steps.append(_by_rules(step, surveys[step["team_id"]].whole))
        else:
            steps.append(_step(step, () if step["reason"] in _BY_RULES else None))
    return tuple(steps)


class _Then(Struct, frozen=True):
    """The version that decided, and the rules that fired."""

    version: int
    fired: Collection[str]

    def counts(self, rule: Rule, members: Mapping[SystemId, Member]) -> bool:
        return str(rule.rule_id) in self.fired or not has_only_inactive_butlers(rule.targets, members)


class _Surveys:
    """The surveyed rules of one team: all of them, and those without the catch-alls, which come after a model."""

    def __init__(self, known: Mapping[str, str], implies: Implies) -> None:
        self.whole = Survey(known, implies=implies)
        self.ruled = Survey(known, implies=implies)

    def add(self, rules: Sequence[Rule]) -> None:
        self.whole.add(rules)
        self.ruled.add(rule for rule in rules if not rule.catch_all)


def _members(team: Team) -> dict[SystemId, Member]:
    return {one.system_id: one for one in team.members}


async def _surveys(
    runtime: Runtime, then: _Then, asked: Sequence[TeamId], known: Mapping[str, str]
) -> dict[str, _Surveys]:
    """Survey the rules of these teams as they were then, except those whose butlers have all been switched off."""
    members = {team.team_id: _members(team) for team in runtime.rule_book.rules.teams}
    surveys: dict[str, _Surveys] = {team_id: _Surveys(known, runtime.channels.implies) for team_id in asked}
    async with open_rules_at(runtime.database, then.version, asked) as pieces:
        async for rules in pieces:
            for team_id in {rule.team_id for rule in rules}:
                own = (rule for rule in rules if rule.team_id == team_id)
                surveys[team_id].add([rule for rule in own if then.counts(rule, members.get(team_id, {}))])
    return surveys


def _by_rules(step: JsonMapping, survey: Survey) -> ExplainedStep:
    missed = step["reason"] == "no_route" or step["reason"] in _BY_MODEL
    return replace(
        _step(step, tuple(map(_looked_at, survey.considered))),
        left_out=survey.left_out,
        nearest=tuple(map(_looked_at, survey.nearest)) if missed else (),
        beaten=() if missed else tuple(BeatenRule(one.rule.rule_id, one.rule.name, one.by) for one in survey.beaten),
    )


def _step(step: JsonMapping, looked_at: tuple[ConsideredRule, ...] | None) -> ExplainedStep:
    s = step
    return ExplainedStep(s["team_id"], s["reason"], s["rule_id"], s["rule_name"], s["targets"], s["detail"], looked_at)


def _looked_at(one: Considered) -> ConsideredRule:
    rule, actual = one.rule, None if one.actual is None else shown_fact(one.actual)
    return ConsideredRule(rule.rule_id, rule.name, one.fired, one.failed_filter, one.expected, actual, one.failed)


async def _facts(runtime: Runtime, message: StoredMessage) -> Mapping[str, str] | None:
    """The facts that the rules saw, read from the original bytes: the table keeps no `payload.raw`."""
    envelope = await _whole(runtime, message)
    schedule = runtime.channels.schedule_at(message.received_at)
    return None if envelope is None else facts(envelope, runtime.channels[message.channel], schedule)


async def _whole(runtime: Runtime, message: StoredMessage) -> Envelope | None:
    kept = await inbox.get_raw(runtime.database, message.request_id)
    return None if kept is None else whole_envelope(Original(*kept, message.envelope))


async def _deliveries(database: Database, request_id: UUID) -> tuple[ExplainedDelivery, ...]:
    attempts = await ledger.attempts_of(database, request_id)
    steps = await ledger.steps_of(database, request_id)
    offered = {(one.lane, one.seq): one for one in await ledger.offered_in(database, request_id)}
    refused = await ledger.refused_in(database, request_id)
    told = await ledger.told_facts_in(database, request_id)
    return tuple(
        ExplainedDelivery(
            delivery,
            tuple(a for a in attempts if (a.lane, a.seq) == (delivery.lane, delivery.seq)),
            tuple(s for s in steps if (s.lane, s.seq) == (delivery.lane, delivery.seq)),
            offered.get((delivery.lane, delivery.seq)),
            tuple(r for r in refused if (r.lane, r.seq) == (delivery.lane, delivery.seq)),
            tuple(f for f in told if (f.lane, f.seq) == (delivery.lane, delivery.seq)),
        )
        for delivery in await ledger.deliveries_of(database, request_id)
    )


async def _replies(database: Database, request_id: UUID) -> tuple[ExplainedReply, ...]:
    _, replies = await outbox.replies_of(database, request_id)
    receipts = await outbox.list_receipts(database, request_id)
    return tuple(
        ExplainedReply(reply, tuple(r for r in receipts if r["outbox_id"] == reply.outbox_id)) for reply in replies
    )


async def _dead_letters(database: Database, request_id: UUID) -> tuple[ExplainedDeadLetter, ...]:
    notices = await dead_letters.notices_of(database, request_id)
    return tuple(
        ExplainedDeadLetter(dead_letter, tuple(n for n in notices if n.dead_letter_id == dead_letter.dead_letter_id))
        for dead_letter in await dead_letters.dead_letters_of(database, request_id)
    )

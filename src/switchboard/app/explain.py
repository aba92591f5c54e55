"""Why did this message go there, and what became of it: everything on record about one message in one value.

Called by `GET /v1/messages/{id}/explain` and `switchboard explain`. In: a request_id; out: an `Explanation`, which
msgspec turns into JSON as it is. Reads only. Next: the reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from switchboard.app.views import MessageView, message_view
from switchboard.app.wiring import Core
from switchboard.core.mail import envelope_from_mail
from switchboard.core.routing.explain import Considered, considered
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.domain.ledger import OutboxRow
from switchboard.domain.routing import RuleSet
from switchboard.store import dead_letters, inbox, ledger, outbox
from switchboard.store.database import Database
from switchboard.store.dead_letters import Notice, ShownDeadLetter
from switchboard.store.inbox import StoredMessage
from switchboard.store.ledger import Attempt, ShownDecision, ShownDelivery, ShownStep


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A rule in the order of looking. `failed_filter` is the first that did not match, None for the rule that fired."""

    rule_id: UUID
    name: str
    fired: bool
    failed_filter: str | None
    expected: str | None
    actual: str | None


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """What happened in one team. `considered` is None when the rules have changed since, so that nobody can tell."""

    team_id: str
    reason: str
    rule_id: str | None
    rule_name: str | None
    targets: Sequence[Mapping[str, Any]]
    detail: str
    considered: tuple[LookedAt, ...] | None


@dataclass(frozen=True, slots=True)
class ExplainedDecision:
    """One decision, by which version of the rules, and its trail down the tree of teams."""

    n: int
    version: int
    branches: int
    decided_at: datetime
    trail: tuple[ExplainedStep, ...]


@dataclass(frozen=True, slots=True)
class ExplainedDelivery:
    """A delivery with every run of its butler and every journaled step."""

    delivery: ShownDelivery
    attempts: tuple[Attempt, ...]
    steps: tuple[ShownStep, ...]


@dataclass(frozen=True, slots=True)
class ExplainedReply:
    """A reply, and per attempt to send it what the platform said."""

    reply: OutboxRow
    receipts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ExplainedDeadLetter:
    """A dead letter, and who was told of it."""

    dead_letter: ShownDeadLetter
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is on record about one message, in the order of its way."""

    message: MessageView
    decisions: tuple[ExplainedDecision, ...]
    deliveries: tuple[ExplainedDelivery, ...]
    replies: tuple[ExplainedReply, ...]
    dead_letters: tuple[ExplainedDeadLetter, ...]


async def explain(core: Core, request_id: UUID) -> Explanation:
    """Everything about the message `request_id`. Raises NotFound."""
    message = await inbox.get_message(core.database, request_id)
    if message is None:
        raise NotFound(f"there is no message {request_id}")
    return Explanation(
        message=message_view(message),
        decisions=await _decisions(core, message),
        deliveries=await _deliveries(core.database, request_id),
        replies=await _replies(core.database, request_id),
        dead_letters=await _dead_letters(core.database, request_id),
    )


async def _decisions(core: Core, message: StoredMessage) -> tuple[ExplainedDecision, ...]:
    decisions = await ledger.decisions_of(core.database, message.request_id)
    rule_set = core.rule_book.rules.rule_set
    found: Mapping[str, str] | None = None
    if any(decision.version == rule_set.version for decision in decisions):
        found = await _facts(core.database, message)
    return tuple(_decision(decision, rule_set, found) for decision in decisions)


def _decision(decision: ShownDecision, rule_set: RuleSet, found: Mapping[str, str] | None) -> ExplainedDecision:
    known = found if decision.version == rule_set.version else None
    trail = tuple(_step(step, rule_set, known) for step in decision.trail)
    return ExplainedDecision(decision.n, decision.version, decision.branches, decision.decided_at, trail)


def _step(step: Mapping[str, Any], rule_set: RuleSet, found: Mapping[str, str] | None) -> ExplainedStep:
    looked_at = None
    if found is not None and not step["reason"].startswith("pin"):
        rules = (rule for rule in rule_set.rules if rule.team_id == step["team_id"])
        looked_at = tuple(_looked_at(one) for one in considered(rules, found))
    return ExplainedStep(
        step["team_id"],
        step["reason"],
        step["rule_id"],
        step["rule_name"],
        step["targets"],
        step["detail"],
        looked_at,
    )


def _looked_at(one: Considered) -> LookedAt:
    return LookedAt(one.rule.rule_id, one.rule.name, one.fired, one.failed_filter, one.expected, one.actual)


async def _facts(database: Database, message: StoredMessage) -> Mapping[str, str] | None:
    """The facts the rules saw. They lie in the bytes as they arrived: the table keeps no `payload.raw`."""
    kept = await inbox.get_raw(database, message.request_id)
    if kept is None:
        return None
    raw, media_type = kept
    try:
        if media_type == "message/rfc822":
            provider = message.envelope["source"]["provider"]
            mail = envelope_from_mail(raw, endpoint=message.endpoint, provider=provider, now=message.received_at)
            return facts(mail.envelope)
        return facts(Envelope.model_validate_json(raw))
    except (InvalidInput, ValidationError):  # a later release may read the same bytes in another way
        return None


async def _deliveries(database: Database, request_id: UUID) -> tuple[ExplainedDelivery, ...]:
    attempts = await ledger.attempts_of(database, request_id)
    steps = await ledger.steps_of(database, request_id)
    return tuple(
        ExplainedDelivery(
            delivery,
            tuple(a for a in attempts if (a.lane, a.seq) == (delivery.lane, delivery.seq)),
            tuple(s for s in steps if (s.lane, s.seq) == (delivery.lane, delivery.seq)),
        )
        for delivery in await ledger.deliveries_of(database, request_id)
    )


async def _replies(database: Database, request_id: UUID) -> tuple[ExplainedReply, ...]:
    receipts = await outbox.list_receipts(database, request_id)
    return tuple(
        ExplainedReply(reply, tuple(r for r in receipts if r["outbox_id"] == reply.outbox_id))
        for reply in await outbox.list_replies(database, request_id=request_id)
    )


async def _dead_letters(database: Database, request_id: UUID) -> tuple[ExplainedDeadLetter, ...]:
    notices = await dead_letters.notices_of(database, request_id)
    return tuple(
        ExplainedDeadLetter(letter, tuple(n for n in notices if n.dead_letter_id == letter.dead_letter_id))
        for letter in await dead_letters.dead_letters_of(database, request_id)
    )

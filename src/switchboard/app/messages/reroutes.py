"""Messages that were sent to the wrong butler, by rules or by a model: a person sends them to another one.

HTTP and the page call `MessageRerouter` with the caller's `Principal`. It is a further decision, whose trail says that
it was made by hand, by whom and why; what those who have the message have not done yet ends there, in the same
transaction, so that it is not answered twice. What they did is not taken back. Next: `store/messages/reroutes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.messages.receivers import team_of_receiver
from switchboard.app.runtime import Runtime
from switchboard.core.policy.tiers import TIERS
from switchboard.core.routing.decide import decide
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import Decision, SystemId, Target, TeamId, TrailStep
from switchboard.domain.shown import MadeDelivery
from switchboard.journey.stopping import announce
from switchboard.lanes.notifier import WORK
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters, inbox
from switchboard.store.messages import reroutes as store
from switchboard.store.messages.dead_letters import DeadLetterHandling
from switchboard.store.people import audit
from switchboard.store.work import ledger
from switchboard.store.work.ledger import ShownDecision

REROUTE: Final = Action("reroute", OPERATOR)


class RerouteOrder(Struct, frozen=True):
    """Where a message goes, and why. Without `to` the rules decide, as they are now.

    `instead_of`: a butler that has it, in whose place; the others keep it, and a part that a model has cut for it is
    what goes on. `again`: even if there is an answer already, so that there may be a second one.
    """

    reason: str
    to: Target | None = None
    instead_of: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class ReroutedMessage:
    """The further decision, who gets the message by it, and which butlers will not answer it any more."""

    request_id: UUID
    decision_n: int
    deliveries: Sequence[MadeDelivery]
    withdrawn: Sequence[str]


class MessageRerouter:
    """Serves operators, who are authorised before."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def reroute(self, caller: Principal, request_id: UUID, wanted: RerouteOrder) -> ReroutedMessage:
        """Send a message to a butler, to a team, or where the rules lead now. All or nothing.

        Raises NotFound; InvalidInput for a receiver that does not exist; Conflict if the message is not decided yet,
        was answered, is a command to Switchboard, or if nobody new would get it.
        """
        stored = await inbox.get_message(self._database, request_id)
        if stored is None:
            raise NotFound(f"there is no message {request_id}")
        decision = self._decide_again(await self._first_decision(request_id), wanted)
        order = store.MessageReroute(
            request_id,
            wanted.instead_of,
            wanted.again,
            _with_author(decision, caller, wanted),
            TIERS[(stored.envelope.get("control") or {}).get("policy_tier", "default")],
            DeadLetterHandling(caller.name, wanted.reason),
        )
        async with self._database.transaction() as one:
            outcome = await store.reroute_message(one, order)
            if outcome is None:
                raise NotFound(f"there is no message {request_id}")
            if outcome.n is None:
                raise _refusal_of(outcome, order)
            made = await dead_letters.rerouted(one, request_id, outcome.n)
            await _record_in_audit(one, caller, wanted, made, order)
        self._runtime.notifier.notify(WORK)
        await announce(self._database, self._runtime.notifier, outcome.items)
        return ReroutedMessage(request_id, outcome.n, made, outcome.systems)

    async def _first_decision(self, request_id: UUID) -> ShownDecision:
        made = await ledger.decisions_of(self._database, request_id)
        if not made:
            raise _not_decided(request_id)
        if made[0].trail and made[0].trail[0]["reason"] == "command":
            raise Conflict("this is a command to Switchboard itself, and for no butler", code="not_for_butlers")
        return made[0]

    def _decide_again(self, first: ShownDecision, wanted: RerouteOrder) -> Decision:
        rules = self._runtime.rule_book.rules
        index, facts, to = rules.index, first.facts or {}, wanted.to
        if to is not None:
            team_of_receiver(rules, to)
        if to is not None and to.system_id is not None:
            chosen = index.butler(SystemId(to.system_id))
            return Decision(index.version, () if chosen is None else (chosen,), (), (), facts)
        decision = decide(index, facts) if to is None else decide(index, facts, start=to.team_id)
        if not decision.chosen:
            why = "; ".join(f"{branch.team_id}: {branch.reason}" for branch in decision.unrouted)
            raise Conflict(f"the rules lead to no butler ({why}); name one", code="nobody_takes_it", field="to")
        return decision


async def _record_in_audit(
    database: Database,
    caller: Principal,
    wanted: RerouteOrder,
    made: Sequence[MadeDelivery],
    order: store.MessageReroute,
) -> None:
    detail: JsonObject = {
        "request_id": str(order.request_id),
        "to": [one.system_id for one in made],
        "instead_of": wanted.instead_of,
        "reason": wanted.reason,
    }
    await audit.append(database, caller.name, "message:rerouted", detail)


def _with_author(decision: Decision, caller: Principal, wanted: RerouteOrder) -> Decision:
    """The decision with its first step: by hand, by whom, in place of whom and why."""
    place = f" in place of {wanted.instead_of}" if wanted.instead_of else ""
    targets = () if wanted.to is None else (wanted.to,)
    team_id = decision.chosen[0].team_id if decision.chosen else TeamId("")
    step = TrailStep(team_id, "by_hand", targets=targets, detail=f"by {caller.name}{place}: {wanted.reason}")
    return replace(decision, trail=(step, *decision.trail))


def _not_decided(request_id: UUID) -> Conflict:
    return Conflict(
        f"message {request_id} is not decided yet: it is held, or waits for a model; reroute it afterwards",
        code="not_decided",
    )


def _refusal_of(outcome: store.RerouteOutcome, order: store.MessageReroute) -> Conflict:
    match outcome.state:
        case "answered":
            who = order.instead_of or "a butler"
            return Conflict(
                f"{who} has answered this message already; to get another answer, say so (`again`)",
                code="already_answered",
                field="again",
            )
        case "absent":
            return Conflict(f"{order.instead_of} does not have this message", code="not_there", field="instead_of")
        case "taken":
            names = ", ".join(chosen.system_id for chosen in order.decision.chosen)
            return Conflict(f"{names} already had this message; name another", code="already_delivered", field="to")
    return _not_decided(order.request_id)

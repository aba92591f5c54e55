"""Corrections of a model's wrong choice: recorded, and the message goes to the right butler or team.

HTTP calls `CorrectionService` with the caller's `Principal`: an operator, or the System3 of a team that asked a model,
or of one above it. Log, decision and delivery are one transaction (`correct_decision` in SQL), which shares its steps
with the reroute of a dead letter. What the wrong butler did is not taken back. Next:
`store/models/classification_log.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import AGENT, Access, Action, Principal
from switchboard.app.messages.receivers import team_of_receiver
from switchboard.app.runtime import Runtime
from switchboard.core.policy.tiers import TIERS
from switchboard.core.routing.decide import decide
from switchboard.core.routing.scope import editable
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound
from switchboard.domain.routing import Decision, SystemId, Target, TeamId, TrailStep
from switchboard.domain.shown import Logged, MadeDelivery
from switchboard.lanes.notifier import WORK
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters, inbox
from switchboard.store.messages.inbox import StoredMessage
from switchboard.store.models import classification
from switchboard.store.models import classification_log as store
from switchboard.store.models.classification_log import Correction, LoggedOutcome, Sending
from switchboard.store.people import audit
from switchboard.store.work import ledger

CORRECT: Final = Action("correct", AGENT)


class Wish(Struct, frozen=True):
    """Which butler or team should have received the message, and why; with `only_note` it is not delivered there."""

    to: str
    reason: str | None = None
    only_note: bool = False


@dataclass(frozen=True, slots=True)
class CorrectionResult:
    """`already`: the same correction was made before; `decision_n` is null if no further delivery was needed."""

    request_id: UUID
    corrected_to: str
    corrected_by: str
    reason: str | None
    already: bool
    decision_n: int | None
    deliveries: Sequence[MadeDelivery]


class CorrectionService:
    """Serves operators and System3s. Roles are checked by the interface (`Access.check`), teams here."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._access = access

    async def correct(self, caller: Principal, request_id: UUID, wish: Wish) -> CorrectionResult:
        """Name the right butler or team of a message, and deliver it where it is missing. Idempotent.

        In a team, its rules and those of the teams below decide; no model is asked. Raises NotFound; InvalidInput for a
        butler or team that does not exist, Forbidden for one out of the caller's reach; Conflict if no model was asked,
        the message is not yet decided, or the team's rules lead to no butler.
        """
        teams = self._teams_of(caller)
        stored, asked = await self._find_asked(caller, request_id, teams)
        to = await self._check_receiver(caller, request_id, wish.to, teams)
        by = caller.system_id or caller.name
        named = None if teams is None else sorted(teams)
        correction = Correction(request_id, wish.to, by, wish.reason, named, self._team_of(caller))
        sending = None if wish.only_note else await self._sending_of(stored, asked, to, correction)
        async with self._database.transaction() as one:
            outcome = await store.correct(one, correction, sending)
            if outcome is None:
                raise NotFound(f"there is no message {request_id}")
            if not outcome.decided:
                raise Conflict(
                    f"message {request_id} is still waiting for a model; correct it afterwards", code="not_decided"
                )
            await _record_in_audit(one, caller, correction, outcome)
        if outcome.n is not None:
            self._runtime.notifier.notify(WORK)
        made = () if outcome.n is None else await dead_letters.rerouted(self._database, request_id, outcome.n)
        already = not outcome.noted and outcome.n is None
        return CorrectionResult(request_id, wish.to, by, wish.reason, already, outcome.n, made)

    def _teams_of(self, caller: Principal) -> frozenset[TeamId] | None:
        """The teams whose models' choices the caller may correct; None: all."""
        if caller.role == "operator":
            return None
        rules = self._runtime.rule_book.rules
        return editable(rules.teams, rules.members, SystemId(caller.system_id or ""))

    def _team_of(self, caller: Principal) -> TeamId | None:
        """The team of an agent, which passes on the part that reached it. None: an operator passes on the whole."""
        member = self._runtime.rule_book.rules.members.get(SystemId(caller.system_id or ""))
        return None if caller.role == "operator" or member is None else member.team_id

    async def _find_asked(
        self, caller: Principal, request_id: UUID, teams: frozenset[TeamId] | None
    ) -> tuple[StoredMessage, Logged]:
        """The message, and the last attempt to classify it that the caller may correct."""
        stored = await inbox.get_message(self._database, request_id)
        rows = await classification.attempts(self._database, request_id)
        own = [row for row in rows if teams is None or row.team_id in teams]
        if teams is not None and (stored is None or not own):
            raise await self._access.hide(caller, CORRECT, f"message {request_id}")
        if stored is None:
            raise NotFound(f"there is no message {request_id}")
        if not own:
            raise Conflict(
                f"no model was asked about message {request_id}; change the rule that decided, or reroute "
                "its dead letter",
                code="not_classified",
            )
        return stored, own[-1]

    async def _check_receiver(
        self, caller: Principal, request_id: UUID, to: str, teams: frozenset[TeamId] | None
    ) -> Target:
        rules = self._runtime.rule_book.rules
        known = any(team.team_id == to for team in rules.teams)
        target = Target(team_id=TeamId(to)) if known else Target(SystemId(to))
        try:
            team_id = team_of_receiver(rules, target)
        except InvalidInput as error:
            if known or to in rules.members:
                raise
            raise NotFound(error.message) from error
        if teams is not None and team_id not in teams:
            await self._access.record_refusal(caller, CORRECT, {"request_id": str(request_id), "to": to})
            raise Forbidden(f"{caller.system_id} may only use its own team and those below as targets", field="to")
        return target

    async def _sending_of(self, stored: StoredMessage, asked: Logged, to: Target, correction: Correction) -> Sending:
        detail = f"by {correction.by}" + (f": {correction.reason}" if correction.reason else "")
        step = TrailStep(TeamId(asked.team_id), "correction", targets=(to,), detail=detail)
        tier = TIERS[(stored.envelope.get("control") or {}).get("policy_tier", "default")]
        decision = await self._decide_target(stored.request_id, to)
        return Sending(replace(decision, trail=(step, *decision.trail)), tier)

    async def _decide_target(self, request_id: UUID, to: Target) -> Decision:
        """The butler, or those selected by the team's rules."""
        index = self._runtime.rule_book.rules.index
        if to.system_id is not None:
            chosen = index.butler(to.system_id)
            return Decision(index.version, () if chosen is None else (chosen,), (), ())
        made = await ledger.decisions_of(self._database, request_id)
        decision = decide(index, made[0].facts or {} if made else {}, start=to.team_id)
        if made and not decision.chosen:
            raise Conflict(
                f"the rules of {to.team_id} lead to no butler, and a correction asks no model; name a butler",
                code="nobody_takes_it",
                field="to",
            )
        return decision


async def _record_in_audit(
    database: Database, caller: Principal, correction: Correction, outcome: LoggedOutcome
) -> None:
    if outcome.noted or outcome.n is not None:
        detail = {"request_id": str(correction.request_id), "to": correction.to, "reason": correction.reason}
        await audit.append(database, caller.name, "message:corrected", {**detail, "decision_n": outcome.n})

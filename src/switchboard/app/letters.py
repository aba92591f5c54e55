"""The dead letters' desk: what nobody could take is seen, sent on, or closed, one by one or many by a filter.

HTTP and MCP call `LetterDesk` with the caller's `Principal`. A System4 sees and does this for its own team (and those
below without a System4), an operator for all; NotFound for what is out of scope, so that nothing is learnt from asking.
A letter is rerouted in one transaction (`reroute_letter` of schema.sql) and stays as it was when that fails. Next:
`store/dead_letters.py`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn
from uuid import UUID, uuid5

from msgspec.structs import replace as changed

from switchboard.app.access import Access, Principal
from switchboard.app.originals import Original, whole_envelope
from switchboard.app.proposals import existing
from switchboard.app.receivers import team_of_receiver
from switchboard.app.rules import NewRule, Order, RuleDesk, WrittenRule
from switchboard.app.views import uuid_cursor
from switchboard.app.wiring import Core
from switchboard.core.routing.decide import decide
from switchboard.core.routing.draft import draft_of, parse_draft
from switchboard.core.routing.facts import facts
from switchboard.core.routing.rulefile import target_json
from switchboard.core.routing.scope import handled_by, subtree
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, SwitchboardError, Unavailable
from switchboard.domain.routing import Decision, SystemId, Target, TeamId, TrailStep
from switchboard.lanes.bell import WORK
from switchboard.store import audit, inbox
from switchboard.store import dead_letters as store
from switchboard.store import rules as rule_store
from switchboard.store.dead_letters import Case, LetterFilter, MadeDelivery, Notice, Remains, ShownDeadLetter, Verdict

__all__ = ["LetterDesk", "LetterFilter", "ShownDeadLetter"]

_CHUNK: Final = 100


@dataclass(frozen=True, slots=True)
class DeadLetterDetail(ShownDeadLetter):
    """A dead letter with its message, who was told, and where it was sent on to.

    Whose team got a part of the message sees that part for its text, and no bytes.
    """

    payload: Any
    raw_base64: str
    notices: Sequence[Notice]
    rerouted_to: Sequence[MadeDelivery]


@dataclass(frozen=True, slots=True)
class RuleWish:
    """A rule of the letter's team, by which the next such message goes there by itself.

    `filters` may be keys alone: their values are those of the letter's message. There is one at least.
    """

    name: str
    filters: Mapping[str, str | int] | Sequence[str] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Reroute:
    """Where a letter shall go, and why. Without `to` the rules decide, from the letter's own team downward."""

    reason: str
    to: Target | None = None
    rule: RuleWish | None = None


@dataclass(frozen=True, slots=True)
class Rerouted:
    """`already`: it was rerouted before, and nothing was done now; then there is no `rule` either."""

    dead_letter: ShownDeadLetter
    decision_n: int
    deliveries: Sequence[MadeDelivery]
    already: bool
    rule: WrittenRule | None = None


@dataclass(frozen=True, slots=True)
class Handled:
    """`already`: it was closed before, and nothing was done now."""

    dead_letter: ShownDeadLetter
    already: bool


@dataclass(frozen=True, slots=True)
class Bulk:
    """The same for every pending letter of a filter, oldest first, at most `limit`; `after` is where to go on.

    `dry_run` does nothing, and says of each what would come of it.
    """

    wanted: LetterFilter
    action: Literal["reroute", "handle"]
    reason: str
    to: Target | None = None
    limit: int = 100
    after: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A letter that stays as it was, and why."""

    dead_letter_id: UUID
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A letter that would be sent on, and to whom."""

    dead_letter_id: UUID
    to: Sequence[SystemId]


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """`matched` letters were there from this point on; `next_cursor` is None when all of them were looked at.

    `would` is what a dry run of a reroute says of each that does not fail.
    """

    matched: int
    done: int
    failed: Sequence[Failure]
    next_cursor: str | None
    dry_run: bool
    would: Sequence[Foreseen] = ()


class _BeyondReach(Forbidden):
    """The receiver is not the caller's to send to; whoever was asked puts the refusal on record, once."""


class LetterDesk:
    """Serves System4s and operators. Roles are checked by the door (`Access.check`), teams here."""

    def __init__(self, core: Core, access: Access, rules: RuleDesk) -> None:
        self._core = core
        self._database = core.database
        self._access = access
        self._rules = rules

    def may_handle(self, caller: Principal) -> bool:
        """Whether there are dead letters that this caller may see: an operator, or the System4 of a team."""
        return caller.role == "operator" or bool(self._own_teams(caller))

    async def list(
        self, caller: Principal, wanted: LetterFilter, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownDeadLetter], str | None]:
        """A page, newest first, and the cursor of the next. Raises Forbidden, InvalidInput."""
        wanted = await self._within(caller, wanted)
        before = None if cursor is None else uuid_cursor(cursor)
        page = await store.list_dead_letters(self._database, wanted, self._reader(caller), before=before, limit=limit)
        return page, str(page[-1].dead_letter_id) if len(page) == limit else None

    async def get(self, caller: Principal, dead_letter_id: UUID) -> DeadLetterDetail:
        """One dead letter, whole. Raises NotFound."""
        found = await store.get_dead_letter(self._database, dead_letter_id, self._reader(caller))
        if found is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        shown, remains = found
        await self._check_team(caller, dead_letter_id, TeamId(shown.team_id))
        notices = await store.notices_of(self._database, shown.request_id)
        return DeadLetterDetail(
            **{name: getattr(shown, name) for name in ShownDeadLetter.__slots__},
            payload=_seen_payload(remains),
            raw_base64=base64.b64encode(remains.raw if remains.seen is None else b"").decode(),
            notices=[notice for notice in notices if notice.dead_letter_id == dead_letter_id],
            rerouted_to=await self._rerouted_to(shown.request_id, shown.rerouted_n),
        )

    async def reroute(self, caller: Principal, dead_letter_id: UUID, wanted: Reroute) -> Rerouted:
        """Send the message on. Repeated, it says what was done and does nothing.

        Raises NotFound; InvalidInput for a receiver that is not there, Forbidden for one out of the caller's reach or a
        rule that is not his to make; Conflict where nobody takes it, or where the letter was closed, sent elsewhere or
        made another rule of. The letter stays as it was then.
        """
        try:
            done = await self._reroute(caller, dead_letter_id, wanted)
        except _BeyondReach:
            await self._refuse(caller, wanted.to, {"dead_letter_id": str(dead_letter_id)})
            raise
        if not done.already:
            to = [delivery.system_id for delivery in done.deliveries]
            await self._record(caller, "dead_letter:rerouted", {"dead_letter_id": str(dead_letter_id), "to": to})
        return done

    async def handle(self, caller: Principal, dead_letter_id: UUID, resolution: str) -> Handled:
        """Close a letter: nothing more is to be done. Raises NotFound, and Conflict where it was rerouted."""
        done = await self._handle(caller, dead_letter_id, resolution)
        if not done.already:
            await self._record(caller, "dead_letter:handled", {"dead_letter_id": str(dead_letter_id)})
        return done

    async def bulk(self, caller: Principal, wanted: Bulk) -> BulkOutcome:
        """Each letter by itself; what fails stays pending and is told. Safe to be run again.

        Raises Forbidden, and as `reroute` for a receiver to whom none of these letters may go.
        """
        filtered = await self._within(caller, wanted.wanted)
        try:
            self._check_reach(caller, filtered.teams or (), wanted.to)
        except _BeyondReach:
            await self._refuse(caller, wanted.to, {"teams": list(filtered.teams or ())})
            raise
        after = None if wanted.after is None else uuid_cursor(wanted.after)
        matched = await store.count_pending(self._database, filtered, after=after)
        failed: list[Failure] = []
        would: list[Foreseen] = []
        seen = 0
        try:
            async for dead_letter_id in self._pending(filtered, after, wanted.limit):
                outcome = await self._one_of_many(caller, dead_letter_id, wanted)
                failed += [outcome] if isinstance(outcome, Failure) else []
                would += [outcome] if isinstance(outcome, Foreseen) else []
                seen, after = seen + 1, dead_letter_id
        finally:  # what was done before it broke off is on record too
            if not wanted.dry_run:
                done = {"done": seen - len(failed), "failed": len(failed)}
                await self._record(caller, "dead_letters:bulk", {**_order_form(wanted, filtered), **done})
        following = str(after) if matched > seen and after is not None else None
        return BulkOutcome(matched, seen - len(failed), failed, following, wanted.dry_run, would)

    async def _pending(self, wanted: LetterFilter, after: UUID | None, limit: int) -> AsyncIterator[UUID]:
        """The pending letters of a filter, oldest first, at most `limit`; read piece by piece."""
        while limit > 0:
            size = min(_CHUNK, limit)
            chunk = await store.pending_ids(self._database, wanted, after=after, limit=size)
            for dead_letter_id in chunk:
                yield dead_letter_id
            if len(chunk) < size:
                return
            limit, after = limit - size, chunk[-1]

    async def _one_of_many(self, caller: Principal, dead_letter_id: UUID, wanted: Bulk) -> Failure | Foreseen | None:
        """Do it for one letter; gives the failure, if it is one, and of a dry run what would become of it."""
        try:
            if wanted.action == "handle":
                if not wanted.dry_run:
                    await self._handle(caller, dead_letter_id, wanted.reason)
            elif wanted.dry_run:
                case = await self._case(caller, dead_letter_id)
                decision = await self._decide(caller, case, wanted.to)
                self._check_takers(case, decision)
                to = [chosen.system_id for chosen in decision.chosen if chosen.system_id not in case.taken]
                return Foreseen(dead_letter_id, to)
            else:
                await self._reroute(caller, dead_letter_id, Reroute(wanted.reason, wanted.to))
        except Unavailable:
            raise  # the others would fail as well, and none of this is lost
        except SwitchboardError as error:
            return Failure(dead_letter_id, error.code, error.message)
        return None

    async def _reroute(self, caller: Principal, dead_letter_id: UUID, wanted: Reroute) -> Rerouted:
        case = await self._case(caller, dead_letter_id)
        if wanted.rule is not None and wanted.to is None:
            raise InvalidInput("a rule needs to know to whom: name a butler or a team", field="to")
        if case.status == "handled":
            return await self._before(caller, case, wanted, case.rerouted_n)
        decision = await self._decide(caller, case, wanted.to)
        self._check_takers(case, decision)
        # The rule first: when what follows fails, doing it all again finds the rule made, and goes on from there.
        rule = await self._make_rule(caller, case, wanted)
        verdict = Verdict(_author(caller), wanted.reason)
        step = _reroute_step(case, wanted, verdict, rule)
        decision = changed(decision, trail=(step, *decision.trail))
        outcome = await store.reroute(self._database, case, decision, verdict)
        if outcome is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        if outcome.state == "taken":
            _nobody_new(decision)
        if outcome.state == "handled" or outcome.n is None:
            return await self._before(caller, case, wanted, outcome.n)
        self._core.bell.ring(WORK)
        deliveries = await self._rerouted_to(case.request_id, outcome.n)
        return Rerouted(await self._shown(caller, case), outcome.n, deliveries, already=False, rule=rule)

    async def _make_rule(self, caller: Principal, case: Case, wanted: Reroute) -> WrittenRule | None:
        """The rule of the letter, if one is wished: its id follows from the letter's, so that there is only one."""
        if wanted.rule is None or wanted.to is None:
            return None
        known = await self._facts(case)
        new = NewRule(case.team_id, _rule_fields(wanted.rule, wanted.to, known), _rule_id(case))
        try:
            return await self._rules.create(caller, new, Order(wanted.reason))
        except InvalidInput as error:
            error.field = _field_of_wish(error.field)
            raise
        except Conflict as error:
            if error.field != "rule_id":
                raise
            made = await existing(self._core, _rule_id(case))
            raise Conflict(
                f"the rule of this letter is there already: {made.name!r}, id {made.rule_id}. Send the letter on "
                "without a rule (leave out `rule`), and change that one if it is not right",
                field="rule",
            ) from error

    async def _before(self, caller: Principal, case: Case, wanted: Reroute, n: int | None) -> Rerouted:
        """What the reroute before this one came to, by decision `n`.

        Raises Conflict if a receiver or a rule is asked for that was not then: it would be silently passed over.
        """
        shown = await self._shown(caller, case)
        if n is None:
            raise Conflict(_closed(shown), code="already_handled")
        ordered = await store.rerouted_to(self._database, case.request_id, n)
        if wanted.to is not None and ordered != (wanted.to,):
            raise Conflict(_closed(shown, ordered), code="already_rerouted", field="to")
        if wanted.rule and wanted.to and not await self._was_made(case, wanted.rule, wanted.to):
            raise Conflict(f"{_closed(shown, ordered)} (without this rule)", code="already_rerouted", field="rule")
        return Rerouted(shown, n, await self._rerouted_to(case.request_id, n), already=True)

    async def _was_made(self, case: Case, wish: RuleWish, to: Target) -> bool:
        """Whether this very rule was made of the letter, whatever became of it since."""
        events = await rule_store.history(self._database, _rule_id(case))
        made = events[-1][1].after if events else None
        try:
            wished = parse_draft(_rule_fields(wish, to, await self._facts(case)))
        except InvalidInput:
            return False  # no such rule was ever made
        return made is not None and draft_of(made) == wished

    async def _handle(self, caller: Principal, dead_letter_id: UUID, resolution: str) -> Handled:
        case = await self._case(caller, dead_letter_id)
        done = await store.handle(self._database, dead_letter_id, Verdict(_author(caller), resolution))
        shown = await self._shown(caller, case)
        if not done and shown.rerouted_n is not None:
            raise Conflict(_closed(shown), code="already_rerouted")
        return Handled(shown, already=not done)

    async def _decide(self, caller: Principal, case: Case, to: Target | None) -> Decision:
        """Who is to get it now, by the rules in force."""
        self._check_reach(caller, [case.team_id], to)
        known = await self._facts(case)
        index = self._core.rule_book.rules.index
        if to is None or to.team_id is not None:
            return decide(index, known, start=case.team_id if to is None else to.team_id)
        chosen = index.butler(SystemId(to.system_id or ""))
        if chosen is None:
            raise InvalidInput(f"{to.system_id} is no butler that a way leads to", code="unknown_target", field="to")
        return Decision(index.version, (chosen,), (), (), known)

    def _check_reach(self, caller: Principal, teams: Sequence[str], to: Target | None) -> None:
        """The receiver must be there, and for a System4 in one of these teams, the letters' own, or below."""
        if to is None:
            return
        rules = self._core.rule_book.rules
        team_id = team_of_receiver(rules, to)
        if caller.role != "operator" and not any(team_id in subtree(rules.teams, TeamId(team)) for team in teams):
            raise _BeyondReach(f"{caller.system_id} may send on to its own team and those below only", field="to")

    async def _refuse(self, caller: Principal, to: Target | None, which: Mapping[str, Any]) -> None:
        """Put it on record that somebody wanted to send letters beyond his reach."""
        named = None if to is None else to.system_id or to.team_id
        await self._access.refused(caller, "dead_letters", {**which, "to": named})

    def _check_takers(self, case: Case, decision: Decision) -> None:
        if not decision.chosen:
            why = "; ".join(f"{branch.team_id}: {branch.reason}" for branch in decision.unrouted)
            raise Conflict(
                f"by the rules of version {decision.version} nobody takes it ({why}); change them, or say to whom",
                code="nobody_takes_it",
            )
        if all(chosen.system_id in case.taken for chosen in decision.chosen):
            _nobody_new(decision)

    async def _facts(self, case: Case) -> dict[str, str]:
        """What was known of the message when it came."""
        if case.facts is not None:
            return dict(case.facts)
        stored, kept = (
            await inbox.get_message(self._database, case.request_id),
            await inbox.get_raw(self._database, case.request_id),
        )
        if stored is None or kept is None:
            raise NotFound(f"there is no message {case.request_id}")
        envelope = whole_envelope(Original(*kept, stored.envelope, stored.received_at))
        if envelope is None:
            raise Conflict("what the rules need to know of this message cannot be read any more; name a butler")
        return facts(envelope)

    async def _case(self, caller: Principal, dead_letter_id: UUID) -> Case:
        case = await store.get_case(self._database, dead_letter_id)
        if case is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        await self._check_team(caller, dead_letter_id, case.team_id)
        return case

    async def _shown(self, caller: Principal, case: Case) -> ShownDeadLetter:
        """As it is now; letters are never removed."""
        letters = await store.dead_letters_of(self._database, case.request_id, self._reader(caller))
        return next(letter for letter in letters if letter.dead_letter_id == case.dead_letter_id)

    async def _rerouted_to(self, request_id: UUID, n: int | None) -> Sequence[MadeDelivery]:
        return () if n is None else await store.rerouted(self._database, request_id, n)

    async def _check_team(self, caller: Principal, dead_letter_id: UUID, team_id: TeamId) -> None:
        if caller.role != "operator" and team_id not in self._own_teams(caller):
            raise await self._access.hide(caller, "dead_letters", f"dead letter {dead_letter_id}")

    async def _within(self, caller: Principal, wanted: LetterFilter) -> LetterFilter:
        """The filter, narrowed to what the caller may see. Raises Forbidden."""
        if caller.role == "operator":
            return wanted
        own = self._own_teams(caller)
        if not own or not own.issuperset(wanted.teams or ()):
            await self._access.refused(caller, "dead_letters", {"team_id": list(wanted.teams or ())})
            raise Forbidden("an agent sees the dead letters of which it is told, as the System4 of a team")
        return replace(wanted, teams=sorted(wanted.teams or own))

    def _own_teams(self, caller: Principal) -> frozenset[TeamId]:
        system_id = None if caller.system_id is None else SystemId(caller.system_id)
        rules = self._core.rule_book.rules
        return handled_by(rules.teams, rules.members, system_id)

    def _reader(self, caller: Principal) -> TeamId | None:
        """The team that must not see more of a message than came to it; None: an operator sees all."""
        if caller.role == "operator":
            return None
        member = self._core.rule_book.rules.members.get(SystemId(caller.system_id or ""))
        return TeamId("") if member is None else member.team_id

    async def _record(self, caller: Principal, action: str, detail: dict[str, Any]) -> None:
        await audit.append(self._database, caller.name, action, detail)


def _author(caller: Principal) -> str:
    """Who it was, for the letter: the system, or the name of an operator's token."""
    return caller.system_id or caller.name


def _seen_payload(remains: Remains) -> Mapping[str, Any]:
    """The envelope, its text being what came to the reader's team."""
    if remains.seen is None or not remains.payload:
        return remains.payload
    return {**remains.payload, "payload": {**remains.payload["payload"], "normalized_text": remains.seen}}


def _rule_fields(wish: RuleWish, to: Target, known: Mapping[str, str]) -> dict[str, Any]:
    """The parts of the rule. Raises InvalidInput for a key that the message has no value of, and for no key at all."""
    filters: dict[str, str | int] = dict(wish.filters) if isinstance(wish.filters, Mapping) else {}
    for key in () if filters else wish.filters:
        if key not in known:
            there = ", ".join(sorted(known))
            raise InvalidInput(f"of {key!r} nothing is known of this message; known are {there}", field="rule.filters")
        filters[key] = known[key]
    filters = {key: value for key, value in filters.items() if key != "channel"}
    if not filters:
        there = ", ".join(f"{key} {value!r}" for key, value in sorted(known.items()) if key != "channel")
        raise InvalidInput(
            f"without a filter the rule would take every message of {known['channel']}; this one has {there}",
            field="rule.filters",
        )
    return {
        "name": wish.name,
        "channel": known["channel"],
        "filters": filters,
        "targets": [target_json(to)],
        "priority": wish.priority,
    }


def _field_of_wish(field: str | None) -> str | None:
    """What the rules' desk calls a part of the rule, as whoever wished for the rule calls it."""
    if field is None:
        return None
    target, _, part = field.partition(".")
    if target.startswith("targets"):
        return f"to.{part}" if part else "to"
    return f"rule.{field}"


def _order_form(wanted: Bulk, filtered: LetterFilter) -> dict[str, Any]:
    """For the audit: what was ordered, and for which of the letters that the caller may see."""
    given = {name: getattr(filtered, name) for name in LetterFilter.__slots__}
    return {
        "action": wanted.action,
        "filter": {name: value for name, value in given.items() if value is not None},
        "to": None if wanted.to is None else target_json(wanted.to),
        "reason": wanted.reason,
    }


def _reroute_step(case: Case, wanted: Reroute, verdict: Verdict, rule: WrittenRule | None) -> TrailStep:
    """Why there is a further decision: whose letter it was, who sent it on, and to whom if he said so."""
    detail = f"dead letter {case.dead_letter_id}, by {verdict.by}: {verdict.resolution}"
    targets = () if wanted.to is None else (wanted.to,)
    rule_id = None if rule is None else UUID(rule.rule["rule_id"])
    rule_name = None if rule is None else str(rule.rule["name"])
    return TrailStep(case.team_id, "reroute", rule_id, rule_name, targets, detail)


def _nobody_new(decision: Decision) -> NoReturn:
    names = ", ".join(chosen.system_id for chosen in decision.chosen)
    raise Conflict(
        f"{names} had this message already; name another butler, or close the letter", code="already_delivered"
    )


def _rule_id(case: Case) -> UUID:
    """The id of the rule that is made of a letter."""
    return uuid5(case.dead_letter_id, "rule")


def _closed(shown: ShownDeadLetter, ordered: Sequence[Target] | None = None) -> str:
    """How a letter was settled; of a reroute also where it was `ordered` to, if that is told."""
    how = "closed" if shown.rerouted_n is None else f"rerouted (decision {shown.rerouted_n})"
    if ordered is not None:
        to = next(iter(ordered), None)
        how += " by the rules" if to is None else f" to {to.system_id or f'team {to.team_id}'}"
    return f"dead letter {shown.dead_letter_id} was {how} by {shown.handled_by_system_id}: {shown.resolution}"

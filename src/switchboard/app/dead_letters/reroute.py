"""Reroutes a dead letter: by the rules in force, or to a butler or team named by the caller.

Called by `service.py`. A dead letter is rerouted in one transaction (`reroute_dead_letter` in SQL) and stays as it was
when that fails. Next: `core/routing/decide.py`, `store/messages/dead_letters.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias
from uuid import UUID, uuid5

from msgspec.structs import replace as changed

from switchboard.app.access import Principal
from switchboard.app.dead_letters.reach import HandlerReach
from switchboard.app.dead_letters.requests import FilterInput, Reroute, Rerouted, RuleWish, Simulated
from switchboard.app.messages.receivers import team_of_receiver
from switchboard.app.rules.proposals import edit_by, existing, new_one
from switchboard.app.rules.service import NewRule, Order, RuleService, WrittenRule
from switchboard.app.runtime import Runtime
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.routing.decide import decide
from switchboard.core.routing.draft import draft_of, parse_draft
from switchboard.core.routing.explain import in_order, why_first
from switchboard.core.routing.facts import facts, has
from switchboard.core.routing.rulefile import target_json
from switchboard.core.routing.scope import subtree
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import Decision, SystemId, Target, TeamId, TrailStep
from switchboard.domain.shown import MadeDelivery, ShownDeadLetter
from switchboard.lanes.notifier import WORK
from switchboard.ports.channel import SEVERAL
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters as store
from switchboard.store.messages import inbox
from switchboard.store.messages.dead_letters import DeadLetterCase, DeadLetterHandling
from switchboard.store.rules import versions as rule_store

RecordReroute: TypeAlias = Callable[[Database, Sequence[MadeDelivery]], Awaitable[None]]


class BeyondReach(Forbidden):
    """The caller may not send to the receiver; `DeadLetterService` records the refusal, once."""


class Rerouter:
    """Decides a dead letter's message again, and delivers it."""

    def __init__(self, runtime: Runtime, reach: HandlerReach, rules: RuleService) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._reach = reach
        self._rules = rules

    async def reroute(
        self, caller: Principal, dead_letter_id: UUID, wanted: Reroute, record: RecordReroute | None = None
    ) -> Rerouted:
        """Reroute the message of a dead letter; `record` is called in the same transaction.

        Raises as `DeadLetterService.reroute`, and BeyondReach.
        """
        case = await self._reach.case(caller, dead_letter_id)
        if wanted.rule is not None and wanted.to is None:
            raise InvalidInput("a rule needs a target: name a butler or a team", field="to")
        if case.status == "handled":
            return await self._earlier_result(caller, case, wanted, case.rerouted_n)
        decision = await self._decide_again(caller, case, wanted.to)
        self._check_takers(case, decision)
        # The rule first: when what follows fails, doing it all again finds the rule made, and continues from there.
        rule = await self._make_rule(caller, case, wanted)
        handling = DeadLetterHandling(author(caller), wanted.reason)
        step = _reroute_step(case, wanted, handling, rule)
        decision = changed(decision, trail=(step, *decision.trail))
        async with self._database.transaction() as one:
            outcome = await store.reroute(one, case, decision, handling)
            if outcome is None:
                raise NotFound(f"there is no dead letter {dead_letter_id}")
            if outcome.state == "taken":
                _nobody_new(decision)
            made = () if outcome.n is None else await store.rerouted(one, case.request_id, outcome.n)
            if record is not None and outcome.state == "rerouted":
                await record(one, made)
        if outcome.state == "handled" or outcome.n is None:
            return await self._earlier_result(caller, case, wanted, outcome.n)
        self._runtime.notifier.notify(WORK)
        return Rerouted(await self._reach.shown(caller, case), outcome.n, made, already=False, rule=rule)

    async def _make_rule(self, caller: Principal, case: DeadLetterCase, wanted: Reroute) -> WrittenRule | None:
        """The rule made from the dead letter, if wanted; its id derives from the letter's, so there is only one."""
        if wanted.rule is None or wanted.to is None:
            return None
        known = await self.facts_of_case(case)
        fields = _rule_fields(wanted.rule, wanted.to, known)
        try:
            new = NewRule(case.team_id, parse_draft(fields), _rule_id(case))
            await self._prove_rule(caller, new, known)
            return await self._rules.create(caller, new, Order(wanted.reason))
        except InvalidInput as error:
            error.field = _field_of_wish(error.field)
            raise
        except Conflict as error:
            if error.field != "rule_id":
                raise
            made = await existing(self._runtime, _rule_id(case))
            raise Conflict(
                f"the rule for this dead letter exists already: {made.name!r}, id {made.rule_id}. Send the letter on "
                "without a rule (leave out `rule`), and change that one if it is not right",
                field="rule",
            ) from error

    async def _prove_rule(self, caller: Principal, new: NewRule, known: Mapping[str, str]) -> None:
        """Check that the rule decides the message it is made from. Raises InvalidInput, and Conflict `rule_hidden`."""
        made = new_one(new.team_id, new.draft, edit_by(author(caller))).rule
        possible = self._runtime.channels.keys_of(made.channel)  # `create` reports errors in other keys
        for key, value in made.filters.items():
            if key in possible and not has(known, key, value):
                here = f"its {key} is {known[key]!r}" if key in known else f"it has no {key}"
                raise InvalidInput(f"the rule would not match this message: {here}", field=f"filters.{key}")
        fired = self._runtime.rule_book.rules.index.rule(new.team_id, known)
        if fired is None or fired[0] == new.rule_id:
            return
        first, implies = await existing(self._runtime, fired[0]), self._runtime.channels.implies
        if in_order((first, made), implies)[0] is first:
            raise Conflict(
                f"the rule would not decide this message: {first.name!r} comes first because "
                f"{why_first(first, made, implies)}; give the new one priority {first.priority + 1} or change that one",
                code="rule_hidden",
                field="rule.priority",
            )

    async def _earlier_result(
        self, caller: Principal, case: DeadLetterCase, wanted: Reroute, n: int | None
    ) -> Rerouted:
        """The result of the earlier reroute, by decision `n`.

        Raises Conflict for a receiver or rule that was not requested then and would be silently ignored.
        """
        shown = await self._reach.shown(caller, case)
        if n is None:
            raise Conflict(describe_outcome(shown), code="already_handled")
        ordered = await store.rerouted_to(self._database, case.request_id, n)
        if wanted.to is not None and ordered != (wanted.to,):
            raise Conflict(describe_outcome(shown, ordered), code="already_rerouted", field="to")
        if wanted.rule and wanted.to and not await self._was_made(case, wanted.rule, wanted.to):
            raise Conflict(
                f"{describe_outcome(shown, ordered)} (without this rule)", code="already_rerouted", field="rule"
            )
        return Rerouted(shown, n, await self.rerouted_to(case.request_id, n), already=True)

    async def _was_made(self, case: DeadLetterCase, wish: RuleWish, to: Target) -> bool:
        """Whether this very rule was made from the dead letter, whatever became of it since."""
        events = await rule_store.history(self._database, _rule_id(case))
        made = events[-1][1].after if events else None
        try:
            wished = parse_draft(_rule_fields(wish, to, await self.facts_of_case(case)))
        except InvalidInput:
            return False  # no such rule was ever made
        return made is not None and draft_of(made) == wished

    async def would_reach(self, caller: Principal, dead_letter_id: UUID, to: Target | None) -> Simulated:
        """The receivers if it were rerouted now. Raises as `reroute`."""
        case = await self._reach.case(caller, dead_letter_id)
        decision = await self._decide_again(caller, case, to)
        self._check_takers(case, decision)
        new = [chosen.system_id for chosen in decision.chosen if chosen.system_id not in case.taken]
        return Simulated(dead_letter_id, new)

    async def _decide_again(self, caller: Principal, case: DeadLetterCase, to: Target | None) -> Decision:
        """The receivers by the rules in force."""
        self.check_reach(caller, [case.team_id], to)
        if case.reply is not None:
            raise Conflict(
                f"the message was answered: send reply {case.reply} again (switchboard outbox resend), or close the "
                "dead letter",
                code="already_answered",
            )
        if not case.kept:
            raise Conflict("the message itself is no longer kept; close the dead letter", code="message_gone")
        known = await self.facts_of_case(case)
        index = self._runtime.rule_book.rules.index
        if to is None or to.team_id is not None:
            return decide(index, known, start=case.team_id if to is None else to.team_id)
        chosen = index.butler(SystemId(to.system_id or ""))
        if chosen is None:
            raise InvalidInput(f"{to.system_id} is not a reachable butler", code="unknown_target", field="to")
        return Decision(index.version, (chosen,), (), (), known)

    def check_reach(self, caller: Principal, teams: Sequence[str], to: Target | None) -> None:
        """The receiver must exist and, for a System4, be in the letters' own teams or below."""
        if to is None:
            return
        rules = self._runtime.rule_book.rules
        team_id = team_of_receiver(rules, to)
        if caller.role != "operator" and not any(team_id in subtree(rules.teams, TeamId(team)) for team in teams):
            raise BeyondReach(f"{caller.system_id} may only use its own team and those below as targets", field="to")

    def _check_takers(self, case: DeadLetterCase, decision: Decision) -> None:
        if not decision.chosen:
            why = "; ".join(f"{branch.team_id}: {branch.reason}" for branch in decision.unrouted)
            raise Conflict(
                f"the rules of version {decision.version} lead to no butler ({why}); change them, or name a target",
                code="nobody_takes_it",
            )
        if all(chosen.system_id in case.taken for chosen in decision.chosen):
            _nobody_new(decision)

    async def facts_of_case(self, case: DeadLetterCase) -> dict[str, str]:
        """The facts known when the message arrived."""
        if case.facts is not None:
            return dict(case.facts)
        stored, kept = (
            await inbox.get_message(self._database, case.request_id),
            await inbox.get_raw(self._database, case.request_id),
        )
        if stored is None or kept is None:
            raise NotFound(f"there is no message {case.request_id}")
        envelope = whole_envelope(Original(*kept, stored.envelope))
        if envelope is None:
            raise Conflict("the facts of this message cannot be read any more; name a butler")
        channels = self._runtime.channels
        return facts(envelope, channels[envelope.source.channel], channels.schedule_at(stored.received_at))

    async def rerouted_to(self, request_id: UUID, n: int | None) -> Sequence[MadeDelivery]:
        """The deliveries of decision `n`; none without one."""
        return () if n is None else await store.rerouted(self._database, request_id, n)


def author(caller: Principal) -> str:
    """The author, for the dead letter: the system, or the name of an operator's token."""
    return caller.system_id or caller.name


def _rule_fields(wish: RuleWish, to: Target, known: Mapping[str, str]) -> JsonObject:
    """The parts of the rule. Raises InvalidInput if there are no keys, or the message has no value for one."""
    filters: dict[str, FilterInput] = dict(wish.filters) if isinstance(wish.filters, Mapping) else {}
    for key in () if filters else wish.filters:
        if key not in known:
            there = ", ".join(sorted(known))
            raise InvalidInput(f"this message has no {key!r}; it has {there}", field="rule.filters")
        filters[key] = known[key].partition(SEVERAL)[0]
    filters = {key: value for key, value in filters.items() if key != "channel"}
    if not filters:
        there = ", ".join(f"{key} {value!r}" for key, value in sorted(known.items()) if key != "channel")
        raise InvalidInput(
            f"without a filter the rule would match every message of {known['channel']}; this one has {there}",
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
    """The part of the rule named by a field of `RuleService`, in the words of the request."""
    if field is None:
        return None
    target, _, part = field.partition(".")
    if target.startswith("targets"):
        return f"to.{part}" if part else "to"
    return f"rule.{field}"


def _reroute_step(
    case: DeadLetterCase, wanted: Reroute, handling: DeadLetterHandling, rule: WrittenRule | None
) -> TrailStep:
    """The reason for a further decision: whose dead letter it was, who rerouted it, and where to if that was given."""
    detail = f"dead letter {case.dead_letter_id}, by {handling.by}: {handling.resolution}"
    targets = () if wanted.to is None else (wanted.to,)
    rule_id = None if rule is None else UUID(rule.rule["rule_id"])
    rule_name = None if rule is None else str(rule.rule["name"])
    return TrailStep(case.team_id, "reroute", rule_id, rule_name, targets, detail)


def _nobody_new(decision: Decision) -> NoReturn:
    names = ", ".join(chosen.system_id for chosen in decision.chosen)
    raise Conflict(
        f"{names} already had this message; name another butler, or close the dead letter", code="already_delivered"
    )


def _rule_id(case: DeadLetterCase) -> UUID:
    """The id of the rule made from a dead letter."""
    return uuid5(case.dead_letter_id, "rule")


def describe_outcome(shown: ShownDeadLetter, ordered: Sequence[Target] | None = None) -> str:
    """How a dead letter was settled; for a reroute, also where it was `ordered` to, if known."""
    how = "closed" if shown.rerouted_n is None else f"rerouted (decision {shown.rerouted_n})"
    if ordered is not None:
        to = next(iter(ordered), None)
        how += " by the rules" if to is None else f" to {to.system_id or f'team {to.team_id}'}"
    return f"dead letter {shown.dead_letter_id} was {how} by {shown.handled_by_system_id}: {shown.resolution}"

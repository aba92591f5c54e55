"""The decision about a message, level by level down the tree of teams.

Called by `journey/decide.py` with the facts of a message. An index and facts enter, a `Decision` with its trail leaves;
the same two always give the same one. Next: `journey/accept.py` stores it.

    1. pin              a reply to a message of ours goes to the butler that wrote it
    2. rules            the first match alone fires; all its targets are served
    3. classification   by a model (not there yet; its place is marked below)
    4. catch-all        rules of channel `*` without filters
    5. dead letter      of the team that had no answer, handled by its System4
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from switchboard.core.routing.index import Lost, RoutingIndex
from switchboard.domain.routing import Chosen, Decision, StepReason, SystemId, Target, TeamId, TrailStep, Unrouted


def decide(
    index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None = None, start: TeamId | None = None
) -> Decision:
    """Who gets the message, why, and which branches nobody could take. Total: never raises, never empty.

    `facts` is what `facts()` made of the envelope; `pinned` the butler that wrote the message replied to, if any;
    `start` the team to begin in, the root by default: a dead letter is decided again from the team where it died.
    """
    start = index.root if start is None else start
    if pinned is None:
        return _go_down(index, facts, start, [])
    target = (Target(system_id=pinned),)
    butler = index.butler(pinned)
    if butler is not None:
        return Decision(index.version, (butler,), (), (TrailStep(start, "pin", targets=target),), facts)
    why = f"{pinned} cannot be reached from the root; the rules decide"
    return _go_down(index, facts, start, [TrailStep(start, "pin_unreachable", targets=target, detail=why)])


def _go_down(index: RoutingIndex, facts: Mapping[str, str], start: TeamId, trail: list[TrailStep]) -> Decision:
    """Decide in the first team, then in every sub-team that a rule names, level by level.

    No team is entered twice and no butler chosen twice: the index lets a target lead only to an own member or to a team
    whose one parent this is, and to each of those once. So a cycle cannot hold us, and the walk ends.
    """
    chosen: list[Chosen] = []
    unrouted: list[Unrouted] = []
    entered = [start] if index.reaches(start) else []
    for team_id in entered:
        reason: StepReason = "rule"
        fired = index.rule(team_id, facts)
        # 3. Classification by a model has its place here: after the rules that know, before the default that does not.
        if fired is None:
            reason, fired = "catch_all", index.catch_all(team_id)
        if fired is None:
            trail.append(TrailStep(team_id, "no_route", detail="no rule matches"))
            unrouted.append(Unrouted(team_id, "no_route", "no rule matches", index.handler(team_id)))
            continue
        rule_id, name, fanout = fired
        trail.append(TrailStep(team_id, reason, rule_id, name, fanout.targets))
        chosen += fanout.butlers
        entered += fanout.teams
        for lost in fanout.lost:
            # One target takes nothing; the others are served all the same.
            trail.append(_lost_step(team_id, rule_id, name, lost))
            unrouted.append(Unrouted(team_id, lost.reason, f"rule {name!r}: {lost.why}", index.handler(team_id)))
    if not entered:
        why = f"no way leads from the root to {start}"
        trail.append(TrailStep(start, "no_route", detail=why))
        unrouted.append(Unrouted(start, "no_route", why, index.handler(index.root)))
    return Decision(index.version, tuple(chosen), tuple(unrouted), tuple(trail), facts)


def _lost_step(team_id: TeamId, rule_id: UUID, name: str, lost: Lost) -> TrailStep:
    return TrailStep(team_id, lost.reason, rule_id, name, (lost.target,), lost.why)

"""The decision about a message, level by level down the tree of teams.

Called by `journey/decide.py` and `journey/classify.py` with the facts of a message. In: an index and facts, and the
answer of a model if no rule decides; out: a `Decision` with its trail. Deterministic. Next:
`journey/accept.py` or `journey/classify.py` stores it.

    0. command          `/stop`, and a decision such as `/approve` or a press of its button, are for Switchboard itself
    1. pin              a reply to a message of ours goes to the butler that wrote it
    2. rules            only the first match fires; all its targets are served
    3. classification   by a model among the team's own butlers and sub-teams, where the team allows it
    4. catch-all        rules of channel `*` without filters
    5. dead letter      of the team that had no answer, handled by its System4

The chosen butlers get the message, and in every team that it enters, rules that copy send it to further butlers. Copies
change nothing else: a message that nobody takes is a dead letter even if it was copied.

The walk is the generator `deciding`; its caller determines what happens where a model would have to be asked.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from switchboard.core.routing.index import Fanout, Fired, RoutingIndex
from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import (
    SWITCHBOARD,
    Chosen,
    Classified,
    DeadLetterCategory,
    Decision,
    Route,
    StepReason,
    SystemId,
    Target,
    TeamId,
    TrailStep,
    Undecided,
    Unrouted,
)

Deciding = Generator[Undecided, Classified | None, Decision]
"""Yields where a model must be asked, and is sent its answer, or None if there is none. Returns the decision."""

_NOT_ASKED: Final = Classified(failed="no model is configured")


def decide(
    index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None = None, start: TeamId | None = None
) -> Decision:
    """Who gets the message, why, and which branches nobody could take. Total: never raises, never empty.

    No model is asked: the catch-all follows instead, or else the dead letter. `facts` comes from `facts()`; `pinned` is
    the butler that wrote the message replied to, if any, or `SWITCHBOARD` for a command; `start` is the first team, by
    default the root: a dead letter is decided again from the team where it died.
    """
    begun = _begin(index, facts, pinned, start)
    return begun if isinstance(begun, Decision) else _drive(begun, _NOT_ASKED)


def simulate(index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None = None) -> Decision:
    """What would become of the message, as far as known without asking a model.

    A team whose model would be asked has a step `undecided`; the model's choice is in neither list, so both may be
    empty.
    """
    return _drive(deciding(index, facts, pinned), None)


def is_kept(envelope: Envelope, pinned: SystemId | None) -> bool:
    """Whether an event is kept as history; not the press of a button that is for Switchboard itself."""
    return envelope.kept_as_history and not (envelope.event.kind == "button" and pinned == SWITCHBOARD)


def keep(index: RoutingIndex, facts: Mapping[str, str], what: str) -> Decision:
    """The decision about an event kept as history, such as an `edit`: it goes to nobody, and is no dead letter."""
    step = TrailStep(index.root, "history", detail=f"kept as history: {what}")
    return Decision(index.version, (), (), (step,), facts)


def decide_now(index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None = None) -> Decision | None:
    """The decision; None if a model would have to be asked for it."""
    begun = _begin(index, facts, pinned, None)
    if isinstance(begun, Decision):
        return begun
    try:
        next(begun)
    except StopIteration as end:
        decision: Decision = end.value
        return decision
    begun.close()
    return None


def decide_with(
    index: RoutingIndex,
    facts: Mapping[str, str],
    answers: Mapping[Undecided, Classified],
    pinned: SystemId | None = None,
    start: TeamId | None = None,
) -> Decision | Undecided:
    """The decision based on known answers, or the first team whose answer is missing."""
    walk = deciding(index, facts, pinned, start)
    try:
        asked = next(walk)
        while asked in answers:
            asked = walk.send(answers[asked])
    except StopIteration as end:
        decision: Decision = end.value
        return decision
    walk.close()
    return asked


def _begin(
    index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None, start: TeamId | None
) -> Decision | Deciding:
    """Decide at once if a rule of the root leads only to butlers, as for most messages; otherwise begin the walk.

    The walk gives the same result, but takes a third longer.
    """
    if pinned is not None or start is not None:
        return deciding(index, facts, pinned, start)
    reason: StepReason = "rule"
    fired = matched = index.rule(index.root, facts)
    if matched is None and not index.classifies(index.root):
        reason, fired = "catch_all", index.catch_all(index.root)
    copies = index.copies(index.root, facts)
    if fired is None or fired[2].teams or fired[2].lost or copies:
        way = _Way(index)
        way.entered.append((index.root, None))
        return _walk(way, facts, matched)
    rule_id, name, fanout = fired
    trail = (TrailStep(index.root, reason, rule_id, name, fanout.targets),)
    return Decision(index.version, fanout.butlers, (), trail, facts)


def _drive(walk: Deciding, answer: Classified | None) -> Decision:
    """Walk to the end, with the same answer wherever a model would be asked."""
    try:
        next(walk)
        while True:
            walk.send(answer)
    except StopIteration as end:
        decision: Decision = end.value
        return decision


def deciding(
    index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None = None, start: TeamId | None = None
) -> Deciding:
    """The walk itself: the first team, then every sub-team that a rule or a model names, level by level.

    The index must not change between its steps: drive it without awaiting anything in between.
    """
    start = index.root if start is None else start
    way = _Way(index)
    if pinned is not None:
        target = (Target(system_id=pinned),)
        if pinned == SWITCHBOARD:
            step = TrailStep(start, "command", targets=target, detail="for Switchboard itself, not for a butler")
            return Decision(index.version, (Chosen(pinned, start),), (), (step,), facts)
        butler = index.butler(pinned)
        if butler is not None:
            return Decision(index.version, (butler,), (), (TrailStep(start, "pin", targets=target),), facts)
        why = f"{pinned} cannot be reached from the root; the rules decide"
        way.trail.append(TrailStep(start, "pin_unreachable", targets=target, detail=why))
    if not way.begin(start):
        return way.end(facts)
    return (yield from _walk(way, facts, index.rule(start, facts)))


def _walk(way: _Way, facts: Mapping[str, str], first: Fired | None) -> Deciding:
    """Walk from the first team, where the rule `first` or none fired, down to the last."""
    index, fired = way.index, first
    # No team is entered twice and no butler is chosen twice: the index lets a target lead only to a member of the team
    # or to one of its direct sub-teams, and to each only once; a model chooses among exactly these. So there is no
    # cycle, and the walk ends.
    for nth, (team_id, segment) in enumerate(way.entered):
        if nth:
            fired = index.rule(team_id, facts)
        if fired is not None:
            way.follow_rule(team_id, segment, "rule", fired)
        elif not index.classifies(team_id):
            way.fall_back(team_id, segment, "no_route", "no rule matches")
        else:
            way.follow_model(team_id, segment, (yield Undecided(team_id, segment)))
    return way.end(facts)


class _Way:
    """The state of a walk."""

    __slots__ = ("chosen", "entered", "index", "trail", "unrouted")

    def __init__(self, index: RoutingIndex) -> None:
        self.index = index
        self.trail: list[TrailStep] = []
        self.chosen: list[Chosen] = []
        self.unrouted: list[Unrouted] = []
        self.entered: list[tuple[TeamId, str | None]] = []
        """Teams, each with the part of the message that reached it."""

    def begin(self, start: TeamId) -> bool:
        """Enter the first team if there is a path to it; otherwise record why not."""
        if self.index.reaches(start):
            self.entered.append((start, None))
            return True
        why = f"there is no path from the root to {start}"
        self.trail.append(TrailStep(start, "no_route", detail=why))
        self.unrouted.append(Unrouted(start, "no_route", why, self.index.handler(self.index.root)))
        return False

    def end(self, facts: Mapping[str, str]) -> Decision:
        for team_id, segment in self.entered:
            for rule_id, name, fanout in self.index.copies(team_id, facts):
                self._copy(TrailStep(team_id, "copy", rule_id, name, fanout.targets), fanout, segment)
        parts = {team_id: segment for team_id, segment in self.entered if segment is not None}
        return Decision(self.index.version, tuple(self.chosen), tuple(self.unrouted), tuple(self.trail), facts, parts)

    def _copy(self, step: TrailStep, fanout: Fanout, segment: str | None) -> None:
        """Copy to the butlers that do not get the message anyway; missing ones are skipped without a dead letter."""
        served = {one.system_id for one in self.chosen}
        self.chosen += (replace(one, segment=segment) for one in fanout.butlers if one.system_id not in served)
        self.trail.append(replace(step, detail="; ".join(lost.why for lost in fanout.lost)))

    def follow_rule(self, team_id: TeamId, segment: str | None, reason: StepReason, fired: Fired) -> None:
        rule_id, name, fanout = fired
        self.trail.append(TrailStep(team_id, reason, rule_id, name, fanout.targets))
        if segment is None:
            self.chosen += fanout.butlers
        else:
            self.chosen += (replace(butler, segment=segment) for butler in fanout.butlers)
        for below in fanout.teams:
            self.entered.append((below, segment))
        for lost in fanout.lost:
            # This target takes no message; the others are still served.
            self.trail.append(TrailStep(team_id, lost.reason, rule_id, name, (lost.target,), lost.why))
            handler = self.index.handler(team_id)
            self.unrouted.append(Unrouted(team_id, lost.reason, f"rule {name!r}: {lost.why}", handler, segment))

    def follow_model(self, team_id: TeamId, segment: str | None, answer: Classified | None) -> None:
        candidates = self.index.candidates(team_id)
        if answer is None:
            self.trail.append(TrailStep(team_id, "undecided", targets=candidates, detail="a model decides"))
            return
        failed = _rejection_reason(answer, candidates)
        if failed is not None:
            self.trail.append(TrailStep(team_id, "classification_failed", detail=failed))
            self.fall_back(team_id, segment, "classification_failed", failed)
            return
        parts = _parts(answer.routes)
        self.trail.append(TrailStep(team_id, "classified", targets=tuple(parts), detail=answer.detail))
        for target, part in parts.items():
            meant = segment if part is None else part
            if target.team_id is not None:
                self.entered.append((target.team_id, meant))
            elif target.system_id is not None:
                self.chosen.append(Chosen(target.system_id, team_id, meant))

    def fall_back(self, team_id: TeamId, segment: str | None, category: DeadLetterCategory, why: str) -> None:
        """Use the catch-all or, if there is none, make it a dead letter."""
        fired = self.index.catch_all(team_id)
        if fired is not None:
            self.follow_rule(team_id, segment, "catch_all", fired)
            return
        if category == "no_route":
            self.trail.append(TrailStep(team_id, "no_route", detail=why))
        self.unrouted.append(Unrouted(team_id, category, why, self.index.handler(team_id), segment))


def _rejection_reason(answer: Classified, candidates: Collection[Target]) -> str | None:
    """Why an answer cannot be used: a single route to a non-candidate invalidates all of it."""
    if answer.failed is not None:
        return answer.failed or "the model failed"
    if not answer.routes:
        return "the model chose no candidate"
    foreign = [route.target for route in answer.routes if route.target not in candidates]
    named = ", ".join(str(target.system_id or target.team_id or "nobody") for target in foreign)
    return f"the model chose {named}, which is not reachable from this team" if foreign else None


def _parts(routes: Iterable[Route]) -> dict[Target, str | None]:
    """Each target once, with its part of the text. One that is named twice with different parts gets the whole."""
    parts: dict[Target, str | None] = {}
    for route in routes:
        part = route.segment if route.segment and route.segment.strip() else None
        parts[route.target] = part if parts.get(route.target, part) == part else None
    return parts

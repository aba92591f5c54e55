"""A rule set compiled for deciding: for each team, a hash lookup per distinct (channel, set of filter keys).

Built by `journey/rulebook.py` from the rules in the database, read by `core/routing/decide.py` for every message. Teams
and rules enter, the first rule that fires in a team leaves, in the same time for ten rules and for a million.

How it stays small and flat: a rule is kept as one `bytes` whose order *is* the order of the rules (see `rank`), so that
the winner of several is their `min`, nothing is there for the garbage collector to walk, and a million rules fit in 300
MB. What a rule's targets come to is worked out once per distinct (team, targets), not per message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final, Literal
from uuid import UUID

from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import (
    Chosen,
    Member,
    Rule,
    RuleSet,
    SystemId,
    Target,
    Team,
    TeamId,
)

_RANK = Struct(">QHBQ16s")
_FANOUT = Struct(">I")
_ID_AND_FANOUT = Struct(">16sI")
_ID_AT: Final = _RANK.size - 16
_NAME_AT: Final = _RANK.size + _FANOUT.size
_BIAS: Final = 2**63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_Keys = str | tuple[str, ...]
_Values = str | tuple[str | None, ...] | None
"""The values of filters, or of facts, in the order of a shape's keys; bare for one key, as most rules have."""


def rank(rule: Rule) -> bytes:
    """35 bytes that sort as rules do: priority (higher first), more filters, a named channel before `*`, older, id.

    Raises OverflowError or struct.error for a priority outside of 64 bits; `check_rule` refuses those long before.
    """
    age = (rule.created_at - _EPOCH) // _MICROSECOND + _BIAS
    star = rule.channel == "*"
    return _RANK.pack(_BIAS - 1 - rule.priority, 0xFFFF - len(rule.filters), star, age, rule.rule_id.bytes)


@dataclass(frozen=True, slots=True)
class Lost:
    """A target that takes no message: the team's own System4 (an explicit dead letter), or one that is not there."""

    target: Target
    reason: Literal["dead_letter_rule", "target_unavailable"]
    why: str


@dataclass(frozen=True, slots=True)
class Fanout:
    """What one list of targets comes to in one team: butlers, sub-teams to enter, and what is lost."""

    targets: tuple[Target, ...]
    butlers: tuple[Chosen, ...] = ()
    teams: tuple[TeamId, ...] = ()
    lost: tuple[Lost, ...] = ()


Fired = tuple[UUID, str, Fanout]
"""The rule that fired in a team: its id, its name, and what its targets come to."""


_Lookup = tuple[bytes, _Keys, Callable[[_Values], bytes | None]]
"""What a decision needs of a shape: its best rank, its keys, and its hash lookup."""


@dataclass(slots=True)
class _Shape:
    """All rules of a team with one channel and one set of filter keys."""

    channel: str
    keys: _Keys
    best: bytes
    """No rule in here ranks before this one: where a better rule was found already, the lookup is spared."""
    winners: dict[_Values, bytes] = field(default_factory=dict)
    others: dict[_Values, list[bytes]] = field(default_factory=dict)
    """Rules that can only fire when the winner of the same values is gone; kept sorted."""

    def add(self, values: _Values, packed: bytes) -> None:
        winner = self.winners.setdefault(values, packed)
        if winner is not packed:
            self.winners[values] = min(winner, packed)
            self.others.setdefault(values, []).append(max(winner, packed))
        self.best = min(self.best, packed)

    def settle(self) -> None:
        for packed in self.others.values():
            packed.sort()

    def lookup(self) -> _Lookup:
        return self.best, self.keys, self.winners.get


@dataclass(slots=True)
class _Node:
    """A team that can be reached from the root."""

    team: Team
    handler: SystemId | None
    members: Mapping[SystemId, Member]
    shapes: dict[tuple[str, _Keys], _Shape] = field(default_factory=dict)
    lookups: dict[str, tuple[_Lookup, ...]] = field(default_factory=dict)
    """Channel -> its shapes and those of `*`, best first; under `*` for channels that no rule names."""
    catch_alls: list[bytes] = field(default_factory=list)

    def settle(self) -> None:
        for shape in self.shapes.values():
            shape.settle()
        self.catch_alls.sort()
        everywhere = [shape for shape in self.shapes.values() if shape.channel == "*"]
        for channel in {"*"} | {shape.channel for shape in self.shapes.values()}:
            own = [shape for shape in self.shapes.values() if shape.channel == channel != "*"]
            best_first = sorted(own + everywhere, key=lambda shape: shape.best)
            self.lookups[channel] = tuple(shape.lookup() for shape in best_first)


class RoutingIndex:
    """One version of teams and rules, ready to decide. Nothing in it changes after it was built.

    `rules` may be a generator: of each rule only what a decision needs is kept, about 200 bytes. Rules are expected to
    have passed `check_rule` and teams `check_teams`; a target that has vanished since is a `Lost`, not an error. Raises
    ConfigurationError when there is not exactly one root team.
    """

    def __init__(self, version: int, teams: Iterable[Team], rules: Iterable[Rule]) -> None:
        self.version = version
        self._nodes = _reachable(tuple(teams))
        self.root = next(iter(self._nodes))
        """The team where every message enters."""
        self.loaded = 0
        """How many rules may fire; inactive ones are not counted."""
        self.ignored = 0
        """How many active rules can never fire, because no way leads from the root to their team."""
        self._butlers = {
            system_id: Chosen(system_id, node.team.team_id)
            for node in self._nodes.values()
            for system_id, member in node.members.items()
            if _answers(member)
        }
        self._fanouts: list[Fanout] = []
        self._numbers: dict[tuple[TeamId, tuple[Target, ...]], int] = {}
        for rule in rules:
            if rule.active:
                self._add(rule)
        for node in self._nodes.values():
            node.settle()

    @classmethod
    def of(cls, rule_set: RuleSet) -> RoutingIndex:
        """The index of one immutable version."""
        return cls(rule_set.version, rule_set.teams, rule_set.rules)

    def rule(self, team_id: TeamId, facts: Mapping[str, str]) -> Fired | None:
        """The first of the team's rules that matches, catch-alls left out; None where none does."""
        lookups = self._nodes[team_id].lookups
        first: bytes | None = None
        for best, keys, winner in lookups.get(facts.get("channel", "*")) or lookups["*"]:
            if first is not None and first < best:
                break
            # A fact that is absent gives None, which is no rule's value: it can never match.
            found = winner(facts.get(keys) if isinstance(keys, str) else tuple(map(facts.get, keys)))
            if found is not None and (first is None or found < first):
                first = found
        return None if first is None else self._fired(first)

    def catch_all(self, team_id: TeamId) -> Fired | None:
        """The team's first catch-all rule."""
        catch_alls = self._nodes[team_id].catch_alls
        return self._fired(catch_alls[0]) if catch_alls else None

    def handler(self, team_id: TeamId) -> SystemId | None:
        """Who is told of a dead letter: the team's System4, or that of the nearest team above it that has one."""
        return self._nodes[team_id].handler

    def butler(self, system_id: SystemId) -> Chosen | None:
        """That butler, if a way leads to it from the root; None if it is unknown, inactive or not a System1."""
        return self._butlers.get(system_id)

    def _fired(self, packed: bytes) -> Fired:
        rule_id, number = _ID_AND_FANOUT.unpack_from(packed, _ID_AT)
        return UUID(bytes=rule_id), packed[_NAME_AT:].decode("utf-8", "surrogatepass"), self._fanouts[number]

    def _add(self, rule: Rule) -> None:
        node = self._nodes.get(rule.team_id)
        if node is None:
            self.ignored += 1
            return
        self.loaded += 1
        packed = (
            rank(rule) + _FANOUT.pack(self._fanout(node, rule.targets)) + rule.name.encode("utf-8", "surrogatepass")
        )
        if rule.catch_all:
            node.catch_alls.append(packed)
            return
        keys, values = _keys_and_values(rule.filters)
        shape = node.shapes.get((rule.channel, keys))
        if shape is None:
            shape = node.shapes[rule.channel, keys] = _Shape(rule.channel, keys, best=packed)
        shape.add(values, packed)

    def _fanout(self, node: _Node, targets: tuple[Target, ...]) -> int:
        """The number of what these targets come to in this team."""
        number = self._numbers.setdefault((node.team.team_id, targets), len(self._fanouts))
        if number == len(self._fanouts):
            self._fanouts.append(_fan_out(node, targets, self._nodes))
        return number


def _keys_and_values(filters: Mapping[str, str]) -> tuple[_Keys, _Values]:
    """Both in the same order; bare for a single filter, which spares a million rules a million tuples."""
    keys = tuple(sorted(filters))
    values = tuple(map(filters.get, keys))
    return (keys[0], values[0]) if len(keys) == 1 else (keys, values)


def _answers(member: Member) -> bool:
    """A butler: an active System1 with an engine."""
    return member.number == 1 and member.active and bool(member.engine)


def _reachable(teams: tuple[Team, ...]) -> dict[TeamId, _Node]:
    """The tree, root first. What hangs in a cycle or under an unknown parent is not in it."""
    children: dict[TeamId | None, list[Team]] = {}
    for team in teams:
        children.setdefault(team.parent_id, []).append(team)
    roots = children.get(None, [])
    if len(roots) != 1:
        names = ", ".join(team.team_id for team in roots) or "none"
        raise ConfigurationError(f"exactly one team must have no parent, the root; found {len(roots)}: {names}")
    nodes: dict[TeamId, _Node] = {}
    waiting = roots
    while waiting:
        team = waiting.pop()
        if team.team_id not in nodes:
            nodes[team.team_id] = _node(team, nodes)
            waiting.extend(children.get(team.team_id, []))
    return nodes


def _node(team: Team, nodes: Mapping[TeamId, _Node]) -> _Node:
    own = next((member.system_id for member in team.members if member.number == 4 and member.active), None)
    above = nodes[team.parent_id].handler if team.parent_id is not None else None
    return _Node(team, own or above, {member.system_id: member for member in team.members})


def _fan_out(node: _Node, targets: tuple[Target, ...], nodes: Mapping[TeamId, _Node]) -> Fanout:
    """Sort the targets into butlers, sub-teams and losses; each once, in the order of the rule."""
    butlers: list[Chosen] = []
    teams: list[TeamId] = []
    lost: list[Lost] = []
    for target in dict.fromkeys(targets or (Target(),)):
        loss = _loss(node, target, nodes)
        if loss is not None:
            lost.append(loss)
        elif target.system_id is not None:
            butlers.append(Chosen(target.system_id, node.team.team_id))
        elif target.team_id is not None:
            teams.append(target.team_id)
    return Fanout(targets, tuple(butlers), tuple(teams), tuple(lost))


def _loss(node: _Node, target: Target, nodes: Mapping[TeamId, _Node]) -> Lost | None:
    """Why this target takes no message; None if it does. Only the way down is open: own members, direct sub-teams."""
    if (target.system_id is None) == (target.team_id is None):
        return Lost(target, "target_unavailable", "a target names either a system or a team")
    if target.team_id is not None:
        child = nodes.get(target.team_id)
        below = child is not None and child.team.parent_id == node.team.team_id
        why = f"{target.team_id} is not a sub-team of {node.team.team_id}"
        return None if below else Lost(target, "target_unavailable", why)
    member = node.members.get(target.system_id) if target.system_id is not None else None
    if member is None:
        return Lost(target, "target_unavailable", f"{target.system_id} is not in team {node.team.team_id}")
    if member.number == 4:
        return Lost(target, "dead_letter_rule", f"the rule sends it to the dead letters of {node.team.team_id}")
    if not _answers(member):
        why = "is not a butler" if member.active else "is not active"
        return Lost(target, "target_unavailable", f"{target.system_id} {why}")
    return None

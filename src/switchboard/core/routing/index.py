"""A rule set compiled for deciding: for each team, a hash lookup per distinct (channel, set of filter keys).

Built by `journey/rulebook.py` from the rules in the database, and updated with their changes by `apply`; read by
`core/routing/decide.py` for every message. In: teams and rules; out: the first rule that fires in a team, in the same
time for ten rules and for a million. A change is just as cheap: it touches only the shapes of its own rule.

How it stays small and flat: a rule is kept as one `bytes` whose order *is* the order of the rules (see `rank`), so that
the winner of several is their `min`, the garbage collector has nothing to traverse, and a million rules fit in 300 MB.
A rule's targets are resolved once per distinct (team, targets), not per message.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from math import prod
from operator import contains
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.routing.facts import values_of
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import (
    Chosen,
    Filters,
    Member,
    Rule,
    RuleChange,
    RuleSet,
    SystemId,
    Target,
    Team,
    TeamId,
)
from switchboard.ports.channel import SEVERAL, Implies

_RANK = struct.Struct(">QHBQ16s")
_FANOUT = struct.Struct(">I")
_ID_AND_FANOUT = struct.Struct(">QQI")
_ID_AT: Final = _RANK.size - 16
_NAME_AT: Final = _RANK.size + _FANOUT.size
_BIAS: Final = 2**63
_KEPT: Final = 64
"""Maximum number of a team's rules that are kept unpacked."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_Keys = str | tuple[str, ...]
_Values = str | tuple[str | None, ...] | None
"""The values of filters, or of facts, in the order of a shape's keys; bare for a single key, as in most rules."""


def specificity(filters: Filters, implies: Implies = CHANNELS.implies) -> int:
    """How many facts a rule pins down: its filters, and what follows from them."""
    if implies.keys().isdisjoint(filters):
        return len(filters)
    return len(filters.keys() | {key for given in filters for key in implies.get(given, ())})


def rank(rule: Rule, implies: Implies = CHANNELS.implies) -> bytes:
    """35 bytes that sort like rules: priority (higher first), specificity, a named channel before `*`, older, id.

    Raises OverflowError or struct.error for a priority outside 64 bits, which `check_rule` refuses long before.
    """
    age = (rule.created_at - _EPOCH) // _MICROSECOND + _BIAS
    vague, star = 0xFFFF - specificity(rule.filters, implies), rule.channel == "*"
    return _RANK.pack(_BIAS - 1 - rule.priority, vague, star, age, rule.rule_id.bytes)


class Lost(Struct, frozen=True):
    """A target that takes no message: the team's own System4 (an explicit dead letter), or one that does not exist."""

    target: Target
    reason: Literal["dead_letter_rule", "target_unavailable"]
    why: str


class Fanout(Struct, frozen=True):
    """A resolved list of targets in one team: butlers, sub-teams to enter, and what is lost."""

    targets: tuple[Target, ...]
    butlers: tuple[Chosen, ...] = ()
    teams: tuple[TeamId, ...] = ()
    lost: tuple[Lost, ...] = ()
    retired: bool = False
    """Whether all of them are butlers that are switched off: a rule to them is skipped."""


Fired = tuple[UUID, str, Fanout]
"""The rule that fired in a team: its id, its name, and its resolved targets."""


_Place = tuple[str, _Keys, _Values] | None
"""Where a rule is found: channel, keys and values; None: among the catch-alls. A rule with lists is in several."""

_Lookup = tuple[bytes, _Keys, Callable[[_Values], bytes | None]]
"""What a decision needs to know about a shape: its best rank, its keys, and its hash lookup."""

_Put = Callable[[list[bytes], bytes], None]
"""How a rule enters a list: appended during a load, which sorts once at the end; later, inserted in its place."""


@dataclass(slots=True)
class _Shape:
    """All rules of a team with one channel and one set of filter keys."""

    keys: _Keys
    best: bytes
    """No rule here ranks before this one: if a better rule was already found, the lookup is skipped. It stays when its
    rule is removed: then a lookup may find nothing, but none is left out."""
    winners: dict[_Values, bytes] = field(default_factory=dict)
    others: dict[_Values, list[bytes]] = field(default_factory=dict)
    """Rules that can fire only once the winner of the same values is removed; kept sorted."""

    def add(self, values: _Values, packed: bytes, put: _Put) -> None:
        winner = self.winners.setdefault(values, packed)
        if winner is not packed:
            self.winners[values] = min(winner, packed)
            put(self.others.setdefault(values, []), max(winner, packed))
        self.best = min(self.best, packed)

    def remove(self, values: _Values, ranked: bytes) -> None:
        others = self.others.get(values, [])
        if not self.winners[values].startswith(ranked):
            del others[bisect_left(others, ranked)]
        elif others:
            self.winners[values] = others.pop(0)
        else:
            del self.winners[values]
        if not others:
            self.others.pop(values, None)

    def holds(self, values: _Values, ranked: bytes) -> bool:
        winner = self.winners.get(values)
        return winner is not None and (winner.startswith(ranked) or _holds(self.others.get(values, []), ranked))

    def lookup(self) -> _Lookup:
        keys = (self.keys,) if isinstance(self.keys, str) else self.keys
        return self.best, self.keys, self.winners.get if CHANNELS.several.isdisjoint(keys) else self._first_of_any

    def _first_of_any(self, values: _Values) -> bytes | None:
        """The same if facts may have several values: the first rule that any of them meets."""
        return min(map(self.winners.__getitem__, self._matching_values(values)), default=None)

    def all_of(self, facts: Mapping[str, str]) -> Iterator[bytes]:
        """Every rule that matches; a rule with a list of values may come more than once."""
        keys = self.keys
        for own in self._matching_values(facts.get(keys) if isinstance(keys, str) else tuple(map(facts.get, keys))):
            yield self.winners[own]
            yield from self.others.get(own, ())

    def _matching_values(self, values: _Values) -> Iterator[_Values]:
        """The values of rules that these facts meet.

        Senders choose how many values some facts have: if the rules are fewer than the combinations, go over the rules.
        """
        choices = [{value} if value is None else {*value.split(SEVERAL)} for value in _row(values)]
        if prod(map(len, choices)) > len(self.winners):
            return (own for own in self.winners if all(map(contains, choices, _row(own))))
        ways = product(*choices)
        return (way for way in (ways if isinstance(values, tuple) else chain(*ways)) if way in self.winners)

    def copy(self) -> _Shape:
        others = {values: list(packed) for values, packed in self.others.items()}
        return _Shape(self.keys, self.best, dict(self.winners), others)


def _row(values: _Values) -> tuple[str | None, ...]:
    return values if isinstance(values, tuple) else (values,)


@dataclass(slots=True)
class _Node:
    """A team that can be reached from the root. After rules are added or removed, `settle` makes it ready again."""

    team: Team
    handler: SystemId | None
    members: Mapping[SystemId, Member]
    shapes: dict[str, dict[_Keys, _Shape]] = field(default_factory=dict)
    """By channel, then by filter keys; none of them is empty."""
    lookups: dict[str, tuple[_Lookup, ...]] = field(default_factory=lambda: {"*": ()})
    """Channel -> its shapes and those of `*`, best first; `*` is for channels that no rule names."""
    stale: set[str] = field(default_factory=set)
    """Channels with a shape that was added, removed, or improved since their lookups were made."""
    catch_alls: list[bytes] = field(default_factory=list)
    fanouts: list[Fanout] = field(default_factory=list)
    """The resolved targets; a rule holds an index into this. None is ever removed: there are few distinct ones."""
    numbers: dict[tuple[Target, ...], int] = field(default_factory=dict)
    fired: dict[bytes, Fired] = field(default_factory=dict)
    """Rules that fired recently, unpacked. A changed rule has a different packed form."""
    candidates: tuple[Target, ...] = ()
    """The candidates of a model here; empty if no model may be asked."""
    copies: _Node | None = None
    """The rules of this team that copy, apart from those that decide; None if there never was one."""

    def part(self, rule: Rule) -> _Node:
        """The node in which a rule belongs: this one or that of the copies."""
        if not rule.copy:
            return self
        if self.copies is None:
            self.copies = _Node(self.team, self.handler, self.members)
        return self.copies

    def copying(self, facts: Mapping[str, str]) -> list[bytes]:
        """The copying rules that match, in order."""
        shapes = (*self.shapes.get("*", {}).values(), *self.shapes.get(facts.get("channel", "*"), {}).values())
        return sorted({*self.catch_alls, *(packed for shape in shapes for packed in shape.all_of(facts))})

    def add(self, rule: Rule, packed: bytes, put: _Put) -> None:
        if rule.catch_all:
            put(self.catch_alls, packed)
            return
        keys, each = _keys_and_values(rule.filters)
        shapes = self.shapes.setdefault(rule.channel, {})
        shape = shapes.get(keys)
        if shape is None:
            shape = shapes[keys] = _Shape(keys, packed)
            self.stale.add(rule.channel)
        elif packed < shape.best:
            self.stale.add(rule.channel)
        for values in each:
            shape.add(values, packed, put)

    def remove(self, rule: Rule, ranked: bytes) -> None:
        if rule.catch_all:
            del self.catch_alls[bisect_left(self.catch_alls, ranked)]
            return
        keys, each = _keys_and_values(rule.filters)
        shapes = self.shapes[rule.channel]
        for values in each:
            shapes[keys].remove(values, ranked)
        if not shapes[keys].winners:
            del shapes[keys]
            self.stale.add(rule.channel)
        if not shapes:
            del self.shapes[rule.channel]

    def holds(self, place: _Place, ranked: bytes) -> bool:
        if place is None:
            return _holds(self.catch_alls, ranked)
        channel, keys, values = place
        shape = self.shapes.get(channel, {}).get(keys)
        return shape is not None and shape.holds(values, ranked)

    def sort(self) -> None:
        if self.copies is not None:
            self.copies.sort()
        self.catch_alls.sort()
        for shapes in self.shapes.values():
            for shape in shapes.values():
                for packed in shape.others.values():
                    packed.sort()

    def settle(self) -> None:
        """Make the lookups of stale channels; every channel includes those of `*`."""
        if self.copies is not None:
            self.copies.settle()
        everywhere = self.shapes.get("*", {}).values()
        for channel in self.stale | self.shapes.keys() if "*" in self.stale else self.stale:
            if channel != "*" and channel not in self.shapes:
                self.lookups.pop(channel, None)
                continue
            own = self.shapes[channel].values() if channel != "*" else ()
            best_first = sorted((*own, *everywhere), key=lambda shape: shape.best)
            self.lookups[channel] = tuple(shape.lookup() for shape in best_first)
        self.stale.clear()

    def copy(self) -> _Node:
        """A copy that changes independently."""
        shapes = {
            channel: {keys: shape.copy() for keys, shape in shapes.items()} for channel, shapes in self.shapes.items()
        }
        twin = replace(
            self,
            shapes=shapes,
            lookups={"*": ()},
            stale=set(shapes),
            catch_alls=list(self.catch_alls),
            fanouts=list(self.fanouts),
            numbers=dict(self.numbers),
            fired={},
            copies=None if self.copies is None else self.copies.copy(),
        )
        twin.settle()
        return twin


def _holds(packed: list[bytes], ranked: bytes) -> bool:
    at = bisect_left(packed, ranked)
    return at < len(packed) and packed[at].startswith(ranked)


class RoutingIndex:
    """One version of teams and rules, ready to decide. It changes between decisions, never during one.

    `rules` may be a generator: only what a decision needs is kept of each rule, about 200 bytes. Rules are expected to
    have passed `check_rule` and teams `check_teams`; a target that has vanished since is a `Lost`, not an error.
    `implies`: what counts for a rule's rank, according to this installation's channels.
    `classifying`: whether there are models, so that teams with classification use it. Raises ConfigurationError
    unless there is exactly one root team.
    """

    def __init__(
        self,
        version: int,
        teams: Iterable[Team],
        rules: Iterable[Rule],
        *,
        classifying: bool = False,
        implies: Implies = CHANNELS.implies,
    ) -> None:
        self.version = version
        self._implies = implies
        self._nodes = _reachable(tuple(teams))
        self.root = next(iter(self._nodes))
        """The team where every message enters."""
        self.loaded = 0
        """How many rules may fire; inactive ones are not counted."""
        self.ignored = 0
        """How many active rules are skipped: no path leads to their team, or their butlers are switched off."""
        self._butlers = {
            system_id: Chosen(system_id, node.team.team_id)
            for node in self._nodes.values()
            for system_id, member in node.members.items()
            if _answers(member)
        }
        self._shared: frozenset[TeamId] = frozenset()
        self._models = classifying
        self.avoid(())
        for rule in rules:
            if rule.active:
                self._add(rule, list.append)
        for node in self._nodes.values():
            node.sort()
            node.settle()

    @classmethod
    def of(cls, rule_set: RuleSet) -> RoutingIndex:
        """The index of one immutable version."""
        return cls(rule_set.version, rule_set.teams, rule_set.rules)

    def apply(self, version: int, changes: Iterable[RuleChange]) -> None:
        """Become `version` by applying these changes of rules, in order and in place; the teams stay as they are.

        All or nothing: raises ValueError, with nothing touched, for a change that does not match the index (removing a
        rule that is missing, adding one that exists) or that belongs to a team shared with another index. Rules are
        found by their rank and their filters, so `before` must be the rule exactly as it was. Takes a few microseconds
        per change, however many rules there are.
        """
        changes = tuple(changes)
        self._check(changes)
        touched: set[TeamId] = set()
        for rule, goes in _steps(changes):
            touched.add(rule.team_id)
            if goes:
                self._remove(rule)
            else:
                self._add(rule, insort)
        self._settle(touched)
        self.version = version

    def load(self, rules: Iterable[Rule]) -> None:
        """Add more rules of the same version, for an index that is built piece by piece; none may be present already.

        Twice as fast as `apply`, because nothing is checked.
        """
        touched: set[TeamId] = set()
        for rule in rules:
            if rule.active:
                touched.add(rule.team_id)
                self._add(rule, insort)
        self._settle(touched)

    def copy(self, teams: Iterable[TeamId]) -> RoutingIndex:
        """An index with its own copy of these teams' rules: `apply` there is not seen here, nor vice versa.

        The rules of all other teams are shared, so `apply` refuses them in the copy; when they change here, the copy
        sees it. Time and memory grow with the number of rules of these teams.
        """
        own = set(teams)
        twin = copy(self)
        twin._nodes = {team_id: node.copy() if team_id in own else node for team_id, node in self._nodes.items()}
        twin._shared = frozenset(self._nodes.keys() - own)
        return twin

    def take_over(self) -> None:
        """Take over what the copy shares with its original; the original must no longer be used."""
        self._shared = frozenset()

    def reaches(self, team_id: TeamId) -> bool:
        """Whether there is a path from the root to this team."""
        return team_id in self._nodes

    def key_sets(self, team_id: TeamId) -> frozenset[tuple[str, frozenset[str]]]:
        """The distinct (channel, filter keys) of a team's rules; a decision there needs at most as many lookups."""
        node = self._nodes.get(team_id)
        if node is None:
            return frozenset()
        return frozenset(
            (channel, frozenset((keys,) if isinstance(keys, str) else keys))
            for one in (node, node.copies)
            if one is not None
            for channel, shapes in one.shapes.items()
            for keys in shapes
        )

    def rule(self, team_id: TeamId, facts: Mapping[str, str]) -> Fired | None:
        """The first of the team's rules that matches, without catch-alls; None if none does."""
        node = self._nodes[team_id]
        lookups = node.lookups
        first: bytes | None = None
        for best, keys, winner in lookups.get(facts.get("channel", "*")) or lookups["*"]:
            if first is not None and first < best:
                break
            # An absent fact is None, which no rule has as a value, so it never matches.
            found = winner(facts.get(keys) if isinstance(keys, str) else tuple(map(facts.get, keys)))
            if found is not None and (first is None or found < first):
                first = found
        return None if first is None else _unpack_rule(node, first)

    def depends_on(self, key: str, facts: Mapping[str, str]) -> bool:
        """Whether in some team another rule decides because of this fact."""
        without = {name: value for name, value in facts.items() if name != key}
        return any(self.rule(team_id, facts) != self.rule(team_id, without) for team_id in self._nodes)

    def copies(self, team_id: TeamId, facts: Mapping[str, str]) -> Sequence[Fired]:
        """All of the team's rules that match and copy, including catch-alls."""
        node = self._nodes[team_id].copies
        return () if node is None else [_unpack_rule(node, packed) for packed in node.copying(facts)]

    def catch_all(self, team_id: TeamId) -> Fired | None:
        """The team's first catch-all rule."""
        node = self._nodes[team_id]
        return _unpack_rule(node, node.catch_alls[0]) if node.catch_alls else None

    def avoid(self, unreachable: Collection[SystemId]) -> None:
        """Exclude exactly these butlers from the choice of models. Rules still lead to them."""
        if self._models:
            _nominate(self._nodes, frozenset(unreachable))
        self.classifying = any(node.candidates for node in self._nodes.values())
        """Whether there is a team where a model may be asked."""

    def classifies(self, team_id: TeamId) -> bool:
        """Whether a model may be asked in this team: it is enabled, there is a model, and there are candidates."""
        return bool(self._nodes[team_id].candidates)

    def candidates(self, team_id: TeamId) -> tuple[Target, ...]:
        """The candidates of a model in this team: its butlers, then its sub-teams with a path to a butler."""
        return self._nodes[team_id].candidates

    def handler(self, team_id: TeamId) -> SystemId | None:
        """Who is notified of a dead letter: the team's System4, or that of the nearest team above that has one."""
        return self._nodes[team_id].handler

    def butler(self, system_id: SystemId) -> Chosen | None:
        """The butler, if there is a path to it from the root; None also if it is unknown, inactive or not a System1."""
        return self._butlers.get(system_id)

    def _add(self, rule: Rule, put: _Put) -> None:
        node = self._part(rule)
        number = None if node is None else self._number(node, rule.targets)
        if node is None or number is None:
            self.ignored += 1
            return
        node.add(rule, self._rank(rule) + _FANOUT.pack(number) + rule.name.encode("utf-8", "surrogatepass"), put)
        self.loaded += 1

    def _remove(self, rule: Rule) -> None:
        node = self._part(rule)
        if node is None or self._number(node, rule.targets) is None:
            self.ignored -= 1
            return
        node.remove(rule, self._rank(rule))
        self.loaded -= 1

    def _part(self, rule: Rule) -> _Node | None:
        node = self._nodes.get(rule.team_id)
        return None if node is None else node.part(rule)

    def _number(self, node: _Node, targets: tuple[Target, ...]) -> int | None:
        """The index of these targets among the team's; None if a rule with these targets is skipped."""
        number = node.numbers.setdefault(targets, len(node.fanouts))
        if number == len(node.fanouts):
            node.fanouts.append(_fan_out(node, targets, self._nodes))
        return None if node.fanouts[number].retired else number

    def _rank(self, rule: Rule) -> bytes:
        return rank(rule, self._implies)

    def _settle(self, touched: set[TeamId]) -> None:
        for team_id in touched & self._nodes.keys():
            self._nodes[team_id].settle()

    def _check(self, changes: tuple[RuleChange, ...]) -> None:
        """Raise ValueError for the first change that does not match, taking those before it into account."""
        here: dict[tuple[object, ...], bool] = {}
        ignored = self.ignored
        for rule, goes in _steps(changes):
            if rule.team_id in self._shared:
                raise ValueError(f"the rules of team {rule.team_id} are shared: name it when the index is copied")
            node = self._part(rule)
            if node is None or self._number(node, rule.targets) is None:
                ignored += -1 if goes else 1
                continue
            ranked = self._rank(rule)
            for place in _places(rule):
                known = rule.team_id, rule.copy, place, ranked
                if here.get(known, node.holds(place, ranked)) != goes:
                    name = f"rule {rule.rule_id} ({rule.name!r} of team {rule.team_id})"
                    raise ValueError(f"{name} is {'not' if goes else 'already'} in version {self.version}")
                here[known] = not goes
        if ignored < 0:
            raise ValueError(f"more skipped rules are removed than version {self.version} has")


def _steps(changes: Iterable[RuleChange]) -> Iterator[tuple[Rule, bool]]:
    """The effect of the changes on the index, which holds only active rules; True: the rule is removed."""
    for change in changes:
        if change.before is not None and change.before.active:
            yield change.before, True
        if change.after is not None and change.after.active:
            yield change.after, False


def _unpack_rule(node: _Node, packed: bytes) -> Fired:
    """Unpack with a cache: unpacking is the slowest part of a decision, and often the same few rules fire."""
    fired = node.fired.get(packed)
    if fired is None:
        high, low, number = _ID_AND_FANOUT.unpack_from(packed, _ID_AT)
        name = packed[_NAME_AT:].decode("utf-8", "surrogatepass")
        fired = UUID(int=high << 64 | low), name, node.fanouts[number]  # from an int: faster than from bytes
        if len(node.fired) >= _KEPT:
            node.fired.clear()
        node.fired[packed] = fired
    return fired


def _keys_and_values(filters: Filters) -> tuple[_Keys, Iterable[_Values]]:
    """Keys and each combination of values, in the same order; bare for a single filter, to save a million tuples."""
    keys = tuple(sorted(filters))
    if len(keys) == 1:
        return keys[0], values_of(filters[keys[0]])
    return keys, product(*(values_of(filters[key]) for key in keys))


def _places(rule: Rule) -> Iterator[_Place]:
    if rule.catch_all:
        yield None
        return
    keys, each = _keys_and_values(rule.filters)
    for values in each:
        yield rule.channel, keys, values


def _answers(member: Member) -> bool:
    """Whether it is a butler: an active System1 with an engine."""
    return member.number == 1 and member.active and bool(member.engine)


def _reachable(teams: tuple[Team, ...]) -> dict[TeamId, _Node]:
    """The tree, root first, without teams in a cycle or under an unknown parent."""
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


def _within_reach(team: Team, unreachable: frozenset[SystemId]) -> list[SystemId]:
    return [one.system_id for one in team.members if _answers(one) and one.system_id not in unreachable]


def _nominate(nodes: Mapping[TeamId, _Node], unreachable: frozenset[SystemId]) -> None:
    """Set the candidates of the teams with classification."""
    butlers = {team_id: _within_reach(node.team, unreachable) for team_id, node in nodes.items()}
    below = _subteams_with_butlers(nodes, {team_id for team_id, own in butlers.items() if own})
    for team_id, node in nodes.items():
        if node.team.classify:
            own = (Target(system_id=system_id) for system_id in butlers[team_id])
            teams = (Target(team_id=one) for one in sorted(below.get(team_id, ())))
            node.candidates = (*own, *teams)


def _subteams_with_butlers(nodes: Mapping[TeamId, _Node], alive: set[TeamId]) -> dict[TeamId, list[TeamId]]:
    """For each team, its sub-teams with a butler in them or below; `alive` are the teams with a butler of their own."""
    below: dict[TeamId, list[TeamId]] = {}
    for team_id, node in tuple(nodes.items())[::-1]:  # children come after their parents
        parent = node.team.parent_id
        if parent is not None and team_id in alive:
            alive.add(parent)
            below.setdefault(parent, []).append(team_id)
    return below


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
    return Fanout(targets, tuple(butlers), tuple(teams), tuple(lost), has_only_inactive_butlers(targets, node.members))


def has_only_inactive_butlers(targets: Collection[Target], members: Mapping[SystemId, Member]) -> bool:
    """Whether all of these targets are butlers of the team that are switched off."""
    own = [members.get(target.system_id) if target.system_id is not None else None for target in targets]
    return bool(own) and all(member is not None and member.number == 1 and not member.active for member in own)


def _loss(node: _Node, target: Target, nodes: Mapping[TeamId, _Node]) -> Lost | None:
    """Why this target takes no message; None if it does. Messages only move down: to members and direct sub-teams."""
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

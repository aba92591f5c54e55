"""Made-up trees of teams, rules and messages that collide as much as they can: few keys, few values, equal ages.

Called by the tests of the routing index. A seed enters, a `World` leaves; the same seed always gives the same world.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import Random
from typing import Final
from uuid import UUID

from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.routing import Filters, Member, Rule, SystemId, SystemNumber, Target, Team, TeamId
from switchboard.ports.channel import SEVERAL
from tests.routing import NEW_YEAR, ROOT

CHANNELS: Final = ("telegram", "email", "cli")
KEYS: Final = ("sender", "thread", "chat_type", "channel", "telegram_user_id", "telegram_chat_type", "email_to")
PINNED: Final = {
    "email_sender": {"email_domain"},
    "telegram_chat_type": {"chat_type"},
    "discord_channel_id": {"discord_guild_id"},
    "slack_channel_id": {"slack_team_id"},
}
"""What some filters say besides themselves."""
VALUES: Final = ("a", "b", "None", "telegram")
LISTS: Final = (("a", "b"), ("None", "a"), ("None", "b", "telegram"))
"""What a filter may be besides a single value."""
GONE: Final = TeamId("gone")
TEAMS: Final = (ROOT, *(TeamId(name) for name in ("t1", "t2", "t3", "t4")))
NUMBERS: Final[tuple[SystemNumber, ...]] = (1, 3, 4)
SYSTEMS: Final = tuple(SystemId(f"System{number}/{team}") for team in TEAMS for number in NUMBERS)
SECOND: Final = tuple(SystemId(f"System1/second-{team}") for team in TEAMS)
TARGETS: Final = (
    *(Target(system_id=system_id) for system_id in (*SYSTEMS, *SECOND, SystemId("System1/gone"))),
    *(Target(team_id=team_id) for team_id in (*TEAMS, GONE)),
    Target(),
)
OWN: Final = {
    team: tuple(target for target in TARGETS if target.system_id and str(target.system_id).endswith(team))
    for team in TEAMS
}


@dataclass(frozen=True)
class World:
    """A tree, its rules, and messages as facts."""

    teams: tuple[Team, ...]
    rules: tuple[Rule, ...]
    messages: tuple[dict[str, str], ...]


def world(random: Random, rules: int = 32, messages: int = 4) -> World:
    """Up to that many rules; rather deep than wide, so that messages go down."""
    teams = tree(random)
    ids = random.sample(range(1000), random.randint(0, rules))
    made = tuple(a_rule(random, teams, UUID(int=number)) for number in ids)
    return World(teams, made, tuple(a_message(random) for _ in range(messages)))


def tree(random: Random) -> tuple[Team, ...]:
    """One to five teams, the root first."""
    parents = [None, *(TEAMS[random.randrange(max(0, at - 2), at)] for at in range(1, random.randint(1, len(TEAMS))))]
    return tuple(
        Team(team_id, parent, "", members(random, team_id)) for team_id, parent in zip(TEAMS, parents, strict=False)
    )


def members(random: Random, team_id: TeamId) -> tuple[Member, ...]:
    """Two butlers, a System3 and a System4; now and then one is missing or not active."""
    possible = [(SystemId(f"System{number}/{team_id}"), number) for number in NUMBERS]
    possible.append((SystemId(f"System1/second-{team_id}"), 1))
    return tuple(
        Member(system_id, team_id, number, "memo", active=random.random() < 0.9)
        for system_id, number in possible
        if random.random() < 0.85
    )


def a_rule(random: Random, teams: Sequence[Team], rule_id: UUID) -> Rule:
    team_id = random.choice((ROOT, *(team.team_id for team in teams), GONE))
    below = [Target(team_id=team.team_id) for team in teams if team.parent_id == team_id]
    sensible = (*OWN.get(team_id, ()), *below * 4) or TARGETS
    return Rule(
        rule_id=rule_id,
        team_id=team_id,
        name=random.choice(("one", "ön", "")),
        channel=random.choice((*CHANNELS[:2], "telegram", "*")),
        filters=_filters(random),
        targets=tuple(
            random.choice(sensible if random.random() < 0.85 else TARGETS)
            for _ in range(random.choice((0, 1, 1, 2, 2, 3)))
        ),
        created_at=NEW_YEAR + timedelta(days=random.randrange(2)),
        priority=random.randrange(-1, 2),
        active=random.random() < 0.9,
        copy=random.random() < 0.1,
    )


def a_message(random: Random) -> dict[str, str]:
    facts = {**dict(_pairs(random, random.randrange(5))), "channel": random.choice(CHANNELS)}
    if "email_to" in facts and random.random() < 0.5:
        facts["email_to"] = SEVERAL.join(random.sample(VALUES, 2))
    return facts


def _filters(random: Random) -> Filters:
    filters = dict(_pairs(random, random.choice((0, 1, 1, 2))))
    return {key: random.choice(LISTS) if random.random() < 0.2 else value for key, value in filters.items()}


def specificity(rule: Rule) -> int:
    """How many facts a rule pins down."""
    return len({*rule.filters, *(other for key in rule.filters for other in PINNED.get(key, ()))})


def _pairs(random: Random, count: int) -> Iterator[tuple[str, str]]:
    for key in random.sample(KEYS, count):
        yield key, random.choice(VALUES[:2] if random.random() < 0.8 else VALUES)


def digest(worlds: int, shuffle: int) -> str:
    """Of all decisions in some worlds whose teams and rules come in an order shuffled by this seed, to the letter."""
    random, order = Random(3), Random(shuffle)
    told = sha256()
    for _ in range(worlds):
        one = world(random)
        index = RoutingIndex(1, order.sample(one.teams, len(one.teams)), order.sample(one.rules, len(one.rules)))
        for facts in one.messages:
            decision = decide(index, dict(order.sample([*facts.items()], len(facts))))
            told.update(repr((decision.chosen, decision.unrouted, decision.trail)).encode())
    return told.hexdigest()

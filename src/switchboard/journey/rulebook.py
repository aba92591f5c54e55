"""The rules in force in this process: loaded, compiled, and kept up to date with the database.

Not a leg of its own: `decide.py` asks it who gets a message, `turn.py` who a butler is. New versions of rules are
applied to the index in place, all of a refresh at once between two decisions, so that every message is decided by
exactly one version; very many changes are applied to a copy, which then replaces the index. When teams change,
everything is reloaded. Each refresh also looks up which remote butlers are present; an absent one is no longer a
candidate, without reloading any rule. Next: `core/routing/index.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.people.handle import sender_behind
from switchboard.core.people.owners import owns, owns_any
from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.envelope import Envelope
from switchboard.domain.remote_agents import RemoteAgent
from switchboard.domain.routing import Member, SystemId, Team
from switchboard.lanes.following import Follower, follow_topic
from switchboard.lanes.notifier import RULES, Notifier
from switchboard.store.database import Database
from switchboard.store.rules import remote_agents
from switchboard.store.rules import versions as store
from switchboard.store.rules.teams import open_rules
from switchboard.store.work.lanes import Look
from switchboard.store.work.routing import any_waiting

log = structlog.get_logger(__name__)

_WORTH: Final = 4
"""Reading and applying a change takes about this many times as long as loading a rule."""


class Rules(Struct, frozen=True):
    """The rules in force, as far as decisions need them; the full rules are in `store/rules/versions.py`.

    The index, and with it the version, changes in place; to decide several messages by the same version, await nothing
    in between.
    """

    teams: tuple[Team, ...]
    members: Mapping[SystemId, Member]
    index: RoutingIndex

    @property
    def version(self) -> int:
        """The version that decides at this moment."""
        return self.index.version


class RuleBook:
    """The rules in force in this process; `follow` keeps them so."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        rules: Rules,
        *,
        classifying: bool = False,
        patience: LivenessPolicy | None = None,
        channels: Channels = CHANNELS,
    ) -> None:
        self._database = database
        self._channels = channels
        self._notifier = notifier
        self._one_at_a_time = asyncio.Lock()
        self._classifying = classifying
        self._patience = patience or LivenessPolicy()
        self._unreachable: frozenset[SystemId] = frozenset()
        self._away: frozenset[SystemId] = frozenset()
        self.rules = rules
        self.remote_agents: Mapping[SystemId, RemoteAgent] = {}
        """Every remote butler as of the last look."""
        self.queued = False
        """Whether messages may be waiting to be classified. Once true it stays true, so that none is overtaken."""

    def is_owner(self, envelope: Envelope) -> bool:
        """Whether the sender owns a butler; that it is certainly the sender must be known already."""
        return owns_any(self.rules.members.values(), envelope)

    def owns(self, system_id: SystemId, author: str) -> bool:
        """Whether the author of something on record owns a butler."""
        person = sender_behind(author)
        return person is not None and owns(person, self.rules.members.get(system_id))

    @classmethod
    async def open(
        cls,
        database: Database,
        notifier: Notifier,
        *,
        classifying: bool = False,
        patience: LivenessPolicy | None = None,
        channels: Channels = CHANNELS,
    ) -> RuleBook:
        """Load and compile the present version. `classifying`: there are models, for teams that want them asked.

        `channels`: those that exist; by them rules are ranked, and handles of persons prove who writes.
        """
        rules = await _load(database, classifying, channels)
        book = cls(database, notifier, rules, classifying=classifying, patience=patience, channels=channels)
        await book._look_for_queues()
        await book.look_around()
        return book

    def avoid(self, unreachable: Collection[SystemId]) -> None:
        """From now on, models may not choose these butlers."""
        self._unreachable = frozenset(unreachable)
        self.rules.index.avoid(self._unreachable | self._away)

    async def look_around(self) -> None:
        """Look up which remote butlers are present; models may not choose the absent ones."""
        found = await remote_agents.list_remote_agents(self._database, self._patience)
        self.remote_agents = {one.system_id: one for one in found}
        away = frozenset(one.system_id for one in found if one.away)
        if away == self._away:
            return
        log.info("remote butlers", away=sorted(away - self._away), back=sorted(self._away - away))
        self._away = away
        self.rules.index.avoid(self._unreachable | away)

    async def _look_for_queues(self) -> None:
        # A team that asks a model counts even if this process has none: others may, and queue messages.
        wanted = any(team.classify for team in self.rules.teams)
        self.queued = self.queued or wanted or await any_waiting(self._database)

    async def refresh(self) -> bool:
        """Catch up with the database; returns whether anything changed."""
        async with self._one_at_a_time:
            since = await store.changes_since(self._database, self.rules.version)
            if since.version == self.rules.version:
                return False
            if since.teams_changed or not await self._apply(since):
                await self._reload()
            return True

    async def _apply(self, since: store.Since) -> bool:
        """Catch up change by change; False if that is impossible, or more work than reloading everything."""
        try:
            if since.many is None:
                self.rules.index.apply(since.version, since.changes)
            elif since.many.changes * _WORTH > self.rules.index.loaded:
                return False
            else:
                await self._apply_beside(since.version, since.many)
        except ValueError as error:
            log.warning("rules do not match the changes that were made to them", reason=str(error), next="reload all")
            return False
        changed = [f"{change.rule.team_id}: {change.rule.name}" for change in since.changes[:10]]
        count = len(since.changes) if since.many is None else since.many.changes
        log.info("rules in force", version=since.version, changes=count, changed=changed)
        return True

    async def _apply_beside(self, version: int, many: store.Many) -> None:
        """Change a copy piece by piece, so that messages can be decided meanwhile, by the version still in force."""
        index = self.rules.index.copy(many.teams)
        async with store.open_changes(self._database, index.version, version) as pieces:
            async for changes in pieces:
                index.apply(version, changes)
        index.take_over()
        index.avoid(self._unreachable | self._away)
        self.rules = replace(self.rules, index=index)

    async def _reload(self) -> None:
        began = perf_counter()
        rules = await _load(self._database, self._classifying, self._channels)
        rules.index.avoid(self._unreachable | self._away)
        self.rules = rules
        await self._look_for_queues()
        index = rules.index
        took = round(perf_counter() - began, 3)
        log.info("rules in force", version=index.version, teams=len(self.rules.teams), rules=index.loaded, seconds=took)

    async def follow(self, every: float = 0.5) -> None:
        """Refresh on a notification about rules, and periodically. Runs until cancelled.

        `every`: seconds between own looks, where no worker of this process looks.
        """
        await follow_topic(self._notifier, Follower(RULES, self._refresh_if_changed, self._refresh_all), every)

    async def _refresh_if_changed(self, look: Look) -> None:
        if look.version != self.rules.version:
            await self.refresh()
        if look.remote or self.remote_agents:
            await self.look_around()

    async def _refresh_all(self) -> None:
        await self.refresh()
        await self.look_around()


async def _load(database: Database, classifying: bool, channels: Channels) -> Rules:
    """Read everything piece by piece, so that messages can be decided meanwhile, by the version still in force."""
    async with open_rules(database) as stored:
        index = RoutingIndex(stored.version, stored.teams, (), classifying=classifying, implies=channels.implies)
        async for some in stored.rules:
            index.load(some)
    teams = tuple(_keep_proven(team, channels) for team in stored.teams)
    return Rules(teams, {member.system_id: member for team in teams for member in team.members}, index)


def _keep_proven(team: Team, channels: Channels) -> Team:
    """The team without linked handles that anybody may take: they make nobody an owner."""
    if not any(member.linked for member in team.members):
        return team
    return replace(team, members=tuple(_keep_proven_handles(member, channels) for member in team.members))


def _keep_proven_handles(member: Member, channels: Channels) -> Member:
    return replace(member, linked=frozenset(one for one in member.linked if channels[one.channel].vouched))

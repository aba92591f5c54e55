"""The rules in force in this process: loaded, compiled, and kept up with the database.

Not a leg of its own: `decide.py` asks it who gets a message, `turn.py` who a butler is. The index is compiled anew when
the version in the database changes, so that a message is decided by exactly one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.errors import Unavailable
from switchboard.domain.routing import Member, RuleSet, SystemId
from switchboard.lanes.bell import RULES, Bell
from switchboard.store import teams as store
from switchboard.store.database import Database

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """One version of the rule set, with its index and its members by name."""

    rule_set: RuleSet
    index: RoutingIndex
    members: Mapping[SystemId, Member]

    @classmethod
    def compile(cls, rule_set: RuleSet) -> Rules:
        """Make what decisions need of a loaded rule set."""
        members = {member.system_id: member for team in rule_set.teams for member in team.members}
        return cls(rule_set, RoutingIndex.of(rule_set), members)


class RuleBook:
    """The rules in force in this process; `follow` keeps them so."""

    def __init__(self, database: Database, bell: Bell, rules: Rules) -> None:
        self._database = database
        self._bell = bell
        self.rules = rules

    @classmethod
    async def open(cls, database: Database, bell: Bell) -> RuleBook:
        """Load and compile the present version."""
        return cls(database, bell, Rules.compile(await store.load_rule_set(database)))

    async def refresh(self) -> bool:
        """Compile anew if the version has changed; returns whether it had."""
        if await store.rule_set_version(self._database) == self.rules.rule_set.version:
            return False
        self.rules = Rules.compile(await store.load_rule_set(self._database))
        log.info("rules in force", version=self.rules.rule_set.version, rules=len(self.rules.rule_set.rules))
        return True

    async def follow(self, every: float = 0.5) -> None:
        """Refresh when the bell rings for rules, and every so often in case it was not heard. Runs until cancelled."""
        changed = asyncio.Event()
        stop = self._bell.subscribe(RULES, changed.set)
        try:
            while True:
                changed.clear()
                try:
                    await self.refresh()
                except Unavailable as error:
                    log.warning("rules not refreshed", reason=error.message)
                try:
                    async with asyncio.timeout(every):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            stop()

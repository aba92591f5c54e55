"""Rules and their past: lists, history, versions, differences, exports, and lint.

HTTP and MCP call `RuleRecords`, each time with the `Reach` of the caller: rules of teams beyond it are omitted, or
treated as non-existent. Out: JSON forms of rules and frozen values. Reads only. Next: `store/rules/versions.py`,
`core/routing/lint.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.cursors import CursorText, Number, cursor_after, key_of
from switchboard.app.reach import Reach
from switchboard.app.rules.proposals import existing, no_rule, refuse_absent_team
from switchboard.app.runtime import Runtime
from switchboard.core.routing.explain import in_order
from switchboard.core.routing.lint import Finding, lint, lint_change, lint_moves, lint_people
from switchboard.core.routing.rulefile import RuleJson, changed_fields, render_rule_file, rule_file, rule_json
from switchboard.core.text.words import offer
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.people import PersonNames
from switchboard.domain.routing import Rule, RuleChange, RuleSetVersion, SystemId, TeamId, VersionHead
from switchboard.domain.shown import SopRules
from switchboard.store.connectors import accounts
from switchboard.store.rules import versions as store
from switchboard.store.work import ledger, processes

SHOWN_CHANGES: Final = 200
"""Changes that an answer shows; all are counted."""
_LINTED: Final = 5000
"""Rules of a team up to which an edit looks for mistakes; for more there is a separate call."""


COUNTED_DECISIONS: Final = 2000
"""Those in which hits of rules are counted: older ones are not looked at."""


class RulePage(Struct, frozen=True):
    """Rules by id, oldest first, and the version in force."""

    version: int
    rules: tuple[RuleJson, ...]
    next_cursor: UUID | None


@dataclass(frozen=True, slots=True)
class ChangeView:
    """What was done to a rule.

    `before` is null if it is new, `after` if it was removed; `fields` has the old and the new value of each field that
    differs.
    """

    rule_id: UUID
    team_id: str
    before: JsonMapping | None
    after: JsonMapping | None
    fields: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class RuleEvent(VersionHead):
    """What a version did to a rule: `before` is null if it was new, `after` if it was removed."""

    before: RuleJson | None
    after: RuleJson | None


@dataclass(frozen=True, slots=True)
class VersionView(VersionHead):
    """A version with its changes: the first 200 of `changed`."""

    teams: bool
    changed: int
    changes: tuple[ChangeView, ...]


class DiffView(Struct, frozen=True):
    """What lies between two versions, one change per rule."""

    first: int
    last: int
    changed: int
    changes: tuple[ChangeView, ...]


@dataclass(frozen=True, slots=True)
class Linted:
    """Findings about the rules, the most severe first."""

    version: int
    findings: tuple[Finding, ...]


def change_view(change: RuleChange) -> ChangeView:
    """A change as the interfaces show it."""
    before, after = (None if rule is None else rule_json(rule) for rule in (change.before, change.after))
    return ChangeView(change.rule.rule_id, change.rule.team_id, before, after, changed_fields(change))


def first_changes(changes: Sequence[RuleChange]) -> tuple[ChangeView, ...]:
    """As many as an answer shows."""
    return tuple(change_view(change) for change in changes[:SHOWN_CHANGES])


class RuleRecords:
    """Reads rules and their history."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def page(
        self, reach: Reach, team_id: TeamId | None, source: str | None, *, after: UUID | None, limit: int
    ) -> RulePage:
        """A page of the rules in force: all, or of a team or source. Raises NotFound if it does not exist.

        Rules beyond the reach are omitted, so a page may be short or empty without being the last.
        """
        if team_id is not None:
            self._refuse_absent_team(reach, team_id)
        version, rules = await store.list_rules(self._database, team_id, source=source, after=after, limit=limit)
        if source and not rules and after is None:
            await self._refuse_absent_source(reach, source)
        following = rules[-1].rule_id if len(rules) == limit else None
        return RulePage(version, tuple(rule_json(rule) for rule in rules if rule.team_id in reach), following)

    async def in_true_order(self, reach: Reach, team_id: TeamId) -> tuple[list[Rule], list[Rule]]:
        """The rules of a team as they are evaluated, and those that are off. Raises NotFound."""
        self._refuse_absent_team(reach, team_id)
        _, rules = await store.list_rules(self._database, team_id)
        ordered = await asyncio.to_thread(in_order, rules, self._runtime.channels.implies)
        return ordered, [rule for rule in rules if not rule.active]

    async def hits(self) -> Mapping[UUID, int]:
        """How often each rule decided, or copied, among the newest `COUNTED_DECISIONS`."""
        return await ledger.rule_hits(self._database, COUNTED_DECISIONS)

    def _refuse_absent_team(self, reach: Reach, team_id: TeamId) -> None:
        if team_id not in reach:
            raise NotFound(f"there is no team {team_id!r} whose rules this token may read", field="team_id")
        refuse_absent_team(self._runtime, team_id)

    async def _refuse_absent_source(self, reach: Reach, source: str) -> None:
        sources = [sop.source for sop in await store.list_sops(self._database) if _all_within(reach, sop)]
        if source not in sources:
            raise NotFound(f"no rule has ever been registered by {source!r}{offer(source, sources)}")

    async def get(self, reach: Reach, rule_id: UUID) -> tuple[JsonObject, tuple[RuleEvent, ...]]:
        """A rule and its history, newest first. A removed one is shown as it last was. Raises NotFound."""
        events = await store.history(self._database, rule_id)
        rule = events[0][1].rule if events and events[0][1].after is None else await existing(self._runtime, rule_id)
        if rule.team_id not in reach:
            raise no_rule(rule_id)
        return rule_json(rule), tuple(_event_of(version, change) for version, change in events)

    async def versions(self, *, limit: int, cursor: str | None) -> tuple[list[RuleSetVersion], str | None]:
        """A page of the history, newest first, and the cursor of the next. Raises InvalidInput."""
        [before] = key_of(cursor, tuple[Number]) or (None,)
        page = await store.versions(self._database, before, limit)
        return page, cursor_after(page[-1].version) if len(page) == limit else None

    async def version(self, reach: Reach, number: int) -> VersionView:
        """One version with its changes. Raises NotFound."""
        found = await store.get_version(self._database, number)
        if found is None:
            raise NotFound(f"there is no version {number} of the rules")
        changes, changed = await self._changes_within(reach, found)
        return VersionView(*_head_of(found), found.teams, changed, first_changes(changes))

    async def _changes_within(self, reach: Reach, version: RuleSetVersion) -> tuple[Sequence[RuleChange], int]:
        """The first changes of a version within the reach, and their number."""
        if reach.teams is None:
            return await store.changes_of(self._database, version.version, SHOWN_CHANGES), version.changes
        changes = _keep_within(reach, await store.changes_of(self._database, version.version))
        return changes, len(changes)

    async def diff(self, reach: Reach, first: int, last: int) -> DiffView:
        """The differences between two versions; reversed if `first` is the later one. Raises NotFound."""
        between = await store.changes_between(self._database, first, last)
        # Changed and changed back, it differs only in who did it when.
        changes = await asyncio.to_thread(lambda: list(filter(changed_fields, _keep_within(reach, between))))
        return DiffView(first, last, len(changes), first_changes(changes))

    async def export(self, reach: Reach, version: int | None, team_id: TeamId | None) -> JsonObject:
        """The rule file of all teams, or of one, now or at a version. Raises NotFound."""
        runtime = self._runtime
        await runtime.rule_book.refresh()
        if team_id is not None:
            self._refuse_absent_team(reach, team_id)
        known = [team.team_id for team in runtime.rule_book.rules.teams if team.team_id in reach]
        teams = known if team_id is None else [team_id]
        if version is None:
            version, found = await store.list_rules(self._database, team_id)
            rules = [rule for rule in found if rule.team_id in reach]
        else:
            rules = await store.rules_at(self._database, version, teams)
        return await asyncio.to_thread(lambda: render_rule_file(rule_file(version, teams, rules)))

    async def lint(self, reach: Reach) -> Linted:
        """Findings about the rules of the teams within the reach."""
        runtime = self._runtime
        await runtime.rule_book.refresh()
        teams, channels = runtime.rule_book.rules.teams, runtime.channels
        live, told = await self._running_butlers(), runtime.settings.dead_letters.tell is not None
        version, rules = await store.list_rules(self._database)
        found = await asyncio.to_thread(lambda: lint(teams, rules, live=live, channels=channels, told=told))
        found += lint_moves(rules, await accounts.moves(self._database))
        found += lint_people(rules, await self._person_names())
        return Linted(version, tuple(one for one in found if one.team_id in reach))

    async def lint_edit(self, changes: Sequence[RuleChange], *, written: bool) -> tuple[Finding, ...] | None:
        """Findings due to an edit, made or proposed. None if a team has too many rules for that."""
        rules = await self._rules_afterwards(changes, written=written)
        if rules is None:
            return None
        runtime = self._runtime
        teams, channels = runtime.rule_book.rules.teams, runtime.channels
        live = await self._running_butlers()
        found = await asyncio.to_thread(lambda: lint_change(teams, rules, changes, live=live, channels=channels))
        edited = {change.after.rule_id for change in changes if change.after is not None}
        found += lint_people((one for one in rules if one.rule_id in edited), await self._person_names())
        return tuple(found)

    async def _person_names(self) -> PersonNames:
        await self._runtime.people_book.refresh()
        return self._runtime.people_book.people.names(self._runtime.channels)

    async def _rules_afterwards(self, changes: Sequence[RuleChange], *, written: bool) -> list[Rule] | None:
        """All rules of the teams concerned after the edit; None if there are too many."""
        rules: dict[UUID, Rule] = {}
        for team_id in sorted({change.rule.team_id for change in changes}):
            _, own = await store.list_rules(self._database, team_id, limit=_LINTED + 1)
            if len(own) > _LINTED:
                return None
            rules |= {rule.rule_id: rule for rule in own}
        for change in () if written else changes:
            rules.pop(change.rule.rule_id, None)
            if change.after is not None:
                rules[change.after.rule_id] = change.after
        return list(rules.values())

    async def _running_butlers(self) -> Collection[SystemId]:
        """The butlers that run: every worker runs all of them."""
        if not await processes.count_alive(self._database, "worker"):
            return frozenset()
        members = self._runtime.rule_book.rules.members.values()
        return frozenset(member.system_id for member in members if member.active and member.engine)

    async def sops(self, reach: Reach, *, limit: int, cursor: str | None) -> tuple[list[SopRules], str | None]:
        """A page of the SOPs ever loaded, with the number of rules of each, and the cursor of the next.

        Those with rules beyond the reach are omitted.
        """
        [after] = key_of(cursor, tuple[CursorText]) or ("",)
        page = await store.list_sops(self._database, after=after, limit=limit)
        following = cursor_after(page[-1].source) if len(page) == limit else None
        return [sop for sop in page if _all_within(reach, sop)], following


def _all_within(reach: Reach, sop: SopRules) -> bool:
    return all(team in reach for team in sop.teams)


def _keep_within(reach: Reach, changes: Sequence[RuleChange]) -> list[RuleChange]:
    return [change for change in changes if change.rule.team_id in reach]


def _event_of(version: RuleSetVersion, change: RuleChange) -> RuleEvent:
    before, after = (None if rule is None else rule_json(rule) for rule in (change.before, change.after))
    return RuleEvent(*_head_of(version), before, after)


def _head_of(one: VersionHead) -> tuple[int, str, str, datetime]:
    return one.version, one.author, one.reason, one.created_at

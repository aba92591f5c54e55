"""Turns requests into changes of rules, and checks whether they make sense in the tree.

`app/rules/service.py` writes these changes, `app/rules/replays.py` only tries them. In: drafts, patches, rule files,
old versions; out: `RuleChange`s against the rules of one version, or InvalidInput with every problem and what would be
correct. Reads only. Next: `store/rules/versions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.runtime import Runtime
from switchboard.core.routing.check import Problem, check_rule
from switchboard.core.routing.draft import Edit, draft_of, new_rule, parse_draft, parse_patch
from switchboard.core.routing.rulefile import changes_for, difference, parse_rule_file, stamp_changes
from switchboard.core.text.words import offer, or_list
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Rule, RuleChange, RuleDraft, TeamId
from switchboard.store.ids import new_uuid7
from switchboard.store.rules import versions as store
from switchboard.store.rules.versions import MovedOn

_T = TypeVar("_T")

_ATTEMPTS: Final = 5
"""How often an edit of whole teams is recomputed, because others edit at the same time."""
MAX_KEY_SETS: Final = 256
"""Distinct (channel, filter keys) in one team."""
_TOLD: Final = 20
"""Maximum problems in an answer; if there are more, these are fixed first."""


class ProposedRule(Struct, frozen=True):
    """One rule to try: a new one of `team_id`, or with `rule_id` that rule with the parts of `fields` changed."""

    fields: JsonMapping
    team_id: TeamId | None = None
    rule_id: UUID | None = None


class Proposed(Struct, frozen=True):
    """Changes that make the rules of some teams exactly the given ones, if nothing was written since `version`."""

    version: int
    changes: Sequence[RuleChange]


async def retry_if_moved(attempt: Callable[[], Awaitable[_T]]) -> _T:
    """Recompute it if rules were written between reading and using them. Raises MovedOn if that keeps happening."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(MovedOn):
            return await attempt()
    return await attempt()


class RefusedRules(InvalidInput):
    """Rules that make no sense in the tree: code and field of the first problem, and all in message and details."""

    def __init__(self, problems: Sequence[tuple[Rule, Problem]]) -> None:
        _, first = problems[0]
        told = "; ".join(_problem_sentence(rule, problem) for rule, problem in problems)
        rest = " (and possibly more)" if len(problems) >= _TOLD else ""
        super().__init__(told + rest, code=first.code, field=first.field)
        self.details = {"problems": [_problem_as_json(rule, problem) for rule, problem in problems]}


def _problem_sentence(rule: Rule, problem: Problem) -> str:
    said = [name for name in problem.meant if name not in problem.message]
    right = f"; correct would be {or_list(said[:10])}" if said else ""
    return f"rule {rule.name!r}: {problem.message}{right}"


def _problem_as_json(rule: Rule, problem: Problem) -> JsonObject:
    return {
        "rule": rule.name,
        "team_id": rule.team_id,
        "code": problem.code,
        "field": problem.field,
        "message": problem.message,
        "meant": list(problem.meant[:10]),
    }


def edit_by(author: str) -> Edit:
    """An edit made now."""
    return Edit(author, datetime.now(UTC), new_uuid7)


def new_one(team_id: TeamId, draft: RuleDraft, edit: Edit) -> RuleChange:
    """A rule that does not exist yet."""
    return RuleChange(None, new_rule(draft, team_id, edit))


def patch_rule(rule: Rule, parts: Mapping[str, Any], edit: Edit) -> list[RuleChange]:
    """The rule with the named parts changed; no change if they are already so."""
    after = replace(rule, **parts)
    return [] if after == rule else [RuleChange(rule, edit.stamp(after))]


async def from_wanted(runtime: Runtime, wanted: Iterable[ProposedRule], edit: Edit) -> Proposed:
    """Several single changes together. Raises NotFound, InvalidInput."""
    version, changes = runtime.rule_book.rules.version, list[RuleChange]()
    for one in wanted:
        if one.rule_id is not None:
            changes += patch_rule(await existing(runtime, one.rule_id), parse_patch(one.fields), edit)
        else:
            changes.append(new_one(one.team_id or TeamId(""), parse_draft(one.fields), edit))
    return Proposed(version, changes)


async def from_document(runtime: Runtime, document: object, edit: Edit) -> tuple[frozenset[TeamId], Proposed]:
    """The teams named by a rule file, and the changes that make their rules exactly those of the file.

    Raises InvalidInput.
    """
    # A file may have thousands of rules: requests are served meanwhile.
    file = await asyncio.to_thread(parse_rule_file, document)
    named = frozenset(file.teams)
    refuse_unknown_teams(runtime, named)
    version, present = await store.rules_of(runtime.database, named)
    return named, Proposed(version, await asyncio.to_thread(changes_for, file, present, edit))


async def back_to(runtime: Runtime, version: int, team_id: TeamId | None, edit: Edit) -> Proposed:
    """The changes that restore the rules, or those of one team, to `version`. Raises NotFound."""
    teams = None if team_id is None else [team_id]
    refuse_unknown_teams(runtime, teams or ())
    then = await store.rules_at(runtime.database, version, teams)
    present, now = await store.list_rules(runtime.database, team_id)
    return Proposed(present, stamp_changes(difference(now, then), edit))


async def existing(runtime: Runtime, rule_id: UUID) -> Rule:
    """The rule of this id. Raises NotFound."""
    rule = await store.get_rule(runtime.database, rule_id)
    if rule is None:
        raise no_rule(rule_id)
    return rule


def no_rule(rule_id: UUID) -> NotFound:
    """The error for a rule that does not exist, or not for this caller."""
    return NotFound(f"there is no rule {rule_id}")


def refuse_unknown_teams(runtime: Runtime, named: Iterable[TeamId]) -> None:
    """Raise InvalidInput for the first team that does not exist."""
    for team_id in named:
        if problem := _unknown_team(runtime, team_id):
            raise InvalidInput(problem, code="unknown_team", field="team_id")


def refuse_absent_team(runtime: Runtime, team_id: TeamId) -> None:
    """Raise NotFound for a request to show a team that does not exist."""
    if problem := _unknown_team(runtime, team_id):
        raise NotFound(problem)


def _unknown_team(runtime: Runtime, team_id: TeamId) -> str | None:
    teams = [team.team_id for team in runtime.rule_book.rules.teams]
    return None if team_id in teams else f"there is no team {team_id!r}{offer(team_id, teams)}"


async def refuse_wrong(runtime: Runtime, changes: Sequence[RuleChange]) -> None:
    """Raise RefusedRules unless every written rule makes sense; disabling one is always permitted."""
    _refuse_twice(changes)
    teams = {team.team_id: team for team in runtime.rule_book.rules.teams}
    channels = runtime.channels
    written = [change.after for change in changes if change.after is not None and not _only_disables(change)]
    _refuse_many_key_sets(runtime, written)
    problems = ((rule, problem) for rule in written for problem in check_rule(rule, teams, channels))
    found = await asyncio.to_thread(lambda: list(islice(problems, _TOLD)))
    if found:
        raise RefusedRules(found)


def _refuse_twice(changes: Sequence[RuleChange]) -> None:
    counts = Counter(change.rule.rule_id for change in changes)
    twice = next((change.rule for change in changes if counts[change.rule.rule_id] > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"rule {twice.rule_id} ({twice.name!r}) is changed twice; a rule has one id and stays in its team",
            code="duplicate_rule",
            field="rule_id",
        )


def _refuse_many_key_sets(runtime: Runtime, written: Iterable[Rule]) -> None:
    """A decision looks up every distinct set of filter keys of a team: thousands of them would delay messages."""
    sets: dict[TeamId, set[tuple[str, frozenset[str]]]] = {}
    for rule in written:
        if rule.active and not rule.catch_all:
            index = runtime.rule_book.rules.index
            own = sets.setdefault(rule.team_id, set(index.key_sets(rule.team_id)))
            own.add((rule.channel, frozenset(rule.filters)))
            if len(own) > MAX_KEY_SETS:
                raise InvalidInput(
                    f"the rules of team {rule.team_id} would filter by more than {MAX_KEY_SETS} sets of keys; "
                    "use the same keys in more of them, or create a sub-team",
                    code="too_many_key_sets",
                    field="filters",
                )


def _only_disables(change: RuleChange) -> bool:
    """It must remain possible to switch off a rule whose target no longer exists."""
    before, after = change.before, change.after
    return before is not None and after is not None and draft_of(after) == replace(draft_of(before), active=False)

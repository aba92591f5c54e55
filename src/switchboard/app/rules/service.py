"""Rules at run time: everything that changes them, for callers who may.

HTTP and MCP call `RuleService` with the caller's `Principal`, which comes from its token alone. Every edit takes the
same path: authorize, validate, write as one version, follow it, and report the effect (warnings, blast radius). In:
drafts and documents; out: `WrittenRules`, or Forbidden (on record), InvalidInput, Conflict. Next:
`app/rules/proposals.py`, `store/rules/versions.py`, `app/rules/replays.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import AGENT, Access, Action, Principal
from switchboard.app.reach import reach_of
from switchboard.app.rules.proposals import (
    Proposed,
    back_to,
    edit_by,
    existing,
    from_document,
    new_one,
    patch_rule,
    refuse_wrong,
    retry_if_moved,
)
from switchboard.app.rules.records import ChangeView, RuleRecords, first_changes
from switchboard.app.rules.replays import Replays
from switchboard.app.runtime import Runtime
from switchboard.core.routing.backtest import Blast
from switchboard.core.routing.draft import Edit, draft_of, parse_patch
from switchboard.core.routing.lint import Finding
from switchboard.core.routing.rulefile import rule_json
from switchboard.core.routing.scope import editable
from switchboard.core.routing.sop import PREFIX, parse_sop, sop_changes, unload_changes
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Rule, RuleChange, RuleDraft, SystemId, TeamId
from switchboard.lanes.notifier import RULES
from switchboard.store.rules import versions as store
from switchboard.store.rules.versions import Authorship, MovedOn

READ_RULES: Final = Action("rules", AGENT)
EDIT_RULES: Final = Action("rules_edit", AGENT)
TEAMS: Final = Action("teams", AGENT)

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class Order(Struct, frozen=True):
    """Options of an edit. `dry_run` writes nothing and reports what would happen.

    `expected_version` is the version of the whole rule set; None: any. Replacing rules by those of a file, an SOP or an
    old version never overlooks an edit in between, either way.
    """

    reason: str
    expected_version: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class WrittenRules:
    """What an edit of several rules did, or would do. `changes` has the first 200 of `changed`.

    `warnings` is null if a team has too many rules to check, `blast` if it could not be computed.
    """

    version: int
    changed: int
    changes: tuple[ChangeView, ...]
    warnings: tuple[Finding, ...] | None
    blast: Blast | None


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """A rule that was written, and its effect.

    `fresh` is false if an equal rule with this id existed, and nothing was done.
    """

    rule: JsonMapping
    version: int
    warnings: tuple[Finding, ...] | None
    blast: Blast | None
    fresh: bool = True


class NewRule(Struct, frozen=True):
    """A rule to create. With an id of the caller's, repeating it creates no second one."""

    team_id: TeamId
    draft: RuleDraft
    rule_id: UUID | None = None


class Patch(Struct, frozen=True):
    """The parts of a rule to change, as they were given, and its version as the caller saw it."""

    rule_id: UUID
    version: int
    fields: JsonMapping


def author_of(caller: Principal) -> str:
    """The author for the history: the token's name, and an agent's system."""
    return caller.name if caller.system_id is None else f"{caller.name} ({caller.system_id})"


class RuleService:
    """Edits rules for callers who may."""

    def __init__(self, runtime: Runtime, access: Access, records: RuleRecords, replays: Replays) -> None:
        self._runtime = runtime
        self._access = access
        self._records = records
        self._replays = replays

    def editable_by(self, caller: Principal) -> frozenset[TeamId]:
        """The teams whose rules this caller may edit: all for operators, own and lower ones for a System3."""
        rules = self._runtime.rule_book.rules
        if caller.role == "operator":
            return frozenset(team.team_id for team in rules.teams)
        if caller.role != "agent" or caller.system_id is None:
            return frozenset()
        return editable(rules.teams, rules.members, SystemId(caller.system_id))

    async def check_scope(self, caller: Principal, team_ids: Collection[TeamId]) -> None:
        """Raise Forbidden, recorded, unless the caller may edit the rules of all these teams."""
        allowed = self.editable_by(caller)
        outside = sorted(set(team_ids) - allowed)
        # A team that does not exist is in nobody's scope; for an operator, the check of the rules reports it.
        if caller.role == "operator" or (allowed and not outside):
            return
        await self._access.record_refusal(caller, EDIT_RULES, {"system_id": caller.system_id, "teams": outside[:20]})
        if not allowed:
            raise Forbidden("only operators and the active System3 of a team may edit rules")
        raise Forbidden(
            f"{caller.system_id} may edit the rules of its own team and of those below, not of {', '.join(outside[:5])}"
        )

    async def check_editor(self, caller: Principal) -> None:
        """Raise Forbidden, recorded, unless the caller may edit the rules of some team."""
        await self._begin_edit(caller, ())

    async def create(self, caller: Principal, new: NewRule, order: Order) -> WrittenRule:
        """Make a rule. Raises Forbidden, InvalidInput, Conflict (the id is that of another rule)."""
        await self._begin_edit(caller, [new.team_id])
        change = new_one(new.team_id, new.draft, edit_by(author_of(caller)))
        if new.rule_id is None:
            return await self._write_one(caller, [change], order)
        change = RuleChange(None, replace(change.rule, rule_id=new.rule_id))
        if (there := await self._find_repeated(change.rule)) is not None:
            return there
        try:
            return await self._write_one(caller, [change], order)
        except Conflict:  # the same request came twice at the same moment
            if (there := await self._find_repeated(change.rule)) is not None:
                return there
            raise

    async def _find_repeated(self, wanted: Rule) -> WrittenRule | None:
        """The answer to a repeated request: the rule that the first one created."""
        there = await store.get_rule(self._runtime.database, wanted.rule_id)
        if there is None:
            return None
        if (there.team_id, draft_of(there)) != (wanted.team_id, draft_of(wanted)):
            raise Conflict(
                f"another rule has the id {wanted.rule_id}; change that one, or omit the id",
                field="rule_id",
            )
        return WrittenRule(rule_json(there), self._runtime.rule_book.rules.version, (), None, fresh=False)

    async def update(self, caller: Principal, patch: Patch, order: Order) -> WrittenRule:
        """Change parts of a rule.

        Raises Forbidden, NotFound, InvalidInput, Conflict (it differs from what was seen).
        """
        await self._begin_edit(caller, [])
        rule = await existing(self._runtime, patch.rule_id)
        await self.check_scope(caller, [rule.team_id])
        changes = patch_rule(rule, parse_patch(patch.fields), edit_by(author_of(caller)))
        if not changes:  # also for what comes twice, whose version is that of the first time
            return WrittenRule(rule_json(rule), self._runtime.rule_book.rules.version, (), None, fresh=False)
        await self._check_seen(rule, patch.version)
        if rule.source and patch.fields.keys() != {"active"}:
            raise Conflict(
                f"rule {rule.name!r} belongs to the SOP {rule.source.removeprefix(PREFIX)!r}: change its file and load "
                "it again; here it can only be disabled and enabled (active)"
            )
        return await self._write_one(caller, changes, order)

    async def delete(self, caller: Principal, rule_id: UUID, version: int, order: Order) -> WrittenRules:
        """Remove a rule; restoring the previous version brings it back. Raises as `update`."""
        await self._begin_edit(caller, [])
        rule = await existing(self._runtime, rule_id)
        await self.check_scope(caller, [rule.team_id])
        await self._check_seen(rule, version)
        if rule.source and rule.active:
            raise Conflict(
                f"rule {rule.name!r} belongs to the SOP {rule.source.removeprefix(PREFIX)!r}: unload the SOP first, or "
                "take the rule out of its file and load it again"
            )
        return await self._write(caller, [RuleChange(rule, None)], order)

    async def _check_seen(self, rule: Rule, version: int) -> None:
        if rule.version != version:
            raise await self._moved_on(rule, version)

    async def restore(self, caller: Principal, version: int, team_id: TeamId | None, order: Order) -> WrittenRules:
        """Restore the rules, or those of one team, to a version. Raises as `import_`, and NotFound."""
        await self._begin_edit(caller, [] if team_id is None else [team_id])
        edit = edit_by(author_of(caller))
        return await self._write_exactly(caller, order, lambda: back_to(self._runtime, version, team_id, edit))

    async def import_(
        self, caller: Principal, document: object, cases: Sequence[object] | None, order: Order
    ) -> WrittenRules:
        """Replace the rules of the teams named in a rule file by those of the file, if its tests pass.

        The rules of an SOP become what the file says too, until the SOP is loaded again. Raises Forbidden when one of
        the teams is out of scope (then nothing is done), InvalidInput, Conflict.
        """
        await self._begin_edit(caller, [])
        return await self._write_exactly(caller, order, lambda: self._propose_import(caller, document, cases))

    async def _propose_import(self, caller: Principal, document: object, cases: Sequence[object] | None) -> Proposed:
        edit = edit_by(author_of(caller))
        named, proposed = await from_document(self._runtime, document, edit)
        await self.check_scope(caller, named)
        if caller.role != "operator":
            proposed = replace(proposed, changes=[_sign_change(change, edit) for change in proposed.changes])
        await refuse_wrong(self._runtime, proposed.changes)
        if cases is not None:
            await self._replays.require(cases, proposed, reach_of(self._runtime, caller))
        return proposed

    async def load_sop(self, caller: Principal, name: str, document: object, order: Order) -> WrittenRules:
        """Create or update exactly the rules of a standing operating procedure. Raises as `import_`."""
        await self._begin_edit(caller, [])
        return await self._write_exactly(caller, order, lambda: self._propose_load(caller, name, document))

    async def _propose_load(self, caller: Principal, name: str, document: object) -> Proposed:
        teams = {team.team_id: team for team in self._runtime.rule_book.rules.teams}
        sop = parse_sop(document, teams)
        if sop.name != name:
            raise InvalidInput(f"the name of the SOP is {sop.name!r}, not {name!r}", code="invalid_sop", field="name")
        version, present = await store.list_rules(self._runtime.database, source=sop.source)
        await self.check_scope(caller, {team_id for team_id, _ in sop.drafts} | {rule.team_id for rule in present})
        return Proposed(version, sop_changes(sop, present, edit_by(author_of(caller))))

    async def unload_sop(self, caller: Principal, name: str, order: Order) -> WrittenRules:
        """Disable all rules of a standing operating procedure. Raises Forbidden, NotFound."""
        await self._begin_edit(caller, [])
        return await self._write_exactly(caller, order, lambda: self._propose_unload(caller, name))

    async def _propose_unload(self, caller: Principal, name: str) -> Proposed:
        version, present = await store.list_rules(self._runtime.database, source=PREFIX + name)
        if not present:
            raise NotFound(f"no SOP {name!r} has ever been loaded")
        await self.check_scope(caller, {rule.team_id for rule in present})
        return Proposed(version, unload_changes(name, present, edit_by(author_of(caller))))

    async def _begin_edit(self, caller: Principal, team_ids: Collection[TeamId]) -> None:
        """Check by the current teams and members, so that a role just lost no longer counts."""
        await self._runtime.rule_book.refresh()
        await self.check_scope(caller, team_ids)

    async def _write_exactly(
        self, caller: Principal, order: Order, propose: Callable[[], Awaitable[Proposed]]
    ) -> WrittenRules:
        """Write the proposal, unless rules were written meanwhile: then it is recomputed."""

        async def attempt() -> WrittenRules:
            proposed, seen = await propose(), order.expected_version
            if proposed.changes and seen is not None and seen != proposed.version:  # without any, it came twice
                raise MovedOn(proposed.version, seen)
            return await self._write(caller, proposed.changes, replace(order, expected_version=proposed.version))

        return await (retry_if_moved(attempt) if order.expected_version is None else attempt())

    async def _write_one(self, caller: Principal, changes: Sequence[RuleChange], order: Order) -> WrittenRule:
        written = await self._write(caller, changes, order)
        form = written.changes[0].after
        assert form is not None, "a single edit cannot remove a rule"  # noqa: S101
        return WrittenRule(form, written.version, written.warnings, written.blast)

    async def _write(self, caller: Principal, changes: Sequence[RuleChange], order: Order) -> WrittenRules:
        """The only way in which rules change."""
        await self.check_scope(caller, {change.rule.team_id for change in changes})
        await refuse_wrong(self._runtime, changes)
        before = self._replays.before(changes)
        version, done = await self._commit_changes(caller, changes, order)
        return WrittenRules(
            version,
            len(done),
            first_changes(done),
            await self._do_afterwards(self._records.lint_edit(done, written=not order.dry_run)),
            await self._do_afterwards(self._replays.blast(before, changes)),
        )

    async def _commit_changes(
        self, caller: Principal, changes: Sequence[RuleChange], order: Order
    ) -> tuple[int, Sequence[RuleChange]]:
        """The version now in force, and what was written; other processes follow within a second."""
        runtime = self._runtime
        if order.dry_run:
            await runtime.rule_book.refresh()
            version = runtime.rule_book.rules.version
            if order.expected_version is not None and order.expected_version != version:
                raise MovedOn(version, order.expected_version)
            return version, changes
        by = Authorship(author_of(caller), order.reason)
        done = await store.write(runtime.database, changes, by=by, expected_version=order.expected_version)
        runtime.notifier.notify(RULES)
        await self._do_afterwards(runtime.rule_book.refresh())
        return done

    async def _do_afterwards(self, work: Awaitable[_T]) -> _T | None:
        """Errors after the write must not make it look like a failure."""
        try:
            return await work
        except Unavailable:
            return None
        except Exception:
            log.exception("unexpected error after rules were written")
            return None

    async def _moved_on(self, rule: Rule, seen: int) -> Conflict:
        last = await store.get_version(self._runtime.database, rule.version)
        by = "" if last is None else f" by {last.author} ({last.reason})"
        return Conflict(
            f"rule {rule.name!r} was changed{by}: version {rule.version} is in force, you saw {seen}; read it again",
            field="version",
        )


def _sign_change(change: RuleChange, edit: Edit) -> RuleChange:
    """A file may name a rule's author only for an operator, who restores exports; others sign themselves."""
    before, after = change.before, change.after
    if after is None:
        return change
    source, created_by = ("", edit.author) if before is None else (before.source, before.created_by)
    return RuleChange(before, edit.stamp(replace(after, source=source, created_by=created_by)))

"""`/v1/rules`: the rules in force, and every edit of them. Next: `app/rules/service.py`, `app/rules/records.py`.

History, versions, exports and lint are in `rule_history.py`, tests and backtests in `replays.py`: both come before this
router, whose `/v1/rules/{rule_id}` takes every other name for an id.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.app.reach import Reach
from switchboard.app.rules.records import RuleRecords
from switchboard.app.rules.replays import Replays
from switchboard.app.rules.service import EDIT_RULES, READ_RULES, NewRule, Order, Patch, RuleService, WrittenRule
from switchboard.core.routing.draft import parse_draft
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.base import Cursor, Limit, Line, TeamRef, Word
from switchboard.server.contracts.rules import (
    ImportBody,
    NewRuleBody,
    RestoreBody,
    RuleDetail,
    RuleList,
    RulePatch,
    SopBody,
    SopList,
    Version,
    WrittenRules,
    WrittenRuleView,
)
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, Within, answer, needs, operation, page
from switchboard.server.services import ServiceFactory, Services

router = router_of("rules", prefix="/v1")

RULE_RECORDS: Final = ServiceFactory(lambda s: RuleRecords(s.runtime))
RULE_REPLAYS: Final = ServiceFactory(lambda s: Replays(s.runtime))
RULE_SERVICE: Final = ServiceFactory(lambda s: RuleService(s.runtime, s.access, s.of(RULE_RECORDS), s.of(RULE_REPLAYS)))

Editor = Annotated[Principal, Depends(needs(EDIT_RULES))]


@router.get("/rules", **operation("list_rules", "List rules", RuleList, 404, needing=READ_RULES))
async def list_rules(
    parts: Parts,
    reach: Within,
    team_id: TeamRef | None = None,
    source: Word | None = None,
    limit: Limit = 100,
    cursor: Cursor | None = None,
) -> Response:
    """Those in force, inactive ones too, oldest first; of one team, or of a source such as `sop:NAME`.

    An agent sees those of its own team and of those below.
    """
    return answer(await parts.of(RULE_RECORDS).page(reach, team_id, source, after=uuid_cursor(cursor), limit=limit))


_NOT_NEW: Responses = {
    200: {"model": WrittenRuleView, "description": "An equal rule with this id existed, or it is a dry run."}
}
_NEW = "The rule is in force."


@router.post(
    "/rules",
    **operation("create_rule", "Create a rule", WrittenRuleView, 409, status=201, description=_NEW, more=_NOT_NEW),
)
async def create_rule(caller: Editor, parts: Parts, body: NewRuleBody) -> Response:
    """It takes effect in this process at once, in others within a second."""
    written = await parts.of(RULE_SERVICE).create(caller, new_rule(body), Order(body.reason, dry_run=body.dry_run))
    return answer(written, 201 if written.fresh and not body.dry_run else 200)


@router.post("/rules/restore", **operation("restore_rules", "Restore a version of the rules", WrittenRules, 404, 409))
async def restore_rules(caller: Editor, parts: Parts, body: RestoreBody) -> Response:
    """As a new version: the rules, or those of one team, become what they were. Teams and members stay."""
    order = Order(body.reason, body.expected_version, body.dry_run)
    return answer(await parts.of(RULE_SERVICE).restore(caller, body.version, body.team_id, order))


@router.post("/rules/import", **operation("import_rules", "Import a rule file", WrittenRules, 409))
async def import_rules(caller: Editor, parts: Parts, body: ImportBody) -> Response:
    """The rules of the teams it names become exactly those of the file; with `tests`, only if all of them pass."""
    cases = None if body.tests is None else body.tests.cases
    order = Order(body.reason, body.expected_version, body.dry_run)
    return answer(await parts.of(RULE_SERVICE).import_(caller, body.document, cases, order))


@router.get("/rules/{rule_id}", **operation("get_rule", "Get a rule", RuleDetail, 404, needing=READ_RULES))
async def get_rule(parts: Parts, reach: Within, rule_id: UUID) -> Response:
    """With its history."""
    return answer(await rule_detail(parts, reach, rule_id))


async def rule_detail(parts: Services, reach: Reach, rule_id: UUID) -> JsonObject:
    """A rule with its history in its wire format."""
    rule, history = await parts.of(RULE_RECORDS).get(reach, rule_id)
    return {"rule": rule, "history": history}


@router.patch("/rules/{rule_id}", **operation("update_rule", "Change a rule", WrittenRuleView, 404, 409))
async def update_rule(caller: Editor, parts: Parts, rule_id: UUID, body: RulePatch) -> Response:
    """Any of its fields; `active: false` disables it. 409 if it has changed since you read it."""
    return answer(await change_rule(parts, caller, rule_id, body))


@router.delete("/rules/{rule_id}", **operation("delete_rule", "Delete a rule", WrittenRules, 404, 409))
async def delete_rule(
    caller: Editor, parts: Parts, rule_id: UUID, version: Version, reason: Line, *, dry_run: bool = False
) -> Response:
    """Its history is kept; restoring the previous version brings it back. 409 if it has changed since you read it."""
    return answer(await parts.of(RULE_SERVICE).delete(caller, rule_id, version, Order(reason, dry_run=dry_run)))


async def change_rule(parts: Services, caller: Principal, rule_id: UUID, body: RulePatch) -> WrittenRule:
    """Apply a patch, in the form of the service."""
    patch = Patch(rule_id, body.version, body.fields())
    return await parts.of(RULE_SERVICE).update(caller, patch, Order(body.reason, dry_run=body.dry_run))


def new_rule(body: NewRuleBody) -> NewRule:
    """The new rule in the form of the service."""
    return NewRule(body.team_id, parse_draft(body.fields()), body.rule_id)


@router.get("/sops", **operation("list_sops", "List SOPs", SopList, needing=READ_RULES))
async def list_sops(parts: Parts, reach: Within, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """Every standard operating procedure that has rules here, loaded or not, by name."""
    return answer(page("sops", await parts.of(RULE_RECORDS).sops(reach, limit=limit, cursor=cursor)))


@router.put("/sops/{name:path}", **operation("load_sop", "Load an SOP", WrittenRules, 409))
async def load_sop(caller: Editor, parts: Parts, name: Word, body: SopBody) -> Response:
    """Registers or brings up to date exactly its own rules; loading the same again changes nothing."""
    return answer(
        await parts.of(RULE_SERVICE).load_sop(caller, name, body.document, Order(body.reason, dry_run=body.dry_run))
    )


@router.delete("/sops/{name:path}", **operation("unload_sop", "Unload an SOP", WrittenRules, 404, 409))
async def unload_sop(caller: Editor, parts: Parts, name: Word, reason: Line, *, dry_run: bool = False) -> Response:
    """Disables all of its rules; loading it again enables them."""
    return answer(await parts.of(RULE_SERVICE).unload_sop(caller, name, Order(reason, dry_run=dry_run)))

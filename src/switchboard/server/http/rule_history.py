"""The past of the rules, and findings about them: versions, differences, exports, lint.

Next: `app/rules/records.py`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from switchboard.app.rules.service import READ_RULES
from switchboard.server.contracts.base import Cursor, Limit, TeamRef
from switchboard.server.contracts.rules import DiffAnswer, Linted, RuleFile, Version, VersionPage, VersionView
from switchboard.server.http.parameters import router_of
from switchboard.server.http.rules import RULE_RECORDS
from switchboard.server.http.services import Parts, Within, answer, needs, operation, page

router = router_of("rules", prefix="/v1/rules", needing=needs(READ_RULES))


@router.get("/versions", **operation("list_rule_versions", "List versions of the rules", VersionPage))
async def list_versions(parts: Parts, limit: Limit = 50, cursor: Cursor | None = None) -> Response:
    """Who changed the rules when, and why; newest first."""
    return answer(page("versions", await parts.of(RULE_RECORDS).versions(limit=limit, cursor=cursor)))


@router.get("/versions/{version}", **operation("get_rule_version", "Get a version of the rules", VersionView, 404))
async def get_version(parts: Parts, reach: Within, version: Version) -> Response:
    """With what it changed."""
    return answer(await parts.of(RULE_RECORDS).version(reach, version))


@router.get("/diff", **operation("diff_rules", "Compare two versions of the rules", DiffAnswer, 404))
async def diff(
    parts: Parts,
    reach: Within,
    first: Annotated[Version, Query(alias="from")],
    last: Annotated[Version, Query(alias="to")],
) -> Response:
    """One change per rule; the way back when `from` is the later one."""
    found = await parts.of(RULE_RECORDS).diff(reach, first, last)
    return answer({"from": found.first, "to": found.last, "changed": found.changed, "changes": found.changes})


@router.get("/export", **operation("export_rules", "Export rules", RuleFile, 404, 409))
async def export(
    parts: Parts, reach: Within, version: Version | None = None, team_id: TeamRef | None = None
) -> Response:
    """A rule file of all teams, or of one, as they are or as they were in a version."""
    return answer(await parts.of(RULE_RECORDS).export(reach, version, team_id))


@router.get("/lint", **operation("lint_rules", "Lint rules", Linted))
async def lint(parts: Parts, reach: Within) -> Response:
    """Rules that never fire, targets that no worker runs, teams that no message reaches; the worst first."""
    return answer(await parts.of(RULE_RECORDS).lint(reach))

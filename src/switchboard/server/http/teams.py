"""Teams, their rules and their agents, as they are in force. Next: `app/messages/views.py`."""

from __future__ import annotations

from fastapi import Response

from switchboard.app.messages.views import TeamView
from switchboard.app.rules.service import TEAMS
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.messages import AgentList, TeamList
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Within, answer, needs, operation, page

router = router_of("teams", prefix="/v1", needing=needs(TEAMS))


@router.get("/teams", **operation("list_teams", "List teams", TeamList))
async def list_teams(parts: Parts, reach: Within, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """With members and the first 100 rules of each, in evaluation order; disabled rules come last.

    An agent sees the rules of its own team and of those below it.
    """
    version, page, following = await parts.views.teams(reach, limit=limit, cursor=cursor)
    return answer({"version": version, "teams": page, "next_cursor": following})


@router.get("/teams/{team_id}", **operation("get_team", "Get a team", TeamView, 404))
async def get_team(parts: Parts, reach: Within, team_id: Word) -> Response:
    """With members and its first 100 rules; all are in `/v1/rules?team_id=…`."""
    return answer(await parts.views.team(team_id, reach))


@router.get("/agents", **operation("list_agents", "List agents", AgentList))
async def list_agents(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """The members of all teams by id, with the number of their deliveries by state."""
    return answer(page("agents", await parts.views.agents(limit=limit, cursor=cursor)))

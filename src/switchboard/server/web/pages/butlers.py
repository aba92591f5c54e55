"""Butlers: the tree of teams with their members, how each is today, and orders about remote ones; and the modules.

Next: `app/butlers.py`, `app/modules.py`, `app/remote_agents.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from switchboard.app.butlers import ButlerToday
from switchboard.app.modules import MODULES_EDIT
from switchboard.app.ops.modules import release_module
from switchboard.app.remote_agents import EDIT_AGENTS, ENGINE
from switchboard.domain.errors import NotFound
from switchboard.domain.routing import Team
from switchboard.server.http.agents import BUTLER_SERVICE, REMOTE_AGENT_SERVICE
from switchboard.server.http.modules import MODULE_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, reason_from
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages.rules import tree_of
from switchboard.server.web.reading import cut_list
from switchboard.server.web.visit import Visit

_OUTCOMES: Final = {
    "quarantined": "It gets no work until it is released; what rules send to it becomes a dead letter.",
    "released": "It gets work again.",
    "due": "Workers begin within half a minute.",
    "opened": "Workers open the module again.",
}


class ButlerRow(Struct, frozen=True):
    """A member in the tree of teams. `begins`: whether it is the first of its team in this list."""

    team: Team
    depth: int
    begins: bool
    butler: ButlerToday | None
    """None for a team without members."""


async def show_butlers(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """The tree, 50 members at a time."""
    today = await visit.services.of(BUTLER_SERVICE).today()
    rows: list[ButlerRow] = []
    for one in tree_of(visit.services.runtime.rule_book.rules.teams):
        members = [today.get(member.system_id) for member in one.team.members] or [None]
        rows += [ButlerRow(one.team, one.depth, not n, butler) for n, butler in enumerate(members)]
    page = cut_list(rows, visit.asked("cursor"))
    return visit.page(
        "butlers.html",
        entered.status,
        rows=page.rows,
        following=page.following,
        remote_engine=ENGINE,
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def quarantine_butler(visit: Visit, fields: Fields) -> Response:
    """Give a remote butler no work."""
    agents, system_id = visit.services.of(REMOTE_AGENT_SERVICE), fields.get("system_id", "")
    await agents.quarantine(visit.caller, system_id, reason_from(fields))
    return visit.go("/butlers?done=quarantined")


async def release_butler(visit: Visit, fields: Fields) -> Response:
    """Let a remote butler work again."""
    agents, system_id = visit.services.of(REMOTE_AGENT_SERVICE), fields.get("system_id", "")
    await agents.release(visit.caller, system_id, reason_from(fields))
    return visit.go("/butlers?done=released")


async def show_modules(visit: Visit) -> Response:
    """What butlers can be given, the accounts, when they were last brought up to date, and what is wrong."""
    return visit.page(
        "modules.html",
        modules=await visit.services.of(MODULE_SERVICE).list_modules(),
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def sync_module(visit: Visit, fields: Fields) -> Response:
    """Do now what a module does by itself."""
    await visit.services.of(MODULE_SERVICE).sync(visit.caller, fields.get("module", ""))
    return visit.go("/butlers/modules?done=due")


async def release_from_quarantine(visit: Visit, fields: Fields) -> Response:
    """Let workers open a module again."""
    with suppress(NotFound):  # it came twice
        await release_module(visit.services.runtime.database, visit.caller, fields.get("module", ""))
    return visit.go("/butlers/modules?done=opened")


PAGES: Final = (
    WebPage("/butlers", show_butlers, EDIT_AGENTS, "Butlers"),
    WebForm("/butlers/quarantine", quarantine_butler, EDIT_AGENTS, if_refused=show_butlers),
    WebForm("/butlers/release", release_butler, EDIT_AGENTS, if_refused=show_butlers),
    WebPage("/butlers/modules", show_modules, MODULES_EDIT),
    WebForm("/butlers/modules/sync", sync_module, MODULES_EDIT),
    WebForm("/butlers/modules/release", release_from_quarantine, MODULES_EDIT),
)

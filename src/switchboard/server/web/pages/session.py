"""What belongs to a session: its end, and the colours of the pages. Next: `app/web_sessions.py`."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from switchboard.app.web_sessions import PAGES as ALL_PAGES
from switchboard.server.http.web_sessions import WEB_SESSION_SERVICE
from switchboard.server.paths import WEB
from switchboard.server.web.forms import Fields
from switchboard.server.web.page import WebForm
from switchboard.server.web.signing_in import local_path
from switchboard.server.web.visit import Visit

_YEAR_S: Final = 31_536_000


async def sign_out(visit: Visit, _: Fields) -> Response:
    """Sign out: the session ends here, and its cookie with it."""
    await visit.services.of(WEB_SESSION_SERVICE).end(visit.caller, visit.session.session_id)
    response = visit.go("/")
    response.delete_cookie(visit.arrival.cookie_name, path=WEB)
    return response


async def choose_theme(visit: Visit, fields: Fields) -> Response:
    """Keep which colours are wanted, in a cookie that holds nothing else."""
    response = visit.go(local_path(fields.get("back", "")).removeprefix(WEB))
    wanted = fields.get("theme", "")
    if wanted in {"light", "dark"}:
        response.set_cookie(
            "sb_theme", wanted, max_age=_YEAR_S, path=WEB, secure=visit.arrival.https, samesite="strict"
        )
    else:
        response.delete_cookie("sb_theme", path=WEB)
    return response


PAGES: Final = (WebForm("/leave", sign_out, ALL_PAGES), WebForm("/theme", choose_theme, ALL_PAGES))

"""Signing in: by a link that is good once, or with a token; the page that says how; and signing out.

`site.py` calls it for all who are not signed in. In: a `Visit` of a stranger; out: pages, and the session's cookie.
Next: `app/web_sessions.py`.
"""

from __future__ import annotations

import re
import time
from collections import deque
from typing import Final

from starlette.responses import Response

from switchboard.app.web_sessions import SESSION_LASTS, WebSessions
from switchboard.domain.errors import Forbidden, Overloaded, Unauthenticated
from switchboard.server.paths import WEB
from switchboard.server.web.visit import Visit

AGAIN: Final = "again"
"""Marks an address that was loaded once more."""
_MOST_WRONG: Final = 10
_WRONG_S: Final = 60.0
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR", "Opera"),
    ("Firefox", "Firefox"),
    ("Chrome", "Chrome"),
    ("Safari", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


class SigningIn:
    """Turns links and tokens into sessions, and slows down those who guess."""

    def __init__(self, sessions: WebSessions) -> None:
        self._sessions = sessions
        self._wrong: deque[float] = deque(maxlen=_MOST_WRONG)

    def ask(self, visit: Visit) -> Response:
        """The page to sign in with, in place of the one that was asked for.

        A browser that comes from another site or program withholds the cookie from the first page, so that page loads
        itself once more before anybody is asked to sign in.
        """
        if visit.request.headers.get("hx-request") == "true":
            return visit.page("sign_in_again.html", 401)
        again = visit.asked(AGAIN) is None and not visit.arrival.sends_cookies and visit.request.method == "GET"
        back = visit.address(**{AGAIN: None}) if visit.request.method == "GET" else f"{WEB}/"
        return visit.page(
            "sign_in.html", back=back, reload=visit.address(**{AGAIN: "1"}) if again else None, wrong=None
        )

    async def show_link(self, visit: Visit) -> Response:
        """Who will be signed in by a link. It is not used up: programs that preview links open them, too.

        A page elsewhere that asks for ten wrong ones as pictures would let nobody sign in for a minute.
        """
        if visit.request.headers.get("sec-fetch-dest", "document") != "document":
            raise Forbidden("a link to sign in with is opened by itself, as no part of another page")
        self._slow_down()
        token = await self._sessions.link_owner(visit.path_text("secret"))
        if token is None:
            self._note_wrong()
            return visit.page("link_used.html", 404)
        return visit.page("link.html", name=token.name, role=token.role)

    async def use_link(self, visit: Visit) -> Response:
        """Sign in with a link, which is good for nothing from then on."""
        self._slow_down()
        secret = await self._sessions.enter_by_link(visit.path_text("secret"), browser_of(visit))
        if secret is None:
            self._note_wrong()
            return visit.page("link_used.html", 404)
        return _let_in(visit, secret, f"{WEB}/")

    async def use_token(self, visit: Visit) -> Response:
        """Sign in with a token that was entered."""
        self._slow_down()
        fields = await visit.read_fields()
        token, back = fields.get("token", "").strip(), local_path(fields.get("back", ""))
        try:
            secret = await self._sessions.enter_by_token(token, browser_of(visit))
        except Unauthenticated as error:
            return self._ask_again(visit, back, error.message)
        if secret is None:
            return self._ask_again(visit, back, "this token is for programs and opens no page")
        return _let_in(visit, secret, back)

    def _ask_again(self, visit: Visit, back: str, wrong: str) -> Response:
        self._note_wrong()
        return visit.page("sign_in.html", 422, back=back, reload=None, wrong=wrong)

    def _slow_down(self) -> None:
        """Raises Overloaded after ten wrong ones within a minute."""
        if len(self._wrong) == _MOST_WRONG and time.monotonic() - self._wrong[0] < _WRONG_S:
            raise Overloaded("too many wrong links and tokens; wait a minute and try again", retry_after=_WRONG_S)

    def _note_wrong(self) -> None:
        self._wrong.append(time.monotonic())


def _let_in(visit: Visit, secret: str, back: str) -> Response:
    response = visit.go(back.removeprefix(WEB))
    response.set_cookie(
        visit.arrival.cookie_name,
        secret,
        max_age=int(SESSION_LASTS.total_seconds()),
        path=WEB,
        secure=visit.arrival.https,
        httponly=True,
        samesite="strict",
    )
    return response


def local_path(back: str) -> str:
    """The way back, if it is one of our own pages; else the first."""
    if ".." in back.partition("?")[0].lower().replace("%2e", "."):
        return f"{WEB}/"
    return back if re.fullmatch(rf"{WEB}/(?!/)[A-Za-z0-9/_.~%?&=:+,@-]*", back) else f"{WEB}/"


def browser_of(visit: Visit) -> str:
    """The browser as a person would call it, such as `Firefox on Linux`."""
    agent = visit.request.headers.get("user-agent", "")
    browser = next((name for mark, name in _BROWSERS if f"{mark}/" in agent), "a browser")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    return f"{browser} on {system}" if system else browser

"""The site below `/ui/`: every request is looked at here before a page or form of `pages/` sees it.

`guest.py` opens it with the first request. Pages are shown where nobody on the way can read along; forms are taken from
our own pages only; without a session, the page to sign in with is shown in place of any other. Next:
`signing_in.py`, `pages/__init__.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from switchboard.app.approvals.service import APPROVALS
from switchboard.app.pulse import Pulse
from switchboard.app.status import NEEDS, STATUS, NeedKind
from switchboard.app.web_sessions import WebVisitor
from switchboard.domain.errors import Forbidden, InvalidInput, NotFound, Overloaded, SwitchboardError, Unavailable
from switchboard.server.connections import Connections
from switchboard.server.http.status import STATUS_SERVICE
from switchboard.server.http.web_sessions import WEB_SESSION_SERVICE
from switchboard.server.paths import CONSENT_ANSWERS, WEB
from switchboard.server.services import Services
from switchboard.server.web.arrivals import WebArrival, read_arrival
from switchboard.server.web.consent_answers import take_consent_answer
from switchboard.server.web.forms import Fields, keep_entered
from switchboard.server.web.headers import new_nonce, page_headers
from switchboard.server.web.live import LiveStreams
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages import PAGES
from switchboard.server.web.refusals import refuse_role, tell_refusal
from switchboard.server.web.signing_in import SigningIn
from switchboard.server.web.static import StaticFiles
from switchboard.server.web.templates import PageTemplates
from switchboard.server.web.visit import Frame, MenuEntry, Visit

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 2
"""Pages that are made at a time, so that people who look never take all connections to the database: `PageParts`."""
_LONGEST_S: Final = 10.0
"""Seconds that a page may take, whatever it is made of."""
_ASKED: Final[frozenset[NeedKind]] = frozenset({"approvals", "questions"})
_METHODS: Final = ("GET", "HEAD", "POST")
_SMALL_FORM: Final = 2_097_152
_UPLOADS: Final = 3
_LONGEST_PATH: Final = 1000
"""Characters: a longer path is none of ours, and may hold a number that Python refuses to read."""


class Site:
    """An ASGI app for what is below `/ui`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        static = StaticFiles()
        menu = [
            MenuEntry(page.path, page.menu, page.needs) for page in PAGES if isinstance(page, WebPage) and page.menu
        ]
        self._frame = Frame(PageTemplates(static, services.runtime.settings.web.time_zone), menu)
        self._sessions = services.of(WEB_SESSION_SERVICE)
        self._making = asyncio.Semaphore(_AT_ONCE)
        self._uploads = UploadPlaces()
        self._signing_in = signing_in = SigningIn(self._sessions)
        live = LiveStreams(Pulse(services.runtime.database, self._sessions), services.polls)

        async def answer_static(request: Request) -> Response:
            return static.answer(request.path_params["name"])

        self._router = Router(
            [
                Route("/static/{name}", answer_static, methods=["GET"]),
                Route("/enter/{secret}", self._for_strangers(signing_in.show_link), methods=["GET"]),
                Route("/enter/{secret}", self._for_strangers(signing_in.use_link), methods=["POST"]),
                Route("/enter", self._for_strangers(signing_in.use_token), methods=["POST"]),
                Route(CONSENT_ANSWERS.removeprefix(WEB), self._for_strangers(take_consent_answer), methods=["GET"]),
                Route("/events", self._for_visitors(live.open, live.refuse), methods=["GET"]),
                *(self._route_of(page) for page in PAGES),
                Route("/{path:path}", self._for_visitors(_find_no_page), methods=["GET", "POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._router
        if len(scope["path"]) > _LONGEST_PATH:
            answer = Response(status_code=404, headers=page_headers(new_nonce()))
        elif scope["method"] not in _METHODS:
            answer = Response(status_code=405, headers={**page_headers(new_nonce()), "allow": ", ".join(_METHODS)})
        await answer(scope, receive, send)

    def _route_of(self, page: WebPage | WebForm) -> Route:
        if isinstance(page, WebForm):
            return Route(page.path, self._for_visitors(self._handle_form(page)), methods=["POST"])
        return Route(page.path, self._for_visitors(self._handle_page(page)), methods=["GET"])

    def _handle_page(self, page: WebPage) -> Callable[[Visit], Awaitable[Response]]:
        async def show(visit: Visit) -> Response:
            if page.path == "/" and (first := visit.first_page) != "/":
                return visit.go(first)
            if visit.caller.role not in page.needs.roles:
                raise refuse_role(visit.caller.role, page.needs)
            try:
                async with self._making, asyncio.timeout(_LONGEST_S):
                    return await page.show(visit)
            except TimeoutError:
                raise Unavailable("this page took too long; ask for less of it, or try it again in a moment") from None

        return show

    def _handle_form(self, form: WebForm) -> Callable[[Visit], Awaitable[Response]]:
        async def act(visit: Visit) -> Response:
            if visit.caller.role not in form.needs.roles:
                await self._services.access.record_refusal(visit.caller, form.needs, {})
                raise refuse_role(visit.caller.role, form.needs)
            try:
                with self._uploads.place(visit):
                    fields = await visit.read_fields(with_files=form.with_files)
                if not visit.has_form_token(fields):
                    raise Forbidden("this form is of another session; open the page again and send it from there")
                return await _act_on_form(form, visit, fields)
            finally:
                await visit.request.close()

        return act

    def _for_strangers(
        self, answer: Callable[[Visit], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that needs no session."""

        async def admit(request: Request) -> Response:
            visit = self._make_visit(request, None)
            return self._refuse(visit) or await _answer_visit(visit, answer)

        return admit

    def _for_visitors(
        self, answer: Callable[[Visit], Awaitable[Response]], otherwise: Callable[[Visit], Response] | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for those who are signed in; all others get the page to sign in with, or what is given."""
        ask = otherwise or self._signing_in.ask

        async def admit(request: Request) -> Response:
            stranger = self._make_visit(request, None)
            if (refused := self._refuse(stranger)) is not None:
                return refused
            try:
                visitor = await self._find_visitor(stranger.arrival)
                if visitor is None:
                    return ask(stranger)
                _admit_connection(request, visitor)
                visit = self._make_visit(request, visitor)
                visit.number_waiting = await self._services.of(STATUS_SERVICE).count_waiting(_kinds_for(visitor))
            except SwitchboardError as error:
                return _tell_error(stranger, error)
            return await _answer_visit(visit, answer)

        return admit

    def _make_visit(self, request: Request, visitor: WebVisitor | None) -> Visit:
        arrival = read_arrival(request.scope, self._services.runtime.settings)
        return Visit(request, self._services, self._frame, arrival, visitor)

    async def _find_visitor(self, arrival: WebArrival) -> WebVisitor | None:
        return None if arrival.cookie is None else await self._sessions.find_visitor(arrival.cookie)

    @staticmethod
    def _refuse(visit: Visit) -> Response | None:
        """Before any session is looked at: pages over plain HTTP, forms that are not ours, and what no text holds."""
        if not visit.arrival.private:
            return visit.page("insecure.html", 403, host=visit.arrival.host)
        if visit.request.method == "POST" and not visit.arrival.same_origin:
            return _tell_error(visit, Forbidden("a form is taken only from a page of this server itself, opened here"))
        if any("\x00" in value for _, value in visit.request.query_params.multi_items()):
            return _tell_error(visit, InvalidInput("the address has a character that is in no text"))
        return None


class UploadPlaces:
    """Each session sends few large forms at a time, as each is on the disk until it is whole."""

    def __init__(self) -> None:
        self._taken = Counter[UUID]()

    @contextmanager
    def place(self, visit: Visit) -> Iterator[None]:
        """For a form that is read; a small one needs none. Raises Overloaded."""
        session, length = visit.session.session_id, visit.request.headers.get("content-length", "0")
        if length.isdigit() and int(length) <= _SMALL_FORM:
            yield
            return
        if self._taken[session] >= _UPLOADS:
            raise Overloaded(f"{_UPLOADS} uploads of this browser are running: wait for one to end", retry_after=5.0)
        self._taken[session] += 1
        try:
            yield
        finally:
            self._taken[session] -= 1
            if not self._taken[session]:
                del self._taken[session]


async def _answer_visit(visit: Visit, answer: Callable[[Visit], Awaitable[Response]]) -> Response:
    try:
        return await answer(visit)
    except SwitchboardError as error:
        return _tell_error(visit, error)
    except Exception:
        log.exception("unexpected error in a page")
        return _tell_error(visit, SwitchboardError("internal error"))


async def _act_on_form(form: WebForm, visit: Visit, fields: Fields) -> Response:
    try:
        return await form.act(visit, fields)
    except SwitchboardError as error:
        if form.if_refused is None:
            raise
        return await form.if_refused(visit, keep_entered(fields, error))


def _tell_error(visit: Visit, error: SwitchboardError) -> Response:
    return visit.page("error.html", error.status, told=tell_refusal(error))


def _kinds_for(visitor: WebVisitor) -> frozenset[NeedKind]:
    """What waits for somebody who may see it."""
    if visitor.session.role in STATUS.roles:
        return NEEDS
    return _ASKED if visitor.session.role in APPROVALS.roles else frozenset()


async def _find_no_page(_: Visit) -> Response:
    raise NotFound("there is no such page")


def _admit_connection(request: Request, visitor: WebVisitor) -> None:
    """Those who are signed in are no strangers, of whom the oldest are closed when there are too many connections."""
    state = request.scope["state"]
    connections: Connections = state["connections"]
    connections.admit_connection(state["connection"], operator=visitor.session.role == "operator")

"""Google's Calendar and People APIs on loopback, for tests: `async with GoogleServer() as google`, and a client of it.

In: requests at `google.url`; out: answers like Google's, and a log of both. Next: `calendar_api.py`, `people_api.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import unquote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from switchboard.domain.json_values import JsonObject
from switchboard.testing.google.calendar import GoogleCalendar
from switchboard.testing.google.calendar_api import ApiCall, CalendarApi
from switchboard.testing.google.errors import Fault, GoogleRefusal, Refusal
from switchboard.testing.google.mails import SentMail
from switchboard.testing.google.people_api import PeopleApi
from switchboard.testing.platform_server import BrokenOff, Cut, Endpoint, Hang, Page, PlatformServer, wait_gone

GOOGLE_TOKEN: Final = "ya29.of-nobody"  # noqa: S105
GoogleApi = Literal["calendar", "people"]
_METHODS: Final[tuple[tuple[GoogleApi, str, str, str], ...]] = (
    ("calendar", "GET", "/calendar/v3/users/me/calendarList", "calendarList.list"),
    ("calendar", "GET", "/calendar/v3/calendars/{calendarId}/events", "events.list"),
    ("calendar", "POST", "/calendar/v3/calendars/{calendarId}/events", "events.insert"),
    ("calendar", "GET", "/calendar/v3/calendars/{calendarId}/events/{eventId}", "events.get"),
    ("calendar", "PATCH", "/calendar/v3/calendars/{calendarId}/events/{eventId}", "events.patch"),
    ("calendar", "PUT", "/calendar/v3/calendars/{calendarId}/events/{eventId}", "events.update"),
    ("calendar", "DELETE", "/calendar/v3/calendars/{calendarId}/events/{eventId}", "events.delete"),
    ("calendar", "GET", "/calendar/v3/calendars/{calendarId}/events/{eventId}/instances", "events.instances"),
    ("people", "GET", "/v1/{+resourceName}/connections", "people.connections.list"),
    ("people", "POST", "/v1/people:createContact", "people.createContact"),
    ("people", "PATCH", "/v1/{+resourceName}:updateContact", "people.updateContact"),
    ("people", "DELETE", "/v1/{+resourceName}:deleteContact", "people.deleteContact"),
    ("people", "GET", "/v1/contactGroups", "contactGroups.list"),
    ("people", "GET", "/v1/{+resourceName}", "people.get"),
)


class GoogleExchange(Struct, frozen=True):
    """A request and its answer; `status` is 0 if the connection was broken instead."""

    api: GoogleApi
    call: ApiCall
    status: int
    answer: JsonObject | None


class GoogleServer(PlatformServer[Fault]):
    """One user's calendars and contacts. `watch` sees each exchange, and may raise.

    Faults are of methods, such as `events.patch`. To `tokens` may be added, and from them removed.
    """

    def __init__(self, *calendars: GoogleCalendar, page_size: int = 250, port: int = 0) -> None:
        super().__init__(
            Route("/{path:path}", Endpoint(self._answer_request), methods=["GET", "POST", "PATCH", "PUT", "DELETE"]),
            port=port,
        )
        self.tokens = {GOOGLE_TOKEN}
        self.calendars = CalendarApi(*calendars, page_size=page_size)
        self.contacts = PeopleApi(page_size=page_size)
        self.exchanges: list[GoogleExchange] = []
        self.before: Callable[[ApiCall], None] = lambda _: None
        """Called with each request before it is carried out, as others may act then."""
        self.after: Callable[[ApiCall], None] = lambda _: None
        """Called when it was carried out. Either may raise BrokenOff, and then there is no answer."""

    @property
    def calendar(self) -> GoogleCalendar:
        """The first one."""
        return next(iter(self.calendars.calendars.values()))

    @property
    def mails(self) -> Counter[SentMail]:
        """How often each mail was sent."""
        return Counter(mail for one in self.calendars.calendars.values() for mail in one.mails)

    @property
    def texts(self) -> list[str]:
        """The titles that clients have written."""
        bodies = [one.call.body for one in self.exchanges if one.call.body is not None]
        return [str(body["summary"]) for body in bodies if body.get("summary")]

    async def _answer_request(self, request: Request) -> Response:
        found = _method_of(request.method, request.scope["raw_path"].decode("ascii"))
        if found is None:
            return PlainTextResponse("Not Found", 404)
        api, name, path = found
        data = await request.body()
        parameters = dict(request.query_params)
        call = ApiCall(name, path, parameters, json.loads(data) if data else None, request.headers.get("if-match", ""))
        fault = self.next_fault(name)
        try:
            self._check_token(request)
            await self._act_before(fault, request)
            self.before(call)
            answer = self.calendars.answer(call) if api == "calendar" else self.contacts.answer(call)
        except GoogleRefusal as error:
            return self._tell_refusal(api, call, error)
        finally:
            self.wake_waiting()
        if isinstance(fault, Cut | Hang):
            self.exchanges.append(GoogleExchange(api, call, 0, None))
            if isinstance(fault, Hang):
                await wait_gone(request)
            raise BrokenOff
        self.after(call)
        status = 204 if answer is None else 200
        self.exchanges.append(GoogleExchange(api, call, status, answer))
        return Response(status_code=204) if answer is None else JSONResponse(answer)

    async def _act_before(self, fault: Fault | None, request: Request) -> None:
        """A fault in whose way nothing is carried out."""
        match fault:
            case Refusal():
                raise GoogleRefusal(fault.status, fault.reason, retry_after=fault.retry_after)
            case Page():
                raise GoogleRefusal(fault.code, fault.text)
            case Cut(taken=False):
                raise BrokenOff
            case Hang(taken=False):
                await wait_gone(request)
                raise BrokenOff

    def _tell_refusal(self, api: GoogleApi, call: ApiCall, error: GoogleRefusal) -> Response:
        if error.reason.startswith("<"):
            return Response(error.reason, error.status, media_type="text/html")
        answer = error.as_calendar() if api == "calendar" else error.as_people()
        self.exchanges.append(GoogleExchange(api, call, error.status, answer))
        headers = {"retry-after": error.retry_after} if error.retry_after else None
        return JSONResponse(answer, error.status, headers=headers)

    def _check_token(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            raise GoogleRefusal(401, "authError", "Invalid Credentials")


def _method_of(method: str, raw_path: str) -> tuple[GoogleApi, str, dict[str, str]] | None:
    for api, wanted, path, name in _METHODS:
        pattern = re.sub(r"\\\{\\\+(\w+)\\\}", r"(?P<\1>people/[^/:]+)", re.escape(path))
        match = re.fullmatch(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", pattern), raw_path.partition("?")[0])
        if wanted == method and match is not None:
            return api, name, {key: unquote(value) for key, value in match.groupdict().items()}
    return None

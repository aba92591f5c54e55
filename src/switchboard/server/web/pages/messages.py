"""Messages: the list, and one of them with why it went where it went, its HTML, its original and its attachments.

Next: `app/messages/views.py`, `app/messages/explain.py`, `app/messages/contents.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, get_args
from uuid import UUID
from zoneinfo import ZoneInfo

from starlette.responses import Response

from switchboard.app.messages.blobs import RAW
from switchboard.app.messages.explain import EXPLAIN, explain
from switchboard.app.messages.intake import MAIL
from switchboard.app.messages.searching import MessageFilter, Period
from switchboard.app.messages.views import MESSAGES
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.domain.shown import MessageState
from switchboard.server.web.downloads import answer_file, answer_picture, attachment_header
from switchboard.server.web.forms import choice_from
from switchboard.server.web.headers import foreign_headers
from switchboard.server.web.looking import CONTENTS, LOOKING_VIEWS, MESSAGE_SEARCH
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_FILTERS: Final = ("channel", "endpoint", "sender", "butler", "team")
_TIMES: Final = ("since", "until")
_STATES: Final[tuple[MessageState, ...]] = get_args(MessageState)


async def show_messages(visit: Visit) -> Response:
    """Newest first, with filters that are the address."""
    asked = {name: visit.asked(name) for name in (*_FILTERS, "state", *_TIMES)}
    state = None if asked["state"] is None else choice_from(asked["state"], _STATES, "state")
    wanted = MessageFilter(**{name: asked[name] for name in _FILTERS}, state=state)
    found = await visit.services.of(MESSAGE_SEARCH).find(
        visit.caller,
        wanted,
        Period(*(_asked_time(visit, name) for name in _TIMES)),
        cursor=visit.asked("cursor"),
        limit=_ROWS,
    )
    return visit.page(
        "messages.html",
        found=found,
        names=await name_senders(visit, found.messages),
        asked=asked,
        filtered=any(asked.values()),
        states=_STATES,
        channels=sorted(visit.services.runtime.channels),
        teams=sorted(team.team_id for team in visit.services.runtime.rule_book.rules.teams),
    )


def _asked_time(visit: Visit, name: str) -> datetime | None:
    """A time as forms send it, in the zone in which times are shown."""
    text = visit.asked(name)
    if text is None:
        return None
    zone = visit.services.runtime.settings.web.time_zone
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo or zone is None else found.replace(tzinfo=ZoneInfo(zone))
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"a time is written as 2026-11-30T14:00, not {text[:40]!r}", field=name) from None


async def show_message(visit: Visit) -> Response:
    """One message: for operators everything on record, for its sender what came of it."""
    request_id = _message_id(visit)
    if visit.caller.role not in EXPLAIN.roles:
        return visit.page(
            "own_message.html", message=await visit.services.of(LOOKING_VIEWS).message(visit.caller, request_id)
        )
    found = await explain(visit.services.runtime, request_id)
    names = await name_senders(visit, [found.message])
    return visit.page("message.html", found=found, names=names, is_mail=await _is_mail(visit, request_id))


async def show_mail(visit: Visit) -> Response:
    """The HTML of a mail in a frame, and as text where its links and pictures lead."""
    html = await visit.services.of(CONTENTS).html(visit.caller, _message_id(visit))
    return visit.page("mail.html", request_id=_message_id(visit), html=html)


async def show_html(visit: Visit) -> Response:
    """The document in that frame: it loads nothing, runs nothing and leads nowhere."""
    html = await visit.services.of(CONTENTS).html(visit.caller, _message_id(visit))
    if html is None:
        raise NotFound("this message has no HTML")
    return Response(html.document, headers=foreign_headers(), media_type="text/html")


async def download_raw(visit: Visit) -> Response:
    """The original bytes."""
    raw, media_type = await visit.services.of(LOOKING_VIEWS).raw(visit.caller, _message_id(visit))
    ending = "eml" if media_type == MAIL else "json"
    headers = foreign_headers() | attachment_header(f"message-{_message_id(visit)}.{ending}")
    return Response(raw, headers=headers, media_type=media_type)


async def download_attachment(visit: Visit) -> Response:
    """An attachment, to be saved and never opened here."""
    found = await visit.services.of(CONTENTS).attachment(visit.caller, _message_id(visit), visit.path_number("n"))
    return answer_file(found.filename, found.file)


async def show_picture(visit: Visit) -> Response:
    """An attachment whose bytes are those of a picture, which browsers only paint."""
    found = await visit.services.of(CONTENTS).attachment(visit.caller, _message_id(visit), visit.path_number("n"))
    return await answer_picture(found.file)


async def _is_mail(visit: Visit, request_id: UUID) -> bool:
    try:
        return (await visit.services.of(LOOKING_VIEWS).own(visit.caller, request_id)).media_type == MAIL
    except NotFound:  # what a program has saved is explained, and is no message
        return False


def _message_id(visit: Visit) -> UUID:
    return visit.path_id("request_id")


_ONE: Final = "/messages/{request_id:uuid}"
PAGES: Final = (
    WebPage("/messages", show_messages, MESSAGES, "Messages"),
    WebPage(_ONE, show_message, MESSAGES),
    WebPage(f"{_ONE}/mail", show_mail, RAW),
    WebPage(f"{_ONE}/html", show_html, RAW),
    WebPage(f"{_ONE}/raw", download_raw, RAW),
    WebPage(f"{_ONE}/attachments/{{n:int}}", download_attachment, RAW),
    WebPage(f"{_ONE}/pictures/{{n:int}}", show_picture, RAW),
)

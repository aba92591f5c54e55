"""Chat: writing to one's butlers, their answers, and what they ask meanwhile. Next: `../chats.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from switchboard.app.approvals.service import APPROVALS
from switchboard.app.messages.blobs import OUTBOX
from switchboard.app.messages.chat import CHAT, ChatInput
from switchboard.app.messages.stream import Stream, StreamEvent
from switchboard.app.messages.waiting import stop_turns
from switchboard.core.turns.asking import Verb
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Owner
from switchboard.server.event_streams import EventStream, refuse_body
from switchboard.server.http.approvals import APPROVAL_SERVICE
from switchboard.server.http.streams import STREAM_SERVICE
from switchboard.server.paths import WEB, WEB_FILES
from switchboard.server.web.answering import AnswerProgress, ChangedPart, frame_message, mark_of_butler
from switchboard.server.web.chats import PAGE_CHATS, key_for, name_from, new_thread, open_chat, speaker_of, store_files
from switchboard.server.web.downloads import answer_file, answer_picture
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields
from switchboard.server.web.looking import LOOKING_BLOBS
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.signing_in import local_path
from switchboard.server.web.visit import Visit
from switchboard.server.ws.connection import CHAT_SERVICE

_THREADS: Final = 20
_LONGEST_S: Final = 3600.0
_NEW: Final = "new"
"""Stands for the name of a conversation that is yet to begin."""


async def show_chat(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """The conversation that is asked for or was sent from, otherwise the one that was last written in."""
    asked = entered.value("thread") or visit.asked("thread")
    service, before = visit.services.of(PAGE_CHATS), visit.asked("before")
    threads, older = await service.threads(speaker_of(visit), limit=_THREADS, cursor=before)
    newest = threads[0].thread if threads and before is None else _NEW
    thread = asked or newest
    opened = await open_chat(
        visit,
        new_thread() if thread == _NEW else name_from(thread, "the conversation"),
        to=entered.value("to", visit.asked("to") or ""),
        cursor=visit.asked("cursor"),
    )
    return visit.page(
        "chat.html", entered.status, opened=opened, threads=threads, older=older, before=before, entered=entered
    )


async def show_exchange(visit: Visit) -> Response:
    """One message and what came of it, for a page that is open already."""
    return await _show_exchange(visit, _message_id(visit), NOTHING_ENTERED)


async def _show_exchange(visit: Visit, request_id: UUID, refusal: Entered) -> Response:
    """`refusal`: why what was decided in it was refused, if it was."""
    chats, speaker = visit.services.of(PAGE_CHATS), speaker_of(visit)
    thread, _ = await chats.exchange(visit.caller, speaker, request_id)
    live = await chats.first_open(speaker, thread)
    # Read afterwards: of an answer that comes in between, nobody would be told.
    _, one = await chats.exchange(visit.caller, speaker, request_id)
    return visit.page("chat_exchange.html", refusal.status, one=one, thread=thread, live=live, refusal=refusal)


async def stream_answer(visit: Visit) -> Response:
    """An answer while it is written, as parts of the page."""
    refuse_body(visit.request.headers)
    thread, _ = await visit.services.of(PAGE_CHATS).exchange(visit.caller, speaker_of(visit), _message_id(visit))
    after = visit.request.headers.get("last-event-id") or None
    stream = await visit.services.of(STREAM_SERVICE).open(visit.caller, _message_id(visit), after)
    drawn = DrawnAnswer(visit, thread, _message_id(visit), AnswerProgress(stream.texts()))
    place = partial(visit.services.of(STREAM_SERVICE).place, visit.caller)
    return EventStream(visit.services.polls, partial(drawn.frames, stream), visit.headers, place)


class DrawnAnswer:
    """Draws an answer for one reader."""

    def __init__(self, visit: Visit, thread: str, request_id: UUID, progress: AnswerProgress) -> None:
        self._visit = visit
        self._thread = thread
        self._request_id = request_id
        self._progress = progress

    async def frames(self, stream: Stream, gone: asyncio.Event) -> AsyncGenerator[bytes]:
        """First how far the message is, as that has changed since the page was made; then what changes."""
        yield await self._frame_of(StreamEvent("ping"))
        async with aclosing(stream.follow(gone, _LONGEST_S, self._visit.is_still_signed_in)) as events:
            async for event in events:
                yield await self._frame_of(event)

    async def _frame_of(self, event: StreamEvent) -> bytes:
        """The message that changes the page. Before the last one, which ends the stream, those that wait are told."""
        changed = self._progress.apply_event(event)
        framed = frame_message("".join([await self._draw_part(part) for part in changed]), event.id)
        return frame_message("", "", "settled") + framed if event.kind == "done" else framed

    async def _draw_part(self, part: ChangedPart) -> str:
        one = None
        if part.kind in {"standing", "told", "settled"}:
            service = self._visit.services.of(PAGE_CHATS)
            _, one = await service.exchange(self._visit.caller, speaker_of(self._visit), self._request_id)
        return self._visit.render(
            "chat_part.html",
            part=part,
            one=one,
            thread=self._thread,
            request_id=self._request_id,
            texts=[(name, mark_of_butler(name), text) for name, text in self._progress.texts.items()],
            mark=mark_of_butler(part.system_id),
        ).strip("\n")


async def send_message(visit: Visit, fields: Fields) -> Response:
    """Store what was written, once however often the form is sent, and show it."""
    thread, key = name_from(fields.get("thread"), "the conversation"), name_from(fields.get("key"), "the key")
    to = fields.get("to", "").strip()
    text = fields.get("text", "").replace("\r\n", "\n").strip()  # as browsers end the lines of forms
    if not text and not visit.files:
        raise InvalidInput("write something, or choose a file", field="text")
    files = await store_files(visit)
    message = ChatInput(thread, text, key_for(key, text, to, files), files=files, to=to or None)
    await visit.services.of(CHAT_SERVICE).send(visit.caller, speaker_of(visit), message)
    return _go_back(visit, fields, thread, to)


def _go_back(visit: Visit, fields: Fields, thread: str, to: str = "") -> Response:
    path = local_path(fields.get("back") or f"{WEB}/chat").removeprefix(WEB).partition("?")[0]
    asked = {"thread": thread} | ({"to": to} if to else {})
    return visit.go(f"{path}?{urlencode(asked)}#end")


async def stop_answer(visit: Visit, fields: Fields) -> Response:
    """End the answer, with what was written so far."""
    thread, _ = await visit.services.of(PAGE_CHATS).exchange(visit.caller, speaker_of(visit), _message_id(visit))
    await stop_turns(visit.services.views, visit.services.runtime, visit.caller, _message_id(visit))
    return _go_back(visit, fields, thread)


async def approve_here(visit: Visit, fields: Fields) -> Response:
    """Let the call be made that was shown."""
    return await _decide_call(visit, fields, "approve", "")


async def refuse_here(visit: Visit, fields: Fields) -> Response:
    """Refuse the call that was shown, or to answer."""
    return await _decide_call(visit, fields, "refuse", " ".join(fields.get("reason", "").split()))


async def answer_here(visit: Visit, fields: Fields) -> Response:
    """Answer a question: by one of its options, or in words."""
    return await _decide_call(visit, fields, "answer", fields.get("text", "").strip())


async def _decide_call(visit: Visit, fields: Fields, verb: Verb, text: str) -> Response:
    """Operators decide as on the page Approvals, others as the person who was asked."""
    thread, of_page = name_from(fields.get("thread"), "the conversation"), _exchange_on_page(visit, fields)
    approval_id, digest = visit.path_id("approval_id"), fields.get("digest", "")
    service, speaker = visit.services.of(APPROVAL_SERVICE), speaker_of(visit)
    if visit.caller.role in APPROVALS.roles:
        await service.decide(visit.caller, approval_id, verb, text, digest)
    else:
        person = Owner(speaker.channel, speaker.endpoint, speaker.sender)
        await service.decide_as_asked(person, approval_id, verb, text, digest)
    return _go_back(visit, fields, thread) if of_page is None else visit.go(f"/chat/{of_page}")


def _exchange_on_page(visit: Visit, fields: Fields) -> UUID | None:
    """The message whose exchange a script draws again; None: a form without script gets a whole page."""
    if visit.request.headers.get("hx-request") != "true":
        return None
    try:
        return UUID(fields.get("request_id", ""))
    except ValueError:
        raise InvalidInput("the message is missing; open the page again") from None


async def _show_undecided(visit: Visit, entered: Entered) -> Response:
    """What was entered to decide is not put into the box for a message."""
    of_page = _exchange_on_page(visit, entered.fields)
    if of_page is not None:
        return await _show_exchange(visit, of_page, Entered({}, entered.error))
    return await show_chat(visit, Entered({"thread": entered.value("thread")}, entered.error))


async def download_reply_file(visit: Visit) -> Response:
    """A file of a butler, to be saved and never opened here."""
    file, name = await visit.services.of(LOOKING_BLOBS).download_of_reply(
        visit.caller, _outbox_id(visit), visit.path_number("n")
    )
    return answer_file(name, file)


async def show_reply_picture(visit: Visit) -> Response:
    """A file of a butler whose bytes are those of a picture."""
    file, _ = await visit.services.of(LOOKING_BLOBS).download_of_reply(
        visit.caller, _outbox_id(visit), visit.path_number("n")
    )
    return await answer_picture(file)


def _message_id(visit: Visit) -> UUID:
    return visit.path_id("request_id")


def _outbox_id(visit: Visit) -> UUID:
    return visit.path_id("outbox_id")


_ONE: Final = "/chat/{request_id:uuid}"
_ASKED: Final = "/chat/approvals/{approval_id:uuid}"
_REPLY: Final = "/replies/{outbox_id:uuid}"
PAGES: Final = (
    WebPage("/chat", show_chat, CHAT, "Chat"),
    WebPage(_ONE, show_exchange, CHAT),
    WebPage(f"{_ONE}/stream", stream_answer, CHAT),
    WebForm(WEB_FILES.removeprefix(WEB), send_message, CHAT, if_refused=show_chat, with_files=True),
    WebForm(f"{_ONE}/stop", stop_answer, CHAT),
    WebForm(f"{_ASKED}/approve", approve_here, CHAT, if_refused=_show_undecided),
    WebForm(f"{_ASKED}/refuse", refuse_here, CHAT, if_refused=_show_undecided),
    WebForm(f"{_ASKED}/answer", answer_here, CHAT, if_refused=_show_undecided),
    WebPage(f"{_REPLY}/files/{{n:int}}", download_reply_file, OUTBOX),
    WebPage(f"{_REPLY}/pictures/{{n:int}}", show_reply_picture, OUTBOX),
)

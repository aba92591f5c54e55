"""An open number of WhatsApp: receives what Meta posts to the server, and sends. Called by the kernel.

`open_number` signs in; the webhook is set when receiving begins. A posted webhook holds several messages and reports,
and is settled as a whole. Next: `posted.py` for what arrives, `sending.py` for what leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.whatsapp.asked import PeopleAsked
from switchboard.connectors.whatsapp.events import read_message
from switchboard.connectors.whatsapp.graph import GraphClient, GraphRefusal
from switchboard.connectors.whatsapp.memory import NumberCursor, NumberMemory, names_in
from switchboard.connectors.whatsapp.moves import move_of
from switchboard.connectors.whatsapp.people import changed_identity
from switchboard.connectors.whatsapp.posted import split_webhook
from switchboard.connectors.whatsapp.refusals import (
    PAIR_LIMIT,
    WINDOW_IS_OVER,
    WRONG_MEDIA,
    describe_refusal,
    needs_person,
    words_for,
)
from switchboard.connectors.whatsapp.registering import NumberWebhook, checked_url, name_of_number
from switchboard.connectors.whatsapp.reopening import TEMPLATE_KEY, TemplateSender
from switchboard.connectors.whatsapp.sending import (
    DOCUMENT,
    destination_of,
    file_message,
    kind_of_file,
    outcome_of_failure,
    outcome_of_upload,
    text_message,
    typing_message,
)
from switchboard.connectors.whatsapp.settings import WhatsAppAccountSettings
from switchboard.connectors.whatsapp.statuses import MessageStatus, read_status
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import (
    Account,
    Batch,
    FileIn,
    Identity,
    Inbound,
    LateFailure,
    Later,
    Outcome,
    Part,
    PostedEvents,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Uncertain,
    Unreadable,
)
from switchboard.ports.raw import Raw, at, integer, word
from switchboard.tasks import cancel_tasks

_POSTED_S: Final = 20.0
"""Seconds for which the server is asked for what Meta posts."""
_LOOK_S: Final = 120.0
_PROVEN_S: Final = 15.0
"""For so long a report of a part is awaited that may have been sent. Reports come within seconds."""
_MOST_PROOFS: Final = 1000
_MOST_PARENTS: Final = 10_000
_WAITS_S: Final = 60.0
_SOON_S: Final = 2.0
_LATE_S: Final = 8.0
"""For so long a report is awaited of a part that may be too late."""
_GONE: Final = 33
"""The subcode of what does not exist."""


async def open_number(account: Account, clock: Callable[[], float] = time.time) -> WhatsAppSession:
    """Sign in; `clock`: seconds since 1970. Raises SignInRefused, OSError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs URLs, and those of files are secrets
    settings = account.settings
    if not isinstance(settings, WhatsAppAccountSettings):
        raise TypeError("these are not the settings of WhatsApp")
    token = account.secrets["token"].strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise SignInRefused("tokens of Meta are one word of letters and digits, such as EAAB…")
    checked_url(account)
    graph = GraphClient(settings, token)
    try:
        webhook = NumberWebhook(graph, account, settings.phone_number_id)
        name = name_of_number(await webhook.about_number())
        return WhatsAppSession(graph, settings, webhook, name, clock)
    except BaseException:
        await graph.close()
        raise


class WhatsAppSession(Session):
    """One number, signed in."""

    def __init__(
        self,
        graph: GraphClient,
        settings: WhatsAppAccountSettings,
        webhook: NumberWebhook,
        name: str,
        clock: Callable[[], float],
    ) -> None:
        self.identity = Identity(settings.phone_number_id, name)
        self._graph, self._settings, self._webhook = graph, settings, webhook
        self._clock = clock
        self._memory = NumberMemory(clock())
        template = settings.template
        self._templates = None if template is None else TemplateSender(graph, template, self._memory.asked)
        self._posted: PostedEvents | None = None
        self._after = self._settled = 0
        self._given = ""
        self._parents: set[str] = set()
        """Whose conversations have moved to the id for the parent of the business."""
        self._ill: str | None = None
        """Why nothing can be sent until a person has acted."""
        self._limited: dict[str, int] = {}
        """How often in a row the limit of a pair was met, by recipient."""
        self._proofs: dict[str, str] = {}
        """The ids of messages that Meta has reported, by the key of their part."""
        self._doubted: dict[str, str] = {}
        """The keys of parts that may be too late, with the ids of messages that are, as Meta has reported."""
        self._reported = asyncio.Event()

    @property
    def counters(self) -> Mapping[str, int]:
        """What was billed by month, and what came for other numbers."""
        return self._memory.counters()

    # Receiving --------------------------------------------------------------------------------------------------------

    async def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """Set the webhook, and yield what is posted. Raises SignInRefused, Busy, OSError."""
        place = NumberCursor.read(cursor)
        self._posted, self._after = posted, place.posted
        self._memory.restore(place)
        self._given, self._settled = self._memory.cursor(self._after), place.posted
        await self._webhook.register()
        yield Batch(())  # it is connected, also if nobody writes
        now, trouble = asyncio.get_running_loop().time, None
        looked = now()
        while True:
            webhooks = await self._next_posted(posted)
            if now() - looked >= _LOOK_S:
                looked, trouble = now(), await self._webhook.trouble()
            events, late = list[Inbound | Unreadable](), list[LateFailure]()
            for number, raw in webhooks:
                self._after = number
                self._take_webhook(raw, events, late)
            why = "; ".join(filter(None, (trouble, self._ill))) or None
            yield Batch(tuple(events), self._moved_cursor(), why, tuple(late))

    async def _next_posted(self, posted: PostedEvents) -> Sequence[tuple[int, bytes]]:
        """What is posted; nothing as soon as a template waits for the cursor."""
        if self._templates is None:
            return await posted.posted(self._after, _POSTED_S)
        asking = asyncio.ensure_future(posted.posted(self._after, _POSTED_S))
        noting = asyncio.ensure_future(self._templates.noted.wait())
        try:
            await asyncio.wait((asking, noting), return_when=asyncio.FIRST_COMPLETED)
            self._templates.noted.clear()
            return asking.result() if asking.done() else ()
        finally:
            await cancel_tasks(asking, noting)

    def _moved_cursor(self) -> str | None:
        """The cursor, if it is another than before."""
        before, self._given = self._given, self._memory.cursor(self._after)
        return self._given if self._given != before else None

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """A message from quarantine."""
        found = split_webhook(raw, self._settings.phone_number_id)
        if isinstance(found, Unreadable):
            return found
        if len(found.messages) != 1:
            return Unreadable("unreadable", raw, f"it has {len(found.messages)} messages of this number")
        return self._read_message(found.messages[0])

    async def confirm(self, cursor: str) -> None:
        """The webhooks are settled."""
        place = NumberCursor.read(cursor)
        if self._templates is not None:
            self._templates.confirm(PeopleAsked.read(place.asked_by_hour))
        if place.posted > self._settled and self._posted is not None:
            await self._posted.settle_posted(place.posted)
            self._settled = place.posted

    def _take_webhook(self, raw: bytes, events: list[Inbound | Unreadable], late: list[LateFailure]) -> None:
        found = split_webhook(raw, self._settings.phone_number_id)
        if isinstance(found, Unreadable):
            events.append(found)
            return
        self._memory.others += found.others
        events += map(self._read_message, found.messages)
        for value in found.statuses:
            if (status := read_status(value, datetime.now(UTC))) is not None:
                late += self._take_status(status)

    def _read_message(self, value: JsonObject) -> Inbound | Unreadable:
        event = read_message(value, datetime.now(UTC), self._memory.phones.get, self._memory.moves)
        if isinstance(event, Inbound):
            event = self._moved_once(event)
            about = event.envelope.event
            sent = (about.sent_at or about.observed_at).timestamp()
            self._memory.note_written(about.reply_address or {}, event.envelope.sender.identity, sent)
            if (changed := changed_identity(value)) is not None:
                self._memory.note_move(move_of(changed, int(sent)))
        return event

    def _moved_once(self, event: Inbound) -> Inbound:
        """Messages say of each person with an id for the parent what the other one is: that moves them once."""
        identity = event.envelope.sender.identity
        if event.moved is None or event.envelope.event.kind == "membership":
            return event
        if identity in self._parents:
            return replace(event, moved=None)
        if len(self._parents) >= _MOST_PARENTS:
            self._parents.clear()
        self._parents.add(identity)
        return event

    def _take_status(self, status: MessageStatus) -> list[LateFailure]:
        """The failure to report. Meta repeats reports, so everything here is harmless if done again."""
        key, failure = status.key or "", status.failure
        if status.is_delivered and status.is_billed:
            self._memory.note_billed(status.wamid, status.at)
        if key.startswith(TEMPLATE_KEY):
            return []
        if failure is None and key:  # a failure may be that of an earlier try
            self._note_proof(key, status.wamid)
        if status.is_too_late and key in self._doubted:  # `send` waits for it, and asks the person to write
            self._doubted[key] = status.wamid
            self._note_report()
            return []
        return [] if failure is None else [failure]

    def _note_proof(self, key: str, wamid: str) -> None:
        self._proofs[key] = wamid
        if len(self._proofs) > _MOST_PROOFS:
            del self._proofs[next(iter(self._proofs))]
        self._note_report()

    def _note_report(self) -> None:
        self._reported.set()
        self._reported = asyncio.Event()

    # Sending ----------------------------------------------------------------------------------------------------------

    async def send(self, part: Part, key: str) -> Outcome:
        """Send a text or a file, unless the person has not written for a day."""
        part = replace(part, address=self._memory.address_now(part.address))
        to = destination_of(part.address)
        if to is None:
            return Refused("the message that is answered names nobody")
        self._proofs.pop(key, None)  # of an earlier try
        names, answered = names_in(part.address), float(int(integer(part.address.get("at")) or 0))
        if self._memory.is_window_closed(names, answered, self._clock()):
            return await self._answer_too_late(part, to, names)
        if self._templates is not None and self._memory.is_late(names, answered, self._clock()):
            return await self._send_if_not_late(part, key, names)
        return await self._send_now(part, key, names)

    async def _send_now(self, part: Part, key: str, names: Sequence[str]) -> Outcome:
        try:
            outcome = await self._send_text_or_file(part, key)
        except GraphRefusal as error:
            return self._take_refusal(error, part, names)
        except (NotWritten, NotAnswered) as error:
            return outcome_of_failure(error, part, 0)
        if isinstance(outcome, Sent):
            self._ill = None
            self._limited.pop(names[0], None)
        return outcome

    async def _send_if_not_late(self, part: Part, key: str, names: Sequence[str]) -> Outcome:
        """Only Meta knows whether the person has written since; it takes the part, and reports soon that it is late."""
        self._doubted[key] = ""
        try:
            outcome = await self._send_now(part, key, names)
            if not isinstance(outcome, Sent) or not await self._is_reported_late(key, outcome.platform_message_id):
                return outcome
        finally:
            del self._doubted[key]
        self._memory.note_closed(names)
        return Later(_SOON_S, words_for(WINDOW_IS_OVER, ""))

    async def _is_reported_late(self, key: str, wamid: str) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LATE_S):
                while self._doubted[key] != wamid and key not in self._proofs:
                    await self._reported.wait()
        return self._doubted[key] == wamid

    async def find(self, part: Part, key: str) -> Sent | None:  # noqa: ARG002  Meta cannot be asked
        """Wait whether Meta reports the part: a report proves that it was sent, and none proves nothing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROVEN_S):
                while key not in self._proofs:
                    await self._reported.wait()
        return Sent(self._proofs[key]) if key in self._proofs else None

    async def typing(self, address: JsonObject) -> None:
        """Show the indicator for 25 seconds, and that the message was read; failures do not matter."""
        wamid = word(address.get("message"))
        if wamid is not None:
            with suppress(GraphRefusal, OSError):
                await self._graph.post_to_number("messages", typing_message(wamid))

    async def _send_text_or_file(self, part: Part, key: str) -> Outcome:
        if not part.files:
            return await self._send_message(text_message(part, key))
        [file] = part.files
        try:
            media_id = await self._graph.upload(file, part.patience_s)
        except (GraphRefusal, NotWritten, NotAnswered) as error:
            return outcome_of_upload(error, part)
        kind = kind_of_file(file)
        try:
            return await self._send_message(file_message(part, key, kind, media_id))
        except GraphRefusal as error:
            if kind == DOCUMENT or error.code not in WRONG_MEDIA:
                raise
        return await self._send_message(file_message(part, key, DOCUMENT, media_id))

    async def _send_message(self, body: JsonMapping) -> Outcome:
        found = word(at(await self._graph.post_to_number("messages", body), "messages", 0, "id"))
        return Sent(found) if found is not None else Uncertain("Meta names no message")

    def _take_refusal(self, error: GraphRefusal, part: Part, names: Sequence[str]) -> Outcome:
        if error.code == WINDOW_IS_OVER:
            self._memory.note_closed(names)
            return Later(_SOON_S, describe_refusal(error))
        tried = self._limited.get(names[0], 0)
        outcome = outcome_of_failure(error, part, tried)
        if error.code == PAIR_LIMIT:
            self._limited[names[0]] = tried + 1
        if needs_person(error) and isinstance(outcome, Later):
            self._ill = outcome.reason
        return outcome

    async def _answer_too_late(self, part: Part, to: JsonObject, names: Sequence[str]) -> Outcome:
        """With a template the reply waits until the person writes; without one it has failed."""
        told = words_for(WINDOW_IS_OVER, "")
        if self._templates is None:
            return Refused(f"{told}; the setting reopen_template names one that asks people to write again", "blocked")
        try:
            is_asked = await self._templates.ask(names, to, self._clock())
        except GraphRefusal as error:
            outcome = self._take_refusal(error, part, names)
            why = f"the template {self._settings.reopen_template} is refused: {describe_refusal(error)}"
            return outcome if isinstance(outcome, Later) else Refused(why, "blocked")
        return Later(_WAITS_S if is_asked else _SOON_S, f"it waits until the person writes: {told}")

    # Files ------------------------------------------------------------------------------------------------------------

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises OSError; ValueError if Meta will never give it."""
        for is_last in (False, True):
            try:
                async with self._graph.download(await self._url_of(file)) as response:
                    _refuse_page(response.headers.get("content-type", ""), file)
                    async for piece in response.aiter_bytes():
                        yield piece
            except GraphRefusal as error:
                if error.status != 404 or is_last:
                    raise _why_not_fetched(error) from None
            else:
                return

    async def _url_of(self, file: FileIn) -> str:
        about: Raw = await self._graph.read(word(file.handle.get("media")) or "0")
        url = about.get("url")
        if not isinstance(url, str):
            raise NotAnswered("Meta gave no URL of the file")
        return url

    async def close(self) -> None:
        """Close all connections."""
        await self._graph.close()


def _why_not_fetched(error: GraphRefusal) -> Exception:
    if error.status in (404, 410) or error.subcode == _GONE:
        return ValueError(f"Meta no longer has the file: {error.told}")
    return OSError(error.told)


def _refuse_page(media_type: str, file: FileIn) -> None:
    if media_type.startswith("text/html") and file.handle.get("kind") != DOCUMENT:
        raise ValueError("Meta gave a page instead of the file")

"""An open Telegram bot: receives by polling or webhook, and sends. Called by the kernel; `open_session` signs in.

Polling begins without an offset, since update ids say nothing about their order over time. The offset of the next poll
confirms the updates that the switchboard has stored. Next: `updates.py` for what arrives, `sending.py` for what leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.telegram.api import BotApiClient, BotApiError
from switchboard.connectors.telegram.sending import (
    DOCUMENT,
    draft_outcome,
    is_done_already,
    is_not_of_its_kind,
    kind_of,
    moved_to,
    new_buttons,
    outcome_of,
    toast_of,
    topic_is_gone,
    where,
    words,
)
from switchboard.connectors.telegram.settings import MAX_FILE_IN, TelegramAccountSettings
from switchboard.connectors.telegram.updates import KINDS, Me, read
from switchboard.connectors.telegram.webhook import BotWebhook
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import (
    PRESS,
    Account,
    Batch,
    Busy,
    FileIn,
    Identity,
    Inbound,
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
from switchboard.ports.raw import at, child, integer, number, word
from switchboard.tasks import wait_at_most

_TOKEN: Final = re.compile(r"\d{1,20}:[\w-]{1,235}", re.ASCII)
_AGAIN_S: Final = (0.2, 5.0)
"""Seconds to the next look for more while something is not confirmed, since a poll would return at once.

Soon at first, and a third time within 1.5 s, for the other photos of an album or the rest of a text.
"""
_BUSY_S: Final = 2.0
_POSTED_S: Final = 20.0
"""Seconds for which the server is asked for what Telegram posts."""
_LOOK_AT_WEBHOOK_S: Final = 120.0


async def open_session(account: Account) -> TelegramSession:
    """Sign in. Raises SignInRefused, OSError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs URLs, which contain the token
    settings = account.settings
    if not isinstance(settings, TelegramAccountSettings):
        raise TypeError("these are not the settings of Telegram")
    token = account.secrets["token"].strip()
    if not _TOKEN.fullmatch(token):  # it becomes part of URLs
        raise SignInRefused("tokens of Telegram look like 123456:ABC-DEF; get one from @BotFather with /token")
    api = BotApiClient(settings.api_url, token)
    try:
        about = child(await _call_api(api, "getMe", {}))
        me = Me(int(integer(about.get("id")) or 0), word(about.get("username")))
        return TelegramSession(api, settings, me, BotWebhook(api, account))
    except BaseException:
        await api.close()
        raise


class _Cursor(Struct, frozen=True):
    """`offset`: the first unconfirmed update; `since`: anything sent earlier is history.

    `posted`: the last settled event posted to the server, if any.
    """

    offset: int = 0
    since: int = 0
    posted: int = 0

    @classmethod
    def read(cls, text: str | None) -> _Cursor:
        """Parse a cursor. An invalid one means the beginning: updates come again, and are recognised."""
        offset, since, posted = (*(text or "").split("@"), "", "", "")[:3]
        return cls(*(int(integer(one) or 0) for one in (offset, since, posted)))

    def __str__(self) -> str:
        return f"{self.offset}@{self.since}" + (f"@{self.posted}" if self.posted else "")


class TelegramSession(Session):
    """One bot, signed in."""

    def __init__(self, api: BotApiClient, settings: TelegramAccountSettings, me: Me, webhook: BotWebhook) -> None:
        self.identity = Identity(me.endpoint, f"@{me.username}" if me.username else "")
        self._api, self._settings, self._me, self._webhook = api, settings, me, webhook
        self._posted: PostedEvents | None = None
        self._after = 0
        self._offset = 0
        self._given: list[int] = []
        self._confirmed = asyncio.Event()

    async def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """Yield updates posted to the server; then, depending on the webhook, more of these or polled ones."""
        self._posted, since = posted, _Cursor.read(cursor).since
        if self._settings.webhook:
            await self._webhook.set()
        async for batch in self._posted_batches(since, posted):
            yield batch
        async for batch in self.receive(cursor):
            yield batch
            # Updates posted while the webhook was being removed may be stored after the first poll.
            async for late in self._posted_batches(since, posted):
                yield late

    async def _posted_batches(self, since: int, posted: PostedEvents) -> AsyncIterator[Batch]:
        """Yield posted updates: forever if Telegram posts, otherwise until none are left."""
        wait_s, looked, trouble = _POSTED_S if self._settings.webhook else 0.0, -math.inf, None
        while (events := await posted.posted(self._after, wait_s)) or wait_s:
            if wait_s and time.monotonic() - looked >= _LOOK_AT_WEBHOOK_S:
                looked, trouble = time.monotonic(), await self._webhook.trouble()
            self._after = events[-1][0] if events else self._after
            read_them = [await self._read(raw, since) for _, raw in events]
            yield Batch(tuple(read_them), self._cursor(since) if events else None, trouble)

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """Yield updates as they arrive; an unconfirmed update does not delay later ones."""
        since = _Cursor.read(cursor).since
        self._offset, self._given = 0, []
        again, longest = _AGAIN_S
        wait_s = 0  # the first time, to know at once whether Telegram answers
        while True:
            updates = await self._poll(0 if self._given else wait_s)
            wait_s = self._settings.poll_s
            new = [one for one in updates if _id(one) not in self._given]
            self._given += [found for one in new if (found := _id(one)) is not None]
            self._confirmed.clear()
            yield self._batch(new, since)
            again = _AGAIN_S[0] if new else min(2 * again, longest)
            if self._given:
                await wait_at_most(again, self._confirmed)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An update from quarantine."""
        return await self._read(raw, 0)

    async def _read(self, raw: bytes, since: int) -> Inbound | Unreadable:
        try:
            update = json.loads(raw)
        except (ValueError, RecursionError) as error:
            name = f"unreadable:{hashlib.sha256(raw).hexdigest()[:32]}"
            return Unreadable(name, raw, f"it is not JSON: {error}")
        return read(update, self._me, datetime.now(UTC), since=since)

    async def confirm(self, cursor: str) -> None:
        """Confirm with the next poll. Nothing before the cursor is awaited any longer."""
        place = _Cursor.read(cursor)
        if place.posted and self._posted is not None:
            await self._posted.settle_posted(place.posted)
        self._offset = place.offset
        if self._offset - 1 in self._given:
            del self._given[: self._given.index(self._offset - 1) + 1]
        self._confirmed.set()

    async def send(self, part: Part, key: str) -> Outcome:  # noqa: ARG002  Telegram has no such keys
        """Send a text or a file; follows a group to its supergroup, and leaves a deleted topic."""
        if "chat" not in part.address:
            return Refused("the message that is answered names no chat")
        press = word(part.address.get(PRESS))
        return await self._send_message(part) if press is None else await self._answer_press(part, press)

    async def _answer_press(self, part: Part, press: str) -> Outcome:
        """Answer whoever pressed a button, and show its message's new buttons; harmless if done again.

        What came too late for that is a message.
        """
        try:
            heard = await self._try_call("answerCallbackQuery", toast_of(part, press))
            shown = part.choices is not None and await self._try_call("editMessageReplyMarkup", new_buttons(part))
        except NotAnswered as error:
            return outcome_of(NotWritten(str(error)))
        except (BotApiError, NotWritten) as error:
            return outcome_of(error)
        return Sent(str(part.address.get("message"))) if heard or shown else await self._send_message(part)

    async def _try_call(self, method: str, params: JsonObject) -> bool:
        """Whether Telegram has done it, now or before; False if it will not. Raises BotApiError, OSError."""
        try:
            await self._api.call(method, params)
        except BotApiError as error:
            if error.code != 400:
                raise
            return is_done_already(error)
        return True

    async def _send_message(self, part: Part) -> Outcome:
        params = where(part, self._settings.quote) | words(part)
        for _ in range(3):
            try:
                return await self._send_text_or_files(part, params)
            except BotApiError as error:
                if (new := moved_to(error)) is not None:
                    params = {**params, "chat_id": new}
                    params.pop("reply_parameters", None)  # messages of the supergroup are numbered differently
                elif topic_is_gone(error) and "message_thread_id" in params and part.reply_to is None:
                    del params["message_thread_id"]
                else:
                    return outcome_of(error)
            except (NotWritten, NotAnswered) as error:
                return outcome_of(error)
        return outcome_of(BotApiError(400, "the group moves from one supergroup to the next"))

    async def draft(self, part: Part, number: int) -> Later | Refused | None:
        """Show a draft, which Telegram forgets after some seconds."""
        if not self._settings.drafts:
            return Refused("drafts are switched off")
        params = where(part, "never") | words(part) | {"draft_id": number}
        params.pop("link_preview_options", None)
        try:
            await self._api.call("sendMessageDraft", params)
        except BotApiError as error:
            return draft_outcome(error)
        return None

    async def typing(self, address: JsonObject) -> None:
        """Show the indicator for five seconds; failures do not matter."""
        params = {"chat_id": address.get("chat"), "action": "typing"}
        if "topic" in address:
            params["message_thread_id"] = address["topic"]
        with suppress(BotApiError, OSError):
            await self._api.call("sendChatAction", params)

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a file of up to 20 MB. Raises OSError; ValueError if Telegram will never deliver it."""
        if (file.handle.get("size") or 0) > MAX_FILE_IN:
            raise ValueError("bots can fetch files of up to 20 MB")
        try:
            about = child(await self._file(file))
            async with self._api.download(word(about.get("file_path")) or "") as pieces:
                async for piece in pieces:
                    yield piece
        except BotApiError as error:
            if error.code in (400, 404):
                raise ValueError(str(error)) from None
            raise OSError(str(error)) from None

    async def _file(self, file: FileIn) -> object:
        """The location of a file, once Telegram is not busy. Raises BotApiError, OSError."""
        while True:
            try:
                return await self._api.call("getFile", {"file_id": file.handle.get("file_id")})
            except BotApiError as error:
                if error.code != 429:
                    raise
                await asyncio.sleep(_patience(error))

    async def latest(self) -> str | None:
        """The present cursor. Waiting updates stay and will be history: Telegram can only deliver or drop them."""
        return str(_Cursor(0, int(time.time())))

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def _send_text_or_files(self, part: Part, params: JsonObject) -> Outcome:
        if not part.files:
            return _sent(await self._api.call("sendMessage", params))
        [file] = part.files
        if (kind := kind_of(file)) != DOCUMENT:
            try:
                return _sent(await self._api.upload(f"send{kind.title()}", params, kind, file))
            except BotApiError as error:
                if not is_not_of_its_kind(error):
                    raise
        return _sent(await self._api.upload("sendDocument", params, DOCUMENT, file))

    async def _poll(self, timeout: int) -> list[object]:
        params: JsonObject = {"timeout": timeout, "allowed_updates": list(KINDS)}
        if self._offset:
            params["offset"] = self._offset
        try:
            found = await _call_api(self._api, "getUpdates", params, wait_s=timeout)
        except Busy as error:
            if await self._webhook.remove_webhook():
                raise OSError("Telegram posted to us until now") from None  # posted updates come first
            raise Busy(await self._webhook.foreign() or error.message) from None
        if not isinstance(found, list) or (found and all(_id(one) is None for one in found)):
            raise NotAnswered("getUpdates gave no list of updates")
        return found

    def _batch(self, new: list[object], since: int) -> Batch:
        now = datetime.now(UTC)
        events = tuple(read(one, self._me, now, since=since) for one in new)
        return Batch(events, self._cursor(since) if any(_id(one) is not None for one in new) else None)

    def _cursor(self, since: int) -> str:
        """After all that was given so far, whichever way it came: of two cursors only the later one is confirmed."""
        return str(_Cursor(self._given[-1] + 1 if self._given else self._offset, since, self._after))


async def _call_api(api: BotApiClient, method: str, params: JsonObject, *, wait_s: float = 0.0) -> object:
    """A call not tied to a message. Raises SignInRefused, Busy, OSError."""
    try:
        return await api.call(method, params, wait_s=wait_s)
    except BotApiError as error:
        match error.code:
            case 401 | 404:
                raise SignInRefused(
                    f"Telegram does not accept the token ({error}); get one from @BotFather with /token"
                ) from None
            case 409:
                raise Busy(f"another program polls for this bot: {error.description}") from None
            case 429:
                await asyncio.sleep(_patience(error))
                return await _call_api(api, method, params, wait_s=wait_s)
        raise OSError(str(error)) from None


def _patience(error: BotApiError) -> float:
    """The seconds that Telegram asks us to wait."""
    seconds = error.parameters.get("retry_after")
    return float(seconds) if isinstance(seconds, int | float) else _BUSY_S


def _sent(message: object) -> Outcome:
    found = number(at(message, "message_id"))
    return Sent(found) if found is not None else Uncertain("Telegram names no message")


def _id(update: object) -> int | None:
    found = at(update, "update_id")
    return found if number(found) is not None and isinstance(found, int) else None

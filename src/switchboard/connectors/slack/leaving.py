"""What leaves: texts, files, answers to presses, and which of them Slack has. Called by `channel.py`.

Next: `sending.py` and `presses.py` for the arguments, `refusals.py` for outcomes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.connectors.slack.events import SlackBot, time_of
from switchboard.connectors.slack.files import begin_uploads, shared_file
from switchboard.connectors.slack.missed import find_message
from switchboard.connectors.slack.presses import updated_message, whisper_of
from switchboard.connectors.slack.refusals import is_passing, is_thread_gone, outcome_of
from switchboard.connectors.slack.sending import has_key, message_of_part, thread_of_part
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import PRESS, Outcome, Part, Refused, Sent, Uncertain
from switchboard.ports.raw import Raw, child, word

_LOOK_UP: Final = 200
_LOOK_UP_PAGES: Final = 5
_FIND_S: Final = 2 * 86_400.0
"""A part is not older when it is looked up."""
_THINKING: Final = "is thinking…"


class SlackReplies:
    """What leaves from one app. `sent` is called with the address of everything that was sent."""

    def __init__(self, api: SlackApi, me: SlackBot, sent: Callable[[JsonMapping], None]) -> None:
        self._api, self._me, self._sent = api, me, sent

    async def send(self, part: Part, key: str) -> Outcome:
        """Send a text, or files; leaves a thread whose first message is gone. A press is answered where it happened."""
        if not word(part.address.get("channel")):
            return Refused("the message that is answered names no channel")
        try:
            answered = await self._answer_press(part) if PRESS in part.address else None
            return answered or await self._send(part, key)
        except (SlackRefusal, NotWritten, NotAnswered) as error:
            return outcome_of(error)

    async def _send(self, part: Part, key: str) -> Outcome:
        try:
            return await self._send_message(part, key, in_thread=True)
        except SlackRefusal as error:
            if not is_thread_gone(error) or part.reply_to is not None:
                raise
        return await self._send_message(part, key, in_thread=False)

    async def _send_message(self, part: Part, key: str, *, in_thread: bool) -> Outcome:
        if part.files:
            return await self._send_files(part, in_thread=in_thread)
        answer = await self._api.call("chat.postMessage", message_of_part(part, key, in_thread=in_thread))
        self._sent(part.address)
        ts = word(answer.get("ts"))
        return Sent(ts) if ts else Uncertain("Slack names no message")

    async def _answer_press(self, part: Part) -> Outcome | None:
        """Tell whoever pressed a button, and give its message other buttons. None: it must be said in a message."""
        try:
            told = await self._try_call("chat.postEphemeral", whisper_of(part)) if part.text else False
            shown = part.choices is not None and await self._show_buttons(part)
        except NotAnswered as error:  # all of it can be done again
            raise NotWritten(str(error)) from error
        return Sent(str(part.address.get("message"))) if told or shown else None

    async def _show_buttons(self, part: Part) -> bool:
        channel, ts = word(part.address.get("channel")) or "", word(part.address.get("message")) or ""
        message = await find_message(self._api.read, channel, ts, word(part.address.get("thread")))
        return bool(message) and await self._try_call("chat.update", updated_message(message, part))

    async def _try_call(self, method: str, arguments: JsonMapping) -> bool:
        """False if Slack will not do it. Raises SlackRefusal if it may do so later, NotWritten, NotAnswered."""
        try:
            await self._api.call(method, arguments)
        except SlackRefusal as error:
            if isinstance(outcome_of(error), Refused):
                return False
            raise
        return True

    async def _send_files(self, part: Part, *, in_thread: bool) -> Outcome:
        if not all(file.size_bytes for file in part.files):
            return Refused("Slack takes no empty files")
        begun = await begin_uploads(self._api, part.files)
        if not isinstance(begun, list):
            return begun
        where: JsonMapping = {"channel_id": part.address["channel"], **thread_of_part(part, in_thread)}
        await self._api.call("files.completeUploadExternal", {"files": begun, **where})
        self._sent(part.address)
        return Sent(str(begun[0]["id"]))

    async def find(self, part: Part, key: str) -> Sent | None:
        """A part of ours where it was sent: a text by its key, files by names and sizes. Raises OSError.

        None also if Slack does not show what is there.
        """
        thread = word(part.address.get("thread"))
        try:
            return await self._find_sent(part, key, thread)
        except SlackRefusal as error:
            if is_passing(error):
                raise OSError(str(error)) from None
            if thread is None or not is_thread_gone(error):
                return None
        beside = {name: one for name, one in part.address.items() if name != "thread"}
        return await self.find(replace(part, address=beside), key)

    async def _find_sent(self, part: Part, key: str, thread: str | None) -> Sent | None:
        channel, answered = word(part.address.get("channel")), time_of(part.address.get("message"))
        if channel is None:
            return None
        since = max(answered.timestamp() if answered else 0.0, time.time() - _FIND_S)
        method = "conversations.replies" if thread else "conversations.history"
        asked = {"channel": channel, "oldest": f"{since:.6f}", "limit": str(_LOOK_UP), "include_all_metadata": "true"}
        asked |= {"ts": thread} if thread else {}
        async for page in self._api.pages(method, asked, "messages", _LOOK_UP_PAGES):
            for one in map(child, page):
                if found := self._id_of_part(one, part, key):
                    return Sent(found)
        return None

    def _id_of_part(self, message: Raw, part: Part, key: str) -> str | None:
        """The id of a part, if it is this message."""
        if not part.files:
            return word(message.get("ts")) if has_key(message, key, self._me.bot) else None
        own = message.get("bot_id") == self._me.bot or message.get("user") == self._me.user
        return shared_file(message, part.files) if own else None

    async def typing(self, address: JsonObject) -> None:
        """Show in a thread that an answer is being written; failures do not matter."""
        channel, thread = word(address.get("channel")), word(address.get("thread"))
        if channel and thread:
            about = {"channel_id": channel, "thread_ts": thread, "status": _THINKING}
            with suppress(SlackRefusal, OSError):
                await self._api.call("assistant.threads.setStatus", about)

"""The gateway's use cases: for whom a connection speaks, messages, their outcomes, the history, and stopping turns.

`server/ws/` calls `ChatService` with the caller's `Principal`; streams of answers come from `stream.py`. A conversation
is (channel, endpoint, session); on the channel `gateway` the endpoint is the caller. Next: `intake.py`, which accepts
the message like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.app.access import CONNECTOR, Access, Action, Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.app.messages.intake import Accepted, Intake
from switchboard.app.messages.views import MessageReplies, Views
from switchboard.app.runtime import Runtime
from switchboard.core.envelope.identity import conversation
from switchboard.domain.envelope import SCHEMA_VERSION, Attachment, Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.errors import Forbidden, InvalidInput, NotFound
from switchboard.domain.ledger import ReplyFile
from switchboard.domain.message import Conversation
from switchboard.domain.routing import MODEL_ENGINES
from switchboard.domain.shown import ReplyView
from switchboard.journey.stopping import announce
from switchboard.store.database import Database
from switchboard.store.messages import chats
from switchboard.store.messages.chats import EndedTurn, WrittenMessage
from switchboard.store.messages.dead_letters import dead_letters_of
from switchboard.store.work.stopping import stop_conversation, stop_message

CHAT: Final = Action("chat", CONNECTOR)

CHANNEL: Final = "gateway"
PAGE_BYTES: Final = 786_432
"""Most bytes of a page of history."""
_CUT: Final = 1000
"""Characters that are left of a text of a page that would be too large with one message."""
_FAILURES: Final = frozenset({"target_unavailable", "retry_exhausted", "outcome_unknown"})
_WHY: Final[Mapping[str, str]] = {
    "held": "the message is kept until an operator approves its sender or releases it",
    "cancelled": "the message was cancelled",
}


@dataclass(frozen=True, slots=True)
class Speaker:
    """For whom a connection speaks."""

    channel: str
    endpoint: str
    sender: str


class ChatInput(Struct, frozen=True):
    """A message in a session. `model`: the model that the butler asks, one of its own.

    `files` are stored already; `to`: the butler that gets it, whatever the rules say.
    """

    session: str
    text: str
    key: str
    model: str | None = None
    files: Sequence[Attachment] = ()
    to: str | None = None


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A reply is complete: the text streamed so far is its text."""

    system_id: str
    outbox_id: UUID
    files: Sequence[ReplyFile]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The models' usage for an answer, all butlers together."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer. `content`: the last reply of each butler, with a blank line between them; null: too long for a frame.

    `model` is the last one that was asked, "" if none was; `stop_reason` that of the last turn.
    """

    request_id: UUID
    state: str
    content: str | None
    model: str
    usage: TokenUsage
    stop_reason: str
    replies: Sequence[WholeReply]


class NoAnswer(Struct, frozen=True):
    """Nobody could answer. `code`: `LLM_ERROR` if a model is to blame, otherwise the category of the dead letter."""

    state: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ChatEntry(WrittenMessage):
    """A message and its replies. `key`: the key it was sent with. `cut`: texts are truncated, as it is too large."""

    replies: Sequence[ReplyView]
    cut: bool = False


class ChatService:
    """Talks for a caller."""

    def __init__(self, runtime: Runtime, access: Access, intake: Intake, views: Views) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._access = access
        self._intake = intake
        self._views = views

    async def speaker(self, caller: Principal, wanted: Speaker | None) -> Speaker:
        """For whom the caller may speak: itself; an operator also for others. Raises Forbidden, InvalidInput."""
        await self._access.check(caller, CHAT)
        if wanted is None:
            name = caller.name if caller.role == "operator" else caller.endpoint or ""
            await self._access.check_endpoint(caller, CHAT, CHANNEL, name)
            return Speaker(CHANNEL, name, name)
        if caller.role != "operator":
            await self._access.record_refusal(caller, CHAT, {"channel": wanted.channel, "endpoint": wanted.endpoint})
            raise Forbidden("only an operator's connection speaks for others: leave it out", field="speaker")
        channel = self._runtime.channels.known(wanted.channel, "speaker.channel")
        if channel.replies != "interface":
            raise InvalidInput(
                f"replies to {channel.name} leave by its connector; a chat can be api, cli or gateway",
                field="speaker.channel",
            )
        return wanted

    async def send(self, caller: Principal, speaker: Speaker, message: ChatInput) -> Accepted:
        """Store a message; a repeated key means the same message. Raises the errors of `Intake.message`."""
        envelope = chat_envelope(speaker, message, datetime.now(UTC))
        return await self._intake.message(caller, msgspec.json.encode(envelope))

    async def outcome(self, request_id: UUID, replies: MessageReplies) -> Outcome | NoAnswer:
        """The outcome of a settled message. Raises Unavailable."""
        ends = await chats.ends(self._database, request_id)
        if replies.state not in {"answered", "declined"}:
            return await self._failure(request_id, replies.state, ends)
        usage = [*chain.from_iterable(end.usage for end in ends)]
        texts = {reply.system_id: reply.text for reply in replies.replies}
        return Outcome(
            request_id,
            replies.state,
            "\n\n".join(texts.values()),
            usage[-1].model if usage else "",
            TokenUsage(sum(one.input_tokens for one in usage), sum(one.output_tokens for one in usage)),
            next((end.stop_reason for end in reversed(ends) if end.stop_reason), "end"),
            [WholeReply(one.system_id, one.outbox_id, one.files) for one in replies.replies],
        )

    async def _failure(self, request_id: UUID, state: str, ends: Iterable[EndedTurn]) -> NoAnswer:
        dead = await dead_letters_of(self._database, request_id)
        if not dead:
            return NoAnswer(state, state, _WHY.get(state, f"there is no answer: the message is {state}"))
        last = dead[-1]
        blamed = last.category in _FAILURES and any(end.engine in MODEL_ENGINES for end in ends)
        return NoAnswer(state, "LLM_ERROR" if blamed else last.category, last.reason)

    async def history(
        self, speaker: Speaker, session: str, *, limit: int, cursor: str | None
    ) -> tuple[list[ChatEntry], str | None]:
        """A page of a session, newest first, and the cursor of the next. Raises InvalidInput, Unavailable."""
        return await read_entries(self._database, self._conversation(speaker, session), limit=limit, cursor=cursor)

    async def abort(self, caller: Principal, speaker: Speaker, session: str, request_id: UUID | None) -> int:
        """Stop the turns of a session, or of one message in it; returns how many. Raises NotFound, Unavailable."""
        where = self._conversation(speaker, session)
        if request_id is not None:
            if (await self._views.own(caller, request_id)).conversation != where:
                raise NotFound(f"there is no message {request_id} in this session", field="request_id")
            stopped = await stop_message(self._database, request_id)
        else:
            stopped = await stop_conversation(self._database, where)
        await announce(self._database, self._runtime.notifier, stopped)
        return len(stopped)

    def _conversation(self, speaker: Speaker, session: str) -> Conversation:
        envelope = chat_envelope(speaker, ChatInput(session, "", "-"), datetime.now(UTC))
        return conversation(envelope, self._runtime.channels[speaker.channel])


def chat_envelope(speaker: Speaker, message: ChatInput, now: datetime) -> Envelope:
    return Envelope(
        schema_version=SCHEMA_VERSION,
        source=Source(channel=speaker.channel, provider="internal", endpoint_identity=speaker.endpoint),
        event=Event(external_event_id=message.key, external_thread_id=message.session, observed_at=now),
        sender=Sender(identity=speaker.sender),
        payload=Payload(normalized_text=message.text, attachments=tuple(message.files)),
        control=Control(
            idempotency_key=message.key, policy_tier="interactive", model=message.model, pinned_target=message.to
        ),
    )


async def read_entries(
    database: Database, conversation: Conversation, *, limit: int, cursor: str | None
) -> tuple[list[ChatEntry], str | None]:
    """A page of a conversation, newest first, and the cursor of the next. Raises InvalidInput."""
    written = await chats.page(database, conversation, limit, uuid_cursor(cursor))
    replies = await chats.replies(database, [message.request_id for message in written])
    known = ((m, replies.get(m.request_id, ())) for m in written)
    page = within(PAGE_BYTES, [ChatEntry(m.request_id, m.key, m.text, m.received_at, m.state, own) for m, own in known])
    more = len(page) < len(written) or len(written) == limit
    return page, str(page[-1].request_id) if page and more else None


def within(most: int, page: Sequence[ChatEntry]) -> list[ChatEntry]:
    """As many of the first as fit into this many bytes; at least one, with truncated texts if it alone exceeds them."""
    kept: list[ChatEntry] = []
    for exchange in page:
        size = len(msgspec.json.encode(exchange))
        if size > most and kept:
            break
        kept.append(exchange if size <= most else _shortened(exchange))
        most -= size
    return kept


def _shortened(exchange: ChatEntry) -> ChatEntry:
    replies = [replace(one, text=one.text[:_CUT], files=one.files[:10]) for one in exchange.replies]
    return replace(exchange, text=exchange.text[:_CUT], replies=replies, cut=True)

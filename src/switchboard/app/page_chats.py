"""Chats on the page: who a session writes as, who gets it, its conversations, and what stands in them.

`server/web` calls `PageChats`; messages are stored by `ChatService`, as those of the gateway. In: the caller, and the
name of the token that the session stands for; out: frozen values to show. Next:
`messages/chat.py`, `store/messages/chats.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.app.access import Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.app.messages.chat import ChatEntry, ChatInput, ChatService, Speaker, chat_envelope, read_entries
from switchboard.app.messages.views import Views
from switchboard.app.reach import Reach
from switchboard.app.rules.replays import ReplayQuestion, Replays
from switchboard.app.runtime import Runtime
from switchboard.app.web_sessions import CHANNEL
from switchboard.core.people.owners import owns
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.message import Conversation
from switchboard.domain.routing import MODEL_ENGINES, SWITCHBOARD, Member, Owner, SystemId
from switchboard.domain.shown import ShownApproval
from switchboard.store.messages import chats
from switchboard.store.messages.chats import ChatThread, UsedTool
from switchboard.store.work import approvals, deltas, ledger

_WALK: Final = 2000
"""Messages of an endpoint that a list of its conversations looks through."""
_OPEN: Final = 20
"""Messages among which the first is looked for that is not settled."""


class ChatReceiver(Struct, frozen=True):
    """A butler that gets what is written. `owned`: whether the writer owns it; None: it has no tools of ours."""

    system_id: str
    owned: bool | None


class ChatDestination(Struct, frozen=True):
    """Where the rules send what is written: to these, or a model chooses; with neither, to nobody."""

    receivers: Sequence[ChatReceiver]
    asks_model: bool


class AskedInChat(Struct, frozen=True):
    """What a butler asks, and whether the person may decide it here."""

    asked: ShownApproval
    may: bool


class WorkStanding(Struct, frozen=True):
    """How far a message is that is not settled.

    `ahead` are messages of its conversation before it; `waiting`: why butlers wait for another attempt, as (engine,
    class of error).
    """

    working: Sequence[str]
    ahead: int
    waiting: Mapping[str, tuple[str, str]]
    is_asked: bool
    is_routed: bool


class ShownExchange(Struct, frozen=True):
    """A message of a chat with everything that is shown with it; `standing` is None once it is settled."""

    entry: ChatEntry
    files: Sequence[JsonMapping]
    tools: Sequence[UsedTool]
    asked: Mapping[UUID, Sequence[AskedInChat]]
    """By the reply of Switchboard that tells of it."""
    standing: WorkStanding | None


class PageChats:
    """Shows the chats of those who write on the page."""

    def __init__(self, runtime: Runtime, views: Views, chat: ChatService, replays: Replays) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._views = views
        self._chat = chat
        self._replays = replays

    async def threads(self, speaker: Speaker, *, limit: int, cursor: str | None) -> tuple[list[ChatThread], str | None]:
        """A page of the conversations of the speaker, the last written in first, and the cursor of the next."""
        before = uuid_cursor(cursor)
        found = await chats.threads(
            self._database, speaker.channel, speaker.endpoint, before=before, walk=_WALK, limit=limit
        )
        if len(found) == limit:
            return found, str(found[-1].request_id)
        until = await chats.threads_until(self._database, speaker.channel, speaker.endpoint, before=before, walk=_WALK)
        return found, None if until is None else str(until)

    async def exchanges(
        self, caller: Principal, speaker: Speaker, thread: str, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownExchange], str | None]:
        """A page of a conversation, newest first, and the cursor of the next. Raises InvalidInput."""
        found, following = await self._chat.history(speaker, thread, limit=limit, cursor=cursor)
        return await self._show_entries(caller, speaker, found), following

    async def exchange(self, caller: Principal, speaker: Speaker, request_id: UUID) -> tuple[str, ShownExchange]:
        """One message, and the conversation that it is in. Raises NotFound."""
        stored = await self._views.own(caller, request_id)
        if (stored.channel, stored.endpoint) != (speaker.channel, speaker.endpoint) or stored.thread is None:
            raise NotFound(f"there is no message {request_id} in your conversations")
        following = str(UUID(int=request_id.int + 1))
        found, _ = await read_entries(self._database, Conversation(stored.conversation), limit=1, cursor=following)
        [shown] = await self._show_entries(caller, speaker, found)
        return stored.thread, shown

    async def first_open(self, speaker: Speaker, thread: str) -> UUID | None:
        """The first message of the newest ones that is not settled.

        A page follows one answer at a time, as browsers open six connections at most.
        """
        found, _ = await self._chat.history(speaker, thread, limit=_OPEN, cursor=None)
        return next((one.request_id for one in reversed(found) if one.state == "in_flight"), None)

    async def destination(self, speaker: Speaker, thread: str, to: str | None) -> ChatDestination:
        """Who gets what is written now, as far as that does not depend on the words. Raises InvalidInput."""
        envelope = chat_envelope(speaker, ChatInput(thread, ".", "-", to=to), datetime.now(UTC))
        question = ReplayQuestion(envelope=cast(JsonMapping, msgspec.to_builtins(envelope)))
        found = (await self._replays.dry_run(question, Reach(frozenset()))).receivers
        return ChatDestination([self._receiver_of(speaker, one) for one in found.butlers], bool(found.models))

    def _receiver_of(self, speaker: Speaker, system_id: SystemId) -> ChatReceiver:
        member = self._member_of(system_id)
        has_tools = member is not None and member.engine in MODEL_ENGINES
        return ChatReceiver(system_id, owns(_writer_of(speaker), member) if has_tools else None)

    async def written_by(self, speaker: Speaker, thread: str) -> list[str]:
        """The butlers that have written in the newest part of a conversation."""
        found, _ = await self._chat.history(speaker, thread, limit=20, cursor=None)
        written = {reply.system_id for entry in found for reply in entry.replies}
        return sorted(written - {SWITCHBOARD})

    def _member_of(self, system_id: str) -> Member | None:
        return self._runtime.rule_book.rules.members.get(SystemId(system_id))

    async def _show_entries(
        self, caller: Principal, speaker: Speaker, found: Sequence[ChatEntry]
    ) -> list[ShownExchange]:
        ids = [one.request_id for one in found]
        files = await chats.attachments(self._database, ids)
        tools = await chats.tools(self._database, ids)
        ours = [reply.outbox_id for one in found for reply in one.replies if reply.system_id == SWITCHBOARD]
        asked: dict[UUID, list[AskedInChat]] = {}
        for told in await approvals.told_with(self._database, ours, []) if ours else ():
            may = caller.role == "operator" or self._may_decide(speaker, told.asked)
            asked.setdefault(told.told_in, []).append(AskedInChat(told.asked, may))
        return [
            ShownExchange(
                entry=one,
                files=files.get(one.request_id, ()),
                tools=tools.get(one.request_id, ()),
                asked=asked,
                standing=await self.standing(one.request_id) if one.state == "in_flight" else None,
            )
            for one in found
        ]

    def _may_decide(self, speaker: Speaker, asked: ShownApproval) -> bool:
        """As in a private chat: who was asked answers questions, and an owner decides about calls."""
        return asked.kind == "question" or owns(_writer_of(speaker), self._member_of(asked.system_id))

    async def standing(self, request_id: UUID) -> WorkStanding:
        """How far a message is."""
        look = await deltas.look(self._database, request_id)
        deliveries = await ledger.deliveries_of(self._database, request_id)
        return WorkStanding(
            working=[one.system_id for one in deliveries if one.state == "running"],
            ahead=await chats.ahead(self._database, request_id),
            waiting=look.waiting,
            is_asked=bool(look.asked),
            is_routed=bool(deliveries),
        )


def speaker_on_page(caller: Principal, name: str) -> Speaker:
    """Who a session of the token `name` writes as: itself."""
    own = caller.endpoint or name if caller.role == "connector" else name
    return Speaker(CHANNEL, own, own)


def _writer_of(speaker: Speaker) -> Owner:
    return Owner(speaker.channel, speaker.endpoint, speaker.sender)

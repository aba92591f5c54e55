"""What may be seen at any door: messages, deliveries, dead letters, teams, books, each as far as the token reaches.

HTTP (and later the dashboard) calls `Views` with the caller's `Principal`. Out: frozen values that msgspec turns into
JSON; NotFound for what is out of scope, so that nothing is learnt from asking. Next: `store/`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from switchboard.app.access import Access, Principal, owns_endpoint
from switchboard.app.wiring import Core
from switchboard.domain.errors import Forbidden, InvalidInput, NotFound
from switchboard.domain.ledger import OutboxRow
from switchboard.domain.routing import Member, Rule, SystemId, Team
from switchboard.lanes.bell import WORK, settled_topic
from switchboard.store import books, connectors, dead_letters, inbox, lanes, ledger, outbox
from switchboard.store.books import Balance, Books
from switchboard.store.connectors import Connector
from switchboard.store.dead_letters import Notice, ShownDeadLetter
from switchboard.store.inbox import StoredMessage
from switchboard.store.ledger import DeliveryKey, ShownDelivery, ShownState, Tally
from switchboard.store.teams import target_json

__all__ = ["Balance", "Books", "Connector", "ShownDeadLetter", "ShownDelivery", "ShownState", "Views"]

_LOOK_EVERY_S: Final = 0.25
"""The bell of another process may not be heard here."""


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message as lists show it, without its platform object."""

    request_id: UUID
    conversation: str
    channel: str
    endpoint: str
    sender: str
    thread: str | None
    text: str
    state: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class ReplyView:
    """A reply as the sender of the message sees it."""

    outbox_id: UUID
    system_id: str
    text: str
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MessageDetail(MessageView):
    """A message with all that became of it. `envelope` is without `payload.raw`, which `…/raw` gives."""

    envelope: Any
    deliveries: Sequence[ShownDelivery]
    replies: Sequence[ReplyView]
    dead_letters: Sequence[ShownDeadLetter]


@dataclass(frozen=True, slots=True)
class Replies:
    """What came back so far; `settled` when nothing more will."""

    settled: bool
    state: str
    replies: Sequence[ReplyView]


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a team, without its options: they may hold paths and secrets."""

    system_id: str
    number: int
    engine: str
    description: str
    capabilities: Sequence[str]
    active: bool


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule as it is in force."""

    rule_id: UUID
    name: str
    channel: str
    filters: Any
    targets: Sequence[dict[str, str]]
    priority: int
    active: bool
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TeamView:
    """A team with its members and rules."""

    team_id: str
    parent_id: str | None
    purpose: str
    members: Sequence[MemberView]
    rules: Sequence[RuleView]


@dataclass(frozen=True, slots=True)
class AgentView(MemberView):
    """A member with what became of its deliveries."""

    team_id: str
    answered: int
    dead: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class DeadLetterDetail(ShownDeadLetter):
    """A dead letter with the whole message, and who was told."""

    payload: Any
    raw_base64: str
    notices: Sequence[Notice]


class Views:
    """Reads for a caller. Roles are checked by the door (`Access.check`), ownership here."""

    def __init__(self, core: Core, access: Access) -> None:
        self._core = core
        self._database = core.database
        self._access = access

    async def messages(
        self, caller: Principal, *, limit: int, cursor: str | None, channel: str | None, endpoint: str | None
    ) -> tuple[list[MessageView], str | None]:
        """A page, newest first, and the cursor of the next. Raises Forbidden, InvalidInput."""
        if caller.role == "connector":
            channel = channel or caller.channel or ""
            endpoint = endpoint or caller.endpoint or ""
            await self._access.check_endpoint(caller, "messages", channel, endpoint)
        before = None if cursor is None else _uuid_cursor(cursor)
        page = await inbox.list_messages(self._database, before=before, limit=limit, channel=channel, endpoint=endpoint)
        return [message_view(m) for m in page], str(page[-1].request_id) if len(page) == limit else None

    async def message(self, caller: Principal, request_id: UUID) -> MessageDetail:
        """One message with all that became of it. Raises NotFound."""
        stored = await self._own(caller, request_id)
        shown = message_view(stored)
        return MessageDetail(
            **{name: getattr(shown, name) for name in MessageView.__slots__},
            envelope=stored.envelope,
            deliveries=await ledger.deliveries_of(self._database, request_id),
            replies=await self._replies(request_id),
            dead_letters=await dead_letters.dead_letters_of(self._database, request_id),
        )

    async def raw(self, caller: Principal, request_id: UUID) -> tuple[bytes, str]:
        """The bytes as they arrived, and their media type. Raises NotFound."""
        await self._own(caller, request_id)
        kept = await inbox.get_raw(self._database, request_id)
        if kept is None:
            raise NotFound(f"there is no message {request_id}")
        return kept

    async def replies(
        self, caller: Principal, request_id: UUID, *, wait_s: float, seen: int, gone: asyncio.Event
    ) -> Replies:
        """What came back so far; waits up to `wait_s` s until all is settled or there are more than `seen` replies.

        `gone` ends the waiting: nobody wants to know any more. Raises NotFound.
        """
        await self._own(caller, request_id)
        ring = asyncio.Event()
        stop = self._core.bell.subscribe(settled_topic(request_id), ring.set)
        deadline = asyncio.get_running_loop().time() + wait_s
        try:
            while True:
                ring.clear()
                now = await self._came_back(request_id)
                left = deadline - asyncio.get_running_loop().time()
                if now.settled or len(now.replies) > seen or left <= 0 or gone.is_set():
                    return now
                await _ring_or_timeout(ring, min(left, _LOOK_EVERY_S))
        finally:
            stop()

    async def _came_back(self, request_id: UUID) -> Replies:
        found = await self._look(request_id)
        # A reply that came between its two reads may have been the last one: then the state says so by now.
        return await self._look(request_id) if found.replies and not found.settled else found

    async def _look(self, request_id: UUID) -> Replies:
        # The state first: what is settled by then has its replies.
        stored = await inbox.get_message(self._database, request_id)
        state = "in_flight" if stored is None else stored.state
        return Replies(state != "in_flight", state, await self._replies(request_id))

    async def _replies(self, request_id: UUID) -> list[ReplyView]:
        rows = await outbox.list_replies(self._database, request_id=request_id)
        return [ReplyView(r.outbox_id, r.system_id, r.text, r.state, r.created_at) for r in rows]

    async def _own(self, caller: Principal, request_id: UUID) -> StoredMessage:
        stored = await inbox.get_message(self._database, request_id)
        if stored is None:
            raise NotFound(f"there is no message {request_id}")
        if not owns_endpoint(caller, stored.channel, stored.endpoint):
            raise await self._access.hide(caller, "messages", f"message {request_id}")
        return stored

    async def deliveries(
        self, caller: Principal, *, limit: int, cursor: str | None, system_id: str | None, state: ShownState | None
    ) -> tuple[list[ShownDelivery], str | None]:
        """A page, newest message first. Raises Forbidden, InvalidInput."""
        if caller.role == "agent":
            system_id = system_id or caller.system_id or ""
            await self._access.check_system(caller, "deliveries", system_id)
        before = None if cursor is None else _delivery_cursor(cursor)
        page = await ledger.list_deliveries(
            self._database, before=before, limit=limit, system_id=system_id, state=state
        )
        return page, _cursor_after(page[-1]) if len(page) == limit else None

    async def dead_letters(
        self,
        caller: Principal,
        *,
        limit: int,
        cursor: str | None,
        team_id: str | None,
        status: str | None,
        category: str | None,
    ) -> tuple[list[ShownDeadLetter], str | None]:
        """A page, newest first; an agent sees those of its team if it is the team's System4. Raises Forbidden."""
        if caller.role == "agent":
            team_id = await self._handled_team(caller, team_id)
        before = None if cursor is None else _uuid_cursor(cursor)
        page = await dead_letters.list_dead_letters(
            self._database, before=before, limit=limit, team_id=team_id, status=status, category=category
        )
        return page, str(page[-1].dead_letter_id) if len(page) == limit else None

    async def dead_letter(self, caller: Principal, dead_letter_id: UUID) -> DeadLetterDetail:
        """One dead letter, whole. Raises NotFound."""
        found = await dead_letters.get_dead_letter(self._database, dead_letter_id)
        if found is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        shown, remains = found
        if caller.role == "agent" and shown.team_id != self._team_handled_by(caller):
            raise await self._access.hide(caller, "dead_letters", f"dead letter {dead_letter_id}")
        notices = await dead_letters.notices_of(self._database, shown.request_id)
        return DeadLetterDetail(
            **{name: getattr(shown, name) for name in ShownDeadLetter.__slots__},
            payload=remains.payload,
            raw_base64=base64.b64encode(remains.raw).decode(),
            notices=[notice for notice in notices if notice.dead_letter_id == dead_letter_id],
        )

    def _team_handled_by(self, caller: Principal) -> str | None:
        member = self._core.rule_book.rules.members.get(SystemId(caller.system_id or ""))
        return member.team_id if member is not None and member.number == 4 else None

    async def _handled_team(self, caller: Principal, team_id: str | None) -> str:
        own = self._team_handled_by(caller)
        if own is None or team_id not in (None, own):
            await self._access.refused(caller, "dead_letters", {"team_id": team_id})
            raise Forbidden("an agent sees the dead letters of its own team, and only as its System4")
        return own

    def teams(self) -> tuple[int, list[TeamView]]:
        """The version of the rules in force in this process, and its teams."""
        rule_set = self._core.rule_book.rules.rule_set
        return rule_set.version, [_team(team, rule_set.rules) for team in rule_set.teams]

    def team(self, team_id: str) -> TeamView:
        """One team. Raises NotFound."""
        for team in self.teams()[1]:
            if team.team_id == team_id:
                return team
        raise NotFound(f"there is no team {team_id!r}")

    async def agents(self) -> list[AgentView]:
        """All members of all teams, with what became of their deliveries."""
        tallies = await ledger.tallies(self._database)
        members = self._core.rule_book.rules.members.values()
        return [_agent(m, tallies.get(m.system_id, Tally())) for m in members]

    async def outbox(self, state: str | None, limit: int) -> list[OutboxRow]:
        """Replies on their way, oldest first."""
        return await outbox.list_replies(self._database, states=None if state is None else [state], limit=limit)

    async def lanes(self) -> list[dict[str, Any]]:
        """Lanes that are not idle, the longest waiting first, at most 200."""
        return await lanes.list_lanes(self._database)

    async def resume(self, lane: str) -> None:
        """Let a paused lane go on. Raises NotFound."""
        if not await lanes.resume_lane(self._database, lane):
            raise NotFound(f"there is no paused lane {lane!r}")
        self._core.bell.ring(WORK)

    async def connectors(self) -> list[Connector]:
        """All endpoints that were ever heard of."""
        return await connectors.list_connectors(self._database)

    async def books(self) -> Books:
        """The balance, and what contradicts itself."""
        return await books.audit_books(self._database)


async def _ring_or_timeout(ring: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ring.wait()
    except TimeoutError:
        pass


def message_view(stored: StoredMessage) -> MessageView:
    """A stored message as doors list it."""
    text = stored.envelope["payload"]["normalized_text"]
    return MessageView(
        stored.request_id,
        stored.conversation,
        stored.channel,
        stored.endpoint,
        stored.sender,
        stored.thread,
        text,
        stored.state,
        stored.received_at,
    )


def _member(member: Member) -> MemberView:
    m = member
    return MemberView(m.system_id, m.number, m.engine, m.description, m.capabilities, m.active)


def _agent(member: Member, tally: Tally) -> AgentView:
    m = member
    return AgentView(
        *(m.system_id, m.number, m.engine, m.description, m.capabilities, m.active),
        team_id=m.team_id,
        answered=tally.answered,
        dead=tally.dead,
        in_flight=tally.in_flight,
    )


def _team(team: Team, rules: Sequence[Rule]) -> TeamView:
    own = [_rule(rule) for rule in rules if rule.team_id == team.team_id]
    return TeamView(team.team_id, team.parent_id, team.purpose, [_member(m) for m in team.members], own)


def _rule(rule: Rule) -> RuleView:
    return RuleView(
        rule.rule_id,
        rule.name,
        rule.channel,
        rule.filters,
        [target_json(target) for target in rule.targets],
        rule.priority,
        rule.active,
        rule.created_by,
        rule.created_at,
    )


def _bad_cursor() -> InvalidInput:
    return InvalidInput(
        "the cursor is not one that this server gave out; begin without one", code="invalid_cursor", field="cursor"
    )


def _uuid_cursor(cursor: str) -> UUID:
    try:
        return UUID(cursor)
    except ValueError:
        raise _bad_cursor() from None


def _cursor_after(delivery: ShownDelivery) -> str:
    key = msgspec.json.encode([delivery.request_id, delivery.lane, delivery.seq])
    return base64.urlsafe_b64encode(key).decode()


def _delivery_cursor(cursor: str) -> DeliveryKey:
    try:
        request_id, lane, seq = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[UUID, str, int])
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise _bad_cursor() from None
    if "\x00" in lane or not 0 <= seq < 2**63:
        raise _bad_cursor()
    return DeliveryKey(request_id, lane, seq)

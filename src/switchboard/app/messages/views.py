"""Read access for every interface: messages, deliveries, teams, books, each within the token's scope.

HTTP (and later the dashboard) calls `Views` with the caller's `Principal`. Out: frozen values that msgspec turns into
JSON; NotFound for anything out of scope, so that requests reveal nothing. Next: `store/`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from switchboard.app.access import AGENT, CONNECTOR, OPERATOR, Access, Action, Principal, owns_endpoint
from switchboard.app.cursors import CursorText, LongRows, Number, cursor_after, key_of
from switchboard.app.messages.blobs import RAW
from switchboard.app.messages.same_ids import find_same_id
from switchboard.app.reach import Reach
from switchboard.app.remote_agents import shown_endpoint
from switchboard.app.runtime import Runtime
from switchboard.core.envelope.stored import with_texts
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.routing.facts import shown_facts
from switchboard.core.routing.rulefile import RuleJson, rule_json
from switchboard.core.text.words import offer
from switchboard.core.voice.recordings import shown_voices
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import MessageOrigin, OutboxPart, OutboxRow, OutboxState
from switchboard.domain.remote_agents import Liveness, RemoteAgent, self_description
from switchboard.domain.routing import Member, Team, TeamId
from switchboard.domain.shown import (
    Connector,
    Found,
    Logged,
    MessageState,
    ReplyView,
    ShownDeadLetter,
    ShownDelivery,
    ShownState,
)
from switchboard.lanes.notifier import WORK, settled_topic
from switchboard.store import books, lookup
from switchboard.store.books import DeliveryTally, KeptBooks
from switchboard.store.connectors import heartbeats as connectors
from switchboard.store.messages import dead_letters, inbox, outbox
from switchboard.store.messages.inbox import StoredMessage
from switchboard.store.models import classification
from switchboard.store.rules import remote_agents
from switchboard.store.rules.teams import Overview, TeamFilter, overview
from switchboard.store.work import lanes, ledger
from switchboard.tasks import wait_at_most

MESSAGES: Final = Action("messages", CONNECTOR)
DELIVERIES: Final = Action("deliveries", AGENT)
REPLIES: Final = Action("replies", OPERATOR)
LANES: Final = Action("lanes", OPERATOR)
BOOKS: Final = Action("books", OPERATOR)

_LOOK_EVERY_S: Final = 0.25
"""Poll interval, as a notification of another process may be lost."""
_END: Final = 8
"""Digits by which an id is known by its end: fewer are common among thousands."""
_DIGITS: Final = re.compile(r"[0-9a-f]{4,32}")
_FEW: Final = 5
"""Things of a kind that are told of the beginning of an id: enough to see that it is not unique."""
_FIRST_RULES: Final = 100
"""Rules that are shown of a team; it may have a hundred thousand, and `/v1/rules` has pages."""


@dataclass(frozen=True, slots=True)
class MessageView(MessageOrigin):
    """A message as lists show it. `went_to` are the butlers it was delivered to."""

    text: str
    state: MessageState
    went_to: Sequence[str]
    """The butlers that it was delivered to."""
    is_code: bool
    """It was a code for pairing, and went to no butler."""
    received_at: datetime


@dataclass(frozen=True, slots=True)
class ReplyDetail(OutboxRow):
    """A reply with the receipts of all attempts to send it, and its parts if it is sent in parts."""

    receipts: Sequence[JsonObject]
    parts: Sequence[OutboxPart]


@dataclass(frozen=True, slots=True)
class MessageDetail(MessageView):
    """A message with everything that became of it. `envelope` lacks `payload.raw`, which `…/raw` returns."""

    envelope: Any
    facts: Mapping[str, str | Sequence[str]] | None
    """What the rules saw when it was decided last; None as long as it is not."""
    deliveries: Sequence[ShownDelivery]
    replies: Sequence[ReplyView]
    dead_letters: Sequence[ShownDeadLetter]
    classifications: Sequence[Logged]
    """What models chose, for operators; nobody else is shown any."""
    same_id: UUID | None = None
    """The first message with its id, which has another content; both are kept."""


@dataclass(frozen=True, slots=True)
class MessageReplies:
    """Replies to a message so far. `settled` is true when there will be no more."""

    settled: bool
    state: str
    replies: Sequence[ReplyView]


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a team, without its options, which may contain secrets."""

    system_id: str
    number: int
    engine: str
    description: str
    capabilities: Sequence[str]
    active: bool


@dataclass(frozen=True, slots=True)
class TeamView:
    """A team with its members and the first of its `rule_count` rules, in evaluation order."""

    team_id: str
    parent_id: str | None
    purpose: str
    members: Sequence[MemberView]
    rules: Sequence[RuleJson]
    rule_count: int


@dataclass(frozen=True, slots=True)
class AgentView(MemberView):
    """A member of a team, with the number of its deliveries by state.

    The last four fields are null unless it is a remote butler.
    """

    team_id: str
    answered: int
    dead: int
    in_flight: int
    liveness: Liveness | None = None
    why: str | None = None
    last_seen_at: datetime | None = None
    endpoint: str | None = None


class Views:
    """Reads for a caller. Roles are checked by the interface (`Access.check`), ownership here."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._implies = runtime.channels.implies
        self._access = access

    async def message(self, caller: Principal, request_id: UUID) -> MessageDetail:
        """One message with everything that became of it. Raises NotFound."""
        stored = await self.own(caller, request_id)
        shown = message_view(stored)
        tried = await classification.attempts(self._database, request_id) if caller.role == "operator" else ()
        known = next((one.facts for one in reversed(await ledger.decisions_of(self._database, request_id))), None)
        return MessageDetail(
            **{one.name: getattr(shown, one.name) for one in fields(shown)},
            envelope=with_texts(stored.envelope),
            facts=None if known is None else shown_facts(known),
            deliveries=await ledger.deliveries_of(self._database, request_id),
            replies=await self.replies_so_far(request_id),
            dead_letters=await dead_letters.dead_letters_of(self._database, request_id),
            classifications=tried,
            same_id=await self._same_id(stored),
        )

    async def _same_id(self, stored: StoredMessage) -> UUID | None:
        kept = await inbox.get_raw(self._database, stored.request_id)
        envelope = None if kept is None else whole_envelope(Original(*kept, stored.envelope))
        return None if envelope is None else await find_same_id(self._runtime, stored, envelope)

    async def raw(self, caller: Principal, request_id: UUID) -> tuple[bytes, str]:
        """The original bytes, and their media type. Raises NotFound.

        A butler may read only messages that were delivered to it whole.
        """
        if caller.role != "agent":
            await self.own(caller, request_id)
        elif not await ledger.was_delivered(self._database, request_id, caller.system_id or ""):
            raise await self._access.hide(caller, RAW, f"message {request_id}")
        kept = await inbox.get_raw(self._database, request_id)
        if kept is None:
            raise NotFound(f"there is no message {request_id}")
        return kept

    async def replies(
        self, caller: Principal, request_id: UUID, *, wait_s: float, seen: int, gone: asyncio.Event
    ) -> MessageReplies:
        """Replies so far; waits up to `wait_s` s until all is settled or there are more than `seen` replies.

        `gone` ends the wait when nobody is interested any longer. Raises NotFound.
        """
        await self.own(caller, request_id)
        ring = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + wait_s
        with self._runtime.notifier.subscribe(settled_topic(request_id), ring.set):
            while True:
                ring.clear()
                now = await self._replies(request_id)
                left = deadline - asyncio.get_running_loop().time()
                if now.settled or len(now.replies) > seen or left <= 0 or gone.is_set():
                    return now
                await wait_at_most(min(left, _LOOK_EVERY_S), ring)

    async def _replies(self, request_id: UUID) -> MessageReplies:
        state, rows = await outbox.replies_of(self._database, request_id)
        replies = [ReplyView(r.outbox_id, r.system_id, r.text, r.files, r.state, r.created_at) for r in rows]
        return MessageReplies(state != "in_flight", state, replies)

    async def replies_so_far(self, request_id: UUID) -> list[ReplyView]:
        """All replies to a message, the oldest first."""
        return list((await self._replies(request_id)).replies)

    async def find(self, start: str) -> list[Found]:
        """Objects with ids that begin so, with or without hyphens; at most a few of each kind.

        If there are none, those of the newest ones whose ids end so. Rules are also found by their names.
        """
        named = await lookup.find_rules(self._database, start, _FEW)
        digits = start.replace("-", "").lower()
        if not _DIGITS.fullmatch(digits):
            return named
        first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
        found = await lookup.find(self._database, first, last, _FEW)
        found += await lookup.find_in_memory(self._database, first, last, _FEW)
        if not found and len(digits) >= _END:
            found = await lookup.find_end(self._database, digits, _FEW)
            found += await lookup.find_end_in_memory(self._database, digits, _FEW)
        return named + found

    async def own(self, caller: Principal, request_id: UUID) -> StoredMessage:
        """The message, if the caller may read it. Raises NotFound."""
        stored = await inbox.get_message(self._database, request_id)
        if stored is None:
            raise NotFound(f"there is no message {request_id}")
        if not owns_endpoint(caller, stored.channel, stored.endpoint):
            raise await self._access.hide(caller, MESSAGES, f"message {request_id}")
        return stored

    async def deliveries(
        self, caller: Principal, *, limit: int, cursor: str | None, system_id: str | None, state: ShownState | None
    ) -> tuple[list[ShownDelivery], str | None]:
        """A page, newest message first. Raises Forbidden, InvalidInput."""
        if caller.role == "agent":
            system_id = system_id or caller.system_id or ""
            await self._access.check_system(caller, DELIVERIES, system_id)
        before = key_of(cursor, tuple[UUID, CursorText, Number])
        page = await ledger.list_deliveries(
            self._database, before=before, limit=limit, system_id=system_id, state=state
        )
        if len(page) < limit:
            return page, None
        return page, cursor_after(page[-1].request_id, page[-1].system_id, page[-1].seq)

    async def teams(self, reach: Reach, *, limit: int, cursor: str | None) -> tuple[int, list[TeamView], str | None]:
        """The version of the rules in force, a page of its teams, and the cursor of the next.

        Teams beyond the reach come without their rules.
        """
        [after] = key_of(cursor, tuple[CursorText]) or ("",)
        found = await overview(self._database, _FIRST_RULES, self._implies, TeamFilter(after=after, limit=limit))
        following = cursor_after(found.teams[-1].team_id) if len(found.teams) == limit else None
        return found.version, [_team(team, found, reach) for team in found.teams], following

    async def team(self, team_id: str, reach: Reach) -> TeamView:
        """One team, beyond the reach without its rules. Raises NotFound."""
        found = await overview(self._database, _FIRST_RULES, self._implies, TeamFilter(TeamId(team_id)))
        if not found.teams:
            there = [team.team_id for team in self._runtime.rule_book.rules.teams]
            raise NotFound(f"there is no team {team_id!r}{offer(team_id, there)}")
        return _team(found.teams[0], found, reach)

    async def agents(self, *, limit: int, cursor: str | None) -> tuple[list[AgentView], str | None]:
        """A page of all teams' members by id, with the states of their deliveries, and of remote ones."""
        [after] = key_of(cursor, tuple[CursorText]) or ("",)
        tallies = await books.tallies(self._database)
        found = await remote_agents.list_remote_agents(self._database, self._runtime.settings.liveness)
        remote = {one.system_id: one for one in found}
        known = self._runtime.rule_book.rules.members
        page = [known[system_id] for system_id in sorted(known) if system_id > after][:limit]
        following = cursor_after(page[-1].system_id) if len(page) == limit else None
        return [_agent(m, tallies.get(m.system_id, DeliveryTally()), remote.get(m.system_id)) for m in page], following

    async def outbox(
        self, state: OutboxState | None, *, limit: int, cursor: str | None
    ) -> tuple[list[OutboxRow], str | None]:
        """A page of the replies of all endpoints, newest first, and the cursor of the next. Raises InvalidInput."""

        async def read(before: UUID | None, limit: int) -> Sequence[OutboxRow]:
            return await outbox.page_of_replies(self._database, state=state, before=before, limit=limit)

        return await LongRows(read, lambda row: row.outbox_id, lambda row: len(row.text)).page(cursor, limit)

    async def reply(self, outbox_id: UUID) -> ReplyDetail:
        """One reply. Raises NotFound."""
        row = await outbox.get_reply(self._database, outbox_id)
        known = {name: getattr(row, name) for name in OutboxRow.__slots__}
        receipts = await outbox.list_receipts(self._database, row.request_id)
        own = [one for one in receipts if one["outbox_id"] == outbox_id]
        return ReplyDetail(**known, receipts=own, parts=await outbox.parts_of(self._database, outbox_id))

    async def lanes(self, *, limit: int, cursor: str | None) -> tuple[list[JsonObject], str | None]:
        """A page of the lanes that are not idle, the longest waiting first, and the cursor of the next."""
        page = await lanes.list_lanes(self._database, after=key_of(cursor, tuple[datetime, UUID]), limit=limit)
        following = cursor_after(page[-1]["ready_at"], page[-1]["key"]) if len(page) == limit else None
        return [{name: value for name, value in lane.items() if name != "key"} for lane in page], following

    async def resume(self, lane: str) -> None:
        """Let a paused lane continue. Raises NotFound."""
        if not await lanes.resume_lane(self._database, lane):
            raise NotFound(f"there is no paused lane {lane!r}; see `switchboard lanes list`")
        self._runtime.notifier.notify(WORK)

    async def connectors(self, *, limit: int, cursor: str | None) -> tuple[list[Connector], str | None]:
        """A page of the processes of all accounts, by channel, endpoint and instance, and the cursor of the next."""
        after = key_of(cursor, tuple[CursorText, CursorText, CursorText])
        page = await connectors.list_connectors(self._database, after=after, limit=limit)
        if len(page) < limit:
            return page, None
        return page, cursor_after(page[-1].channel, page[-1].endpoint, page[-1].instance_id)

    async def books(self, *, now: bool) -> KeptBooks:
        """The books as last balanced by a worker or, with `now`, balanced here."""
        return await (books.balance_now(self._database) if now else books.kept_books(self._database))


def message_view(stored: StoredMessage) -> MessageView:
    """A stored message as the interfaces list it."""
    same = {one.name: getattr(stored, one.name) for one in fields(MessageView) if one.name != "text"}
    payload = stored.envelope["payload"]
    return MessageView(**same, text=payload["normalized_text"] or _text_of_voices(payload))


def _text_of_voices(payload: JsonMapping) -> str:
    """What stands for the words of a message that has none."""
    spoken = [one for one in payload.get("attachments", ()) if one.get("voice")]
    return shown_voices(msgspec.convert(spoken, tuple[Attachment, ...]))


def _member(member: Member) -> MemberView:
    m = member
    return MemberView(m.system_id, m.number, m.engine, m.description, m.capabilities, m.active)


def _agent(member: Member, tally: DeliveryTally, found: RemoteAgent | None) -> AgentView:
    m = member
    return AgentView(
        *(m.system_id, m.number, m.engine, *self_description(m, found), m.active),
        team_id=m.team_id,
        answered=tally.answered,
        dead=tally.dead,
        in_flight=tally.in_flight,
        liveness=None if found is None else found.liveness,
        why=None if found is None else found.why or None,
        last_seen_at=None if found is None else found.last_seen_at,
        endpoint=shown_endpoint(m, found),
    )


def _team(team: Team, found: Overview, reach: Reach) -> TeamView:
    rules = [rule_json(rule) for rule in found.first.get(team.team_id, ()) if team.team_id in reach]
    members = [_member(m) for m in team.members]
    return TeamView(team.team_id, team.parent_id, team.purpose, members, rules, found.counts.get(team.team_id, 0))

"""Decisions by people while a turn waits: they are asked, and decide in chat or as operators.

`turn.py` calls `tell` when a turn is about to wait, and the built-in engine calls `ChatDecisions` with a command, a
pressed button or a reply to a question; `app/approvals/service.py` calls `decide`. Questions are kept in the store,
with the event that the turn waits for. Next: `core/turns/asking.py` for the words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

import structlog
from msgspec import Struct

from switchboard.core.people.owners import decides_in_chat
from switchboard.core.people.readers import directory_of, person_of
from switchboard.core.turns.asking import ChatCommand, Verb, command_in, fits_chat, notice, resolve_answer, short
from switchboard.core.turns.choices import Press, mark_of, one_line, press_in, standing
from switchboard.core.turns.command import answer_text, command_text
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.ledger import Item
from switchboard.domain.routing import Member, SystemId
from switchboard.domain.shown import ShownApproval
from switchboard.lanes.faults import point
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.channel import Channel
from switchboard.ports.engine import Answer, NoReply, Turn, TurnResult
from switchboard.ports.facts import Reader
from switchboard.store.database import Database
from switchboard.store.people import audit
from switchboard.store.work import approvals as store
from switchboard.store.work import steps

log = structlog.get_logger(__name__)

State = Literal["approved", "refused", "answered"]

_STATES: Final[Mapping[str, State]] = {"approve": "approved", "refuse": "refused", "answer": "answered"}
_FEW: Final = 5


class ApprovalDecision(Struct, frozen=True):
    """A decision, who made it, and their text: the answer, or the reason for a refusal."""

    state: State
    by: str
    text: str = ""


class Conversations(Protocol):
    """Looks up the conversation of a message: see `reply.py`."""

    async def reader(self, turn: Turn) -> Reader: ...

    async def whole(self, turn: Turn) -> Envelope: ...

    def replied_to(self, whole: Envelope) -> str | None: ...

    def channel_of(self, whole: Envelope) -> Channel: ...


async def decide(database: Database, notifier: Notifier, asked: ShownApproval, wanted: ApprovalDecision) -> None:
    """Decide once; the same decision again changes nothing. The turn then continues on its own.

    Raises Conflict if it was decided otherwise, has expired, or its turn has ended; NotFound if it was forgotten.
    """
    value = {"decision": wanted.state, "by": wanted.by, "text": wanted.text, "digest": asked.digest}
    detail = {"approval_id": str(asked.approval_id), "tool": asked.tool, "request_id": str(asked.request_id)}
    if wanted.state == "refused" and wanted.text:
        detail["reason"] = wanted.text
    async with database.transaction() as one:
        event = await steps.decide(one, asked.approval_id, value)
        if event is not None and event.fresh and event.result is not None:
            await audit.append(one, wanted.by, f"approval:{wanted.state}", detail)
    if event is None:
        raise NotFound(f"there is no approval {asked.approval_id}; see `switchboard approvals list`")
    if event.result is None:
        raise Conflict(f"{asked.tool} no longer waits: its turn has ended without a decision")
    point("after_resume")
    notifier.notify(WORK)
    if "expired" in event.result:
        raise Conflict(f"the time to decide about {asked.tool} is over")
    stands = event.result["value"]
    if stands["decision"] != wanted.state or (wanted.state == "answered" and stands["text"] != wanted.text):
        raise Conflict(f"the call of {asked.tool} was {stands['decision']} already, by {stands['by']}")


class PlaceOfAsking(Struct, frozen=True):
    """Where people are asked: the pool of the reply, whether they may decide there, and the mark of commands."""

    pool: str | None
    decides: bool
    mark: str


async def tell(database: Database, worker: int, item: Item, where: PlaceOfAsking) -> bool:
    """Tell the conversation what a running item waits for, unless it knows already. False if nothing was said."""
    asked = await store.untold(database, item)
    ids, text = [one.approval_id for one in asked], notice(asked, decides=where.decides, mark=where.mark)
    return bool(ids) and await store.tell(database, worker, item, ids, text, where.pool)


class ChatDecisions:
    """Decides by the messages that people write, and the buttons that they press, where they were asked."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        members: Callable[[], Mapping[SystemId, Member]],
        conversations: Conversations,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._members = members
        self._conversations = conversations

    async def __call__(self, turn: Turn, whole: Envelope) -> TurnResult:
        """Carry out a command, or pass on the answer to a question; returns the response to its sender.

        `whole`: the message with its `payload.raw`.
        """
        pressed = press_in(whole)
        if pressed is not None:
            return Answer(await self._carry_out_press(turn, pressed))
        command = command_in(command_text(whole, self._conversations.channel_of(whole).command_mark))
        if command is not None:
            return Answer(await self._run_command(turn, command))
        return await self._answer_question(turn, whole)

    async def _answer_question(self, turn: Turn, whole: Envelope) -> TurnResult:
        """A reply to a message with one question answers it; Switchboard itself does not respond."""
        replied_to, said = self._conversations.replied_to(whole), answer_text(whole)
        asked = [] if replied_to is None else await store.asked_in(self._database, turn.conversation, replied_to)
        if len(asked) != 1 or not said:
            mark = self._conversations.channel_of(whole).command_mark
            hints = " or ".join(f"{mark}answer {short(one)} and your answer" for one in asked)
            return Answer(f"I do not know what this answers. Please write {hints or 'it again'}.")
        command = ChatCommand("answer", asked[0].approval_id.hex, said)
        told = await self._carried_out(turn, asked[0], command)
        return NoReply(reason=f"handed on: it answers {short(asked[0])}") if told is None else Answer(told)

    async def _carry_out_press(self, turn: Turn, pressed: Press) -> str:
        """Carry out what the button says, if whoever pressed it was asked; the response is for this person alone."""
        reader = await self._conversations.reader(turn)
        ids = pressed.approval_id, pressed.approval_id
        found = await store.of_readers(self._database, directory_of(reader, turn.request_id), ids, 1)
        asked = _pick_request(found)
        if asked is None:
            return "Nothing here waits for that any more."
        command = pressed.command
        if pressed.recipient != mark_of(person_of(turn.envelope)):
            if command is not None:
                await self._record_refusal(turn, asked, command.verb)
            return "Somebody else was asked that."
        if command is None:
            return f"{standing(asked, turn.envelope.sender.display_name or '')}."
        what = one_line(resolve_answer(asked, command.text)) if command.verb == "answer" else asked.tool
        return await self._carried_out(turn, asked, command) or _confirmation_text(asked, command.verb, what)

    async def _run_command(self, turn: Turn, command: ChatCommand) -> str:
        reader = await self._conversations.reader(turn)
        readers = directory_of(reader, turn.request_id)
        asked = _pick_request(await store.of_readers(self._database, readers, command.ids, _FEW))
        if asked is None:
            return f"Nothing here waits for {command.start}, or more than one thing does. Give more of its id."
        return await self._carried_out(turn, asked, command) or _confirmation_text(asked, command.verb, asked.tool)

    async def _carried_out(self, turn: Turn, asked: ShownApproval, command: ChatCommand) -> str | None:
        """Why it cannot be carried out; None once it is done."""
        if why := _unfit(asked, command, self._conversations.channel_of(turn.envelope).command_mark):
            return why
        if why := self._denial_reason(turn, await self._conversations.reader(turn), asked):
            await self._record_refusal(turn, asked, command.verb)
            return why
        said = resolve_answer(asked, command.text) if command.verb == "answer" else command.text
        try:
            decision = ApprovalDecision(_STATES[command.verb], _sender(turn), said)
            await decide(self._database, self._notifier, asked, decision)
        except (Conflict, NotFound) as error:
            return f"Nothing is changed: {error.message}."
        return None

    def _denial_reason(self, turn: Turn, reader: Reader, asked: ShownApproval) -> str | None:
        """Why this person may not decide this here; None if they may."""
        if asked.kind == "question":
            mine = reader.authentic and (asked.channel, asked.endpoint, asked.sender) == _who(turn)
            return None if mine else "Only who was asked can answer that."
        if decides_in_chat(self._members().get(SystemId(asked.system_id)), turn.envelope, reader):
            return None
        return f"You may not decide that here. An operator can: switchboard approvals show {short(asked)}"

    async def _record_refusal(self, turn: Turn, asked: ShownApproval, command: str) -> None:
        log.warning("refused", actor=_sender(turn), action="approvals")
        detail = {"approval_id": str(asked.approval_id), "command": command}
        await audit.append(self._database, _sender(turn), "refused:approvals", detail)


def _confirmation_text(asked: ShownApproval, verb: Verb, what: str) -> str:
    return f"{_STATES[verb].capitalize()}: {what} ({short(asked)})."


def _unfit(asked: ShownApproval, command: ChatCommand, mark: str) -> str | None:
    """Why the request does not permit this; None if it does."""
    if asked.kind == "question" and command.verb == "approve":
        return f"That is a question: write {mark}answer {short(asked)} and your answer."
    if asked.kind == "call" and command.verb == "answer":
        return f"That is not a question: write {mark}approve {short(asked)} or {mark}refuse {short(asked)}."
    if command.verb == "approve" and not fits_chat(asked):
        return f"It is too long to be shown here whole. An operator can: switchboard approvals show {short(asked)}"
    return None


def _pick_request(found: list[ShownApproval]) -> ShownApproval | None:
    """The one pending request, otherwise the only request."""
    pending = [one for one in found if one.state == "pending"] or found
    return pending[0] if len(pending) == 1 else None


def _who(turn: Turn) -> tuple[str, str, str]:
    source = turn.envelope.source
    return source.channel, source.endpoint_identity, turn.envelope.sender.identity


def _sender(turn: Turn) -> str:
    channel, _, sender = _who(turn)
    return f"{channel}:{sender}"

"""Butlers' questions to people, for those who decide over the API: operators, and tokens with the role `approver`.

HTTP, MCP and the gateway call `ApprovalService` with the caller's `Principal`. In: ids and words; out: the updated
question. Decisions in chat are in `journey/approving.py`, where both ways meet. Next: `store/work/approvals.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from switchboard.app.access import APPROVER, Action, Principal
from switchboard.app.cursors import cursor_after, key_of
from switchboard.app.runtime import Runtime
from switchboard.core.people.owners import owns
from switchboard.core.turns.asking import Verb, resolve_answer
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound
from switchboard.domain.routing import Owner, SystemId
from switchboard.domain.shown import ApprovalState, ShownApproval
from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.store.work import approvals as store

APPROVALS: Final = Action("approvals", APPROVER)


@dataclass(frozen=True, slots=True)
class FittingPage:
    """As much of a page as fits into a number of bytes. `left_out`: items too large on their own; `get` shows them."""

    approvals: list[ShownApproval]
    left_out: list[UUID]
    next_cursor: str | None


class ApprovalService:
    """Lists and decides. Callers are authorised before."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def list(
        self, state: ApprovalState | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownApproval], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = key_of(cursor, tuple[datetime, UUID])
        page = await store.list_approvals(self._database, state, below, limit)
        return page, _cursor_of(page[-1]) if len(page) == limit else None

    async def fitting(self, most: int, state: ApprovalState | None, *, limit: int, cursor: str | None) -> FittingPage:
        """As `list`, with a maximum number of bytes of JSON."""
        page, next_cursor = await self.list(state, limit=limit, cursor=cursor)
        kept, left_out = list[ShownApproval](), list[UUID]()
        room = most
        for n, one in enumerate(page):
            size = len(msgspec.json.encode(one))
            if size > most:
                left_out.append(one.approval_id)
            elif size > room:
                return FittingPage(kept, left_out, _cursor_of(page[n - 1]))
            else:
                room -= size
                kept.append(one)
        return FittingPage(kept, left_out, next_cursor)

    async def get(self, approval_id: UUID) -> ShownApproval:
        """One. Raises NotFound."""
        found = await store.get(self._database, approval_id)
        if found is None:
            raise NotFound(f"there is no approval {approval_id}; see `switchboard approvals list`")
        return found

    async def decide(
        self, caller: Principal, approval_id: UUID, verb: Verb, text: str, digest: str | None = None
    ) -> ShownApproval:
        """Decide in one of the three ways below.

        Also raises InvalidInput for an answer without text or an approval with one.
        """
        text = text.strip()
        match verb:
            case "approve" if not text:
                return await self.approve(caller, approval_id, digest)
            case "refuse":
                return await self.refuse(caller, approval_id, text, digest)
            case "answer" if text:
                return await self.answer(caller, approval_id, text, digest)
        what = "an answer needs a text" if verb == "answer" else "an approval has no text"
        raise InvalidInput(what, code="invalid_value", field="text")

    async def approve(self, caller: Principal, approval_id: UUID, digest: str | None = None) -> ShownApproval:
        """Let a call be made, once and with exactly these arguments. Raises NotFound, Conflict.

        `digest`, here and below: that of what the caller was shown; another one is a Conflict.
        """
        asked = await self._get_as_shown(approval_id, digest)
        if asked.kind == "question":
            raise Conflict("that is a question: answer it, or refuse to")
        return await self._decide_approval(asked, ApprovalDecision("approved", caller.name))

    async def refuse(
        self, caller: Principal, approval_id: UUID, why: str = "", digest: str | None = None
    ) -> ShownApproval:
        """Refuse a call, or to answer; the model is told `why`. Raises NotFound, Conflict."""
        return await self._decide_approval(
            await self._get_as_shown(approval_id, digest), ApprovalDecision("refused", caller.name, why.strip())
        )

    async def answer(self, caller: Principal, approval_id: UUID, text: str, digest: str | None = None) -> ShownApproval:
        """Answer a question, in words or with the number of an option. Raises NotFound, Conflict."""
        asked = await self._get_as_shown(approval_id, digest)
        if asked.kind == "call":
            raise Conflict("this is not a question: approve or refuse it")
        return await self._decide_approval(
            asked, ApprovalDecision("answered", caller.name, resolve_answer(asked, text.strip()))
        )

    async def decide_as_asked(
        self, person: Owner, approval_id: UUID, verb: Verb, text: str, digest: str
    ) -> ShownApproval:
        """Decide as the person who wrote the message, as in a private chat: an owner about calls, who was asked about
        questions.

        Raises NotFound, also for what others were asked; Forbidden, Conflict, InvalidInput.
        """
        asked = await self._get_as_shown(approval_id, digest)
        if Owner(asked.channel, asked.endpoint, asked.sender) != person:
            raise NotFound(f"there is no approval {approval_id}")
        if asked.kind == "call" and not owns(
            person, self._runtime.rule_book.rules.members.get(SystemId(asked.system_id))
        ):
            raise Forbidden(f"only owners of {asked.system_id} decide that here; ask who runs this Switchboard")
        by = f"{person.channel}:{person.identity}"
        if verb == "answer" and asked.kind == "question":
            return await self._decide_approval(asked, ApprovalDecision("answered", by, resolve_answer(asked, text)))
        if verb == "refuse":
            return await self._decide_approval(asked, ApprovalDecision("refused", by, text))
        if verb == "approve" and asked.kind == "call":
            return await self._decide_approval(asked, ApprovalDecision("approved", by))
        raise Conflict("a question is answered, and a call is approved")

    async def _get_as_shown(self, approval_id: UUID, digest: str | None) -> ShownApproval:
        asked = await self.get(approval_id)
        if digest is not None and digest != asked.digest:
            raise Conflict("this is not what you were shown; look at it again", code="not_as_shown", field="digest")
        return asked

    async def _decide_approval(self, asked: ShownApproval, wanted: ApprovalDecision) -> ShownApproval:
        await decide(self._database, self._runtime.notifier, asked, wanted)
        return await self.get(asked.approval_id)


def _cursor_of(last: ShownApproval) -> str:
    return cursor_after(last.asked_at, last.approval_id)

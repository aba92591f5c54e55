"""What butlers ask people, for those who decide by API: operators, and tokens with the role `approver`.

HTTP and MCP call `ApprovalService` with the caller's `Principal`. In: ids and words; out: what was asked, as it stands
then. Who decides in chat is in `journey/approving.py`, where both ways meet. Next: `store/approvals.py`.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from switchboard.app.access import Principal
from switchboard.app.cursors import cursor_after, key_of
from switchboard.app.runtime import Runtime
from switchboard.core.turns.asking import chosen
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.shown import ApprovalState, ShownApproval
from switchboard.journey.approving import Decision, decide
from switchboard.store import approvals as store


class ApprovalService:
    """Lists and decides. Whether a caller may do so at all is checked before."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def list(
        self, state: ApprovalState | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownApproval], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = key_of(cursor, tuple[datetime, UUID])
        page = await store.list_approvals(self._database, state, below, limit)
        return page, cursor_after(page[-1].asked_at, page[-1].approval_id) if len(page) == limit else None

    async def get(self, approval_id: UUID) -> ShownApproval:
        """One. Raises NotFound."""
        found = await store.get(self._database, approval_id)
        if found is None:
            raise NotFound(f"there is no approval {approval_id}; see `switchboard approvals list`")
        return found

    async def approve(self, caller: Principal, approval_id: UUID) -> ShownApproval:
        """Let a call be made, once and with exactly these arguments. Raises NotFound, Conflict."""
        asked = await self.get(approval_id)
        if asked.kind == "question":
            raise Conflict("that is a question: answer it, or refuse to")
        return await self._decided(asked, Decision("approved", caller.name))

    async def refuse(self, caller: Principal, approval_id: UUID, why: str = "") -> ShownApproval:
        """Refuse a call, or to answer; the model is told `why`. Raises NotFound, Conflict."""
        return await self._decided(await self.get(approval_id), Decision("refused", caller.name, why.strip()))

    async def answer(self, caller: Principal, approval_id: UUID, text: str) -> ShownApproval:
        """Answer a question, in words or with the number of an option. Raises NotFound, Conflict."""
        asked = await self.get(approval_id)
        if asked.kind == "call":
            raise Conflict("that is no question: approve or refuse it")
        return await self._decided(asked, Decision("answered", caller.name, chosen(asked, text.strip())))

    async def _decided(self, asked: ShownApproval, wanted: Decision) -> ShownApproval:
        await decide(self._database, self._runtime.notifier, asked, wanted)
        return await self.get(asked.approval_id)

"""A reply that is being sent: until when it is ours, what the server has recorded of it, and the bytes of its files.

`sending.py` holds one for each reply on its way. In: what is intended and what became of it; out: requests to the
server, which renew the lease. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from switchboard.connectors.kernel.answers import ReplyToSend, Unreachable
from switchboard.connectors.kernel.api import Api
from switchboard.lanes.faults import point
from switchboard.ports.channel import SendFailure
from switchboard.ports.connector import FileOut, Later, Outcome, Part, Refused, Sent

LEASE_S: Final = 60.0
_PAUSE_S: Final = 0.5
_UNREAD_S: Final = 5.0
_T = TypeVar("_T")


@dataclass(slots=True)
class HeldReply:
    """`until`: when its lease ends at the earliest, by `clock`, whose seconds only go forward."""

    reply: ReplyToSend
    api: Api
    clock: Callable[[], float]
    until: float
    parts: tuple[Part, ...] = ()
    intended: int | None = None
    """The part that is recorded as about to be sent; to record it again renews the lease."""
    doubts: dict[int, float] = field(default_factory=dict)
    """The parts that may have been sent, and since when."""
    put_off_s: float = 0.0
    unread: Later | Refused | None = None
    """What becomes of the part whose file could not be read."""

    def key(self, index: int) -> str:
        """Under which the platform knows the part, if it knows keys."""
        return f"{self.reply.outbox_id}:{index}"

    def files(self) -> tuple[FileOut, ...]:
        """Those of the reply."""
        return tuple(
            FileOut(one.filename, one.media_type, one.size_bytes, partial(self._bytes, n))
            for n, one in enumerate(self.reply.files)
        )

    async def intend(self, index: int) -> str:
        """The part is about to be sent; what is recorded of it. Raises Unreachable, Overtaken."""
        began = self.clock()
        state = await self.api.part(self.reply, index, len(self.parts), "intent", key=self.key(index))
        self.until, self.intended = began + LEASE_S, index
        return state

    async def take_back(self, index: int) -> None:
        """The platform did not take the part, so a crash before it is tried again leaves no doubt. Raises Overtaken."""
        began = self.clock()
        with suppress(Unreachable):  # then the intent stays, and is renewed
            await self.api.part(self.reply, index, len(self.parts), "later")
            self.until, self.intended = began + LEASE_S, None

    async def record(self, index: int, outcome: Sent | Refused) -> None:
        """Until the server knows it. Raises Unreachable when the lease has ended, Overtaken."""
        of = len(self.parts)
        if isinstance(outcome, Sent):
            known = outcome.platform_message_id or None
            record = partial(self.api.part, self.reply, index, of, "sent", platform_message_id=known)
        else:
            record = partial(self.api.part, self.reply, index, of, "refused", error=told(outcome.reason))
        began = await self._insist(record)
        self.until, self.intended = began + LEASE_S, None
        point("connector_recorded")

    async def receipt(self, outcomes: Sequence[Sent | Refused], because: SendFailure | None) -> str:
        """Until the server knows what became of all parts: "sent" or "failed", which may have a reason. As `record`."""
        outcome = "sent" if any(isinstance(one, Sent) for one in outcomes) else "failed"
        ids = (one.platform_message_id for one in outcomes if isinstance(one, Sent))
        first = next((some for some in ids if some), None)
        error = told(_refusals(outcomes) if outcomes else "there is nothing to send")
        why = because if outcome == "failed" else None
        point("connector_unreported")
        known = {"platform_message_id": first, "error": error, "because": why}
        await self._insist(partial(self.api.receipt, self.reply, outcome, **known))
        point("connector_reported")
        return outcome

    async def _insist(self, call: Callable[[], Awaitable[object]]) -> float:
        """When the request began that the server answered."""
        while True:
            began = self.clock()
            try:
                await call()
            except Unreachable as error:
                if self.clock() > self.until:
                    raise
                await asyncio.sleep(error.seconds or _PAUSE_S)
            else:
                return began

    async def _bytes(self, n: int) -> AsyncIterator[bytes]:
        """Those of a file, for as long as the reply is ours: half of it is not sent by who may have been replaced."""
        self.unread = None
        try:
            async for piece in self.api.read_file(self.reply, n):
                self._require_lease()
                yield piece
        except OSError as error:
            self.unread = Later(_UNREAD_S, f"a file cannot be read: {error}")
            raise
        except ValueError as error:
            self.unread = Refused(str(error), "gone")
            raise

    def _require_lease(self) -> None:
        if self.clock() > self.until:
            raise OSError("the lease of the reply has ended")

    def unless_unread(self, outcome: Outcome) -> Outcome:
        """What became of a part, whose session knows nothing of a file that could not be read: then it is not sent."""
        unread, self.unread = self.unread, None
        return outcome if unread is None or isinstance(outcome, Sent) else unread


def _refusals(outcomes: Sequence[Sent | Refused]) -> str:
    return "; ".join(one.reason for one in outcomes if isinstance(one, Refused))


def told(reason: str) -> str | None:
    """A reason as the server takes it."""
    return reason.replace("\0", "")[:1000] or None

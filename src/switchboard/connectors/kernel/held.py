"""A reply being sent: the end of its lease, the server's records of its parts, and the bytes of its files.

`sending.py` holds one for each reply on its way. In: intents and outcomes of parts; out: requests to the server, which
renew the lease. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
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
    """`until` is the earliest end of its lease by `clock`, which returns monotonic seconds."""

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
        """The key of the part at the platform, if the platform has such keys."""
        return f"{self.reply.outbox_id}:{index}"

    def files(self) -> tuple[FileOut, ...]:
        """The files of the part."""
        return tuple(
            FileOut(one.filename, one.media_type, one.size_bytes, partial(self._bytes, n))
            for n, one in enumerate(self.reply.files)
        )

    async def intend(self, index: int) -> str:
        """Record that the part is about to be sent, retrying; returns the record. Raises as `record` does."""
        began, state = await self._insist(partial(self._intent, index))
        self.until, self.intended = began + LEASE_S, index
        return state

    async def renew(self, index: int) -> None:
        """Renew the lease while the part is being sent. Raises Unreachable, Overtaken."""
        began = self.clock()
        await self._intent(index)
        self.until = began + LEASE_S

    async def _intent(self, index: int) -> str:
        return await self.api.part(self.reply, index, len(self.parts), "intent", key=self.key(index))

    async def take_back(self, index: int) -> None:
        """Record that the platform refused the part, so a crash before the retry leaves no doubt. Raises Overtaken."""
        began = self.clock()
        with suppress(Unreachable):  # the intent stays, and is renewed
            await self.api.part(self.reply, index, len(self.parts), "later")
            self.until, self.intended = began + LEASE_S, None

    async def record(self, index: int, outcome: Sent | Refused) -> None:
        """Record the outcome, retrying. Raises Unreachable when the lease has ended, Overtaken."""
        of = len(self.parts)
        if isinstance(outcome, Sent):
            known = outcome.platform_message_id or None
            record = partial(self.api.part, self.reply, index, of, "sent", platform_message_id=known)
        else:
            record = partial(self.api.part, self.reply, index, of, "refused", error=reason_for_server(outcome.reason))
        began, _ = await self._insist(record)
        self.until, self.intended = began + LEASE_S, None
        point("connector_recorded")

    async def receipt(self, outcomes: Sequence[Sent | Refused], because: SendFailure | None) -> str:
        """Report the outcome of all parts, "sent" or "failed", perhaps with a reason. Raises as `record` does."""
        outcome = "sent" if any(isinstance(one, Sent) for one in outcomes) else "failed"
        ids = (one.platform_message_id for one in outcomes if isinstance(one, Sent))
        first = next((some for some in ids if some), None)
        error = reason_for_server(_refusals(outcomes) if outcomes else "there is nothing to send")
        why = because if outcome == "failed" else None
        point("connector_unreported")
        known = {"platform_message_id": first, "error": error, "because": why}
        await self._insist(partial(self.api.receipt, self.reply, outcome, **known))
        point("connector_reported")
        return outcome

    async def _insist(self, call: Callable[[], Awaitable[_T]]) -> tuple[float, _T]:
        """Repeat a request until the server answers; returns when the answered request began, and the answer."""
        while True:
            began = self.clock()
            try:
                return began, await call()
            except Unreachable as error:
                if self.clock() > self.until:
                    raise
                await asyncio.sleep(error.seconds or _PAUSE_S)

    async def _bytes(self, n: int) -> AsyncIterator[bytes]:
        """The bytes of a file, while we hold the lease: half a file must not be sent by a replaced process."""
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
        """The outcome of a part; not sent if a file could not be read, which the session cannot know."""
        unread, self.unread = self.unread, None
        return outcome if unread is None or isinstance(outcome, Sent) else unread


def short_key(key: str, length: int) -> str:
    """The key of a part in so many characters, of which 25 are as good as unique: lower-case letters and digits."""
    return base64.b32encode(hashlib.sha256(key.encode()).digest()).decode("ascii").lower()[:length]


def _refusals(outcomes: Sequence[Sent | Refused]) -> str:
    return "; ".join(one.reason for one in outcomes if isinstance(one, Refused))


def reason_for_server(reason: str) -> str | None:
    """A reason in a form that the server accepts."""
    return reason.replace("\0", "")[:1000] or None

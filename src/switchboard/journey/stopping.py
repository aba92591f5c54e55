"""Notifies turns, in whichever process they run, that a person wants them to end.

`turn.py` watches an item while its engine runs; `announce` notifies of stopped items. A lost notification costs a
second, since every watched turn also polls. Next: `store/work/stopping.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from switchboard.core.notices import NOTICE
from switchboard.core.turns.asking import command_in
from switchboard.core.turns.command import command_text, with_mark
from switchboard.core.turns.house import HouseCommand, command_of
from switchboard.core.turns.memory_command import MemoryWish
from switchboard.core.turns.stop import COMMAND, answer
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.domain.routing import SWITCHBOARD, Member, SystemId, TeamId
from switchboard.journey.approving import Conversations
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.store.database import Database
from switchboard.store.memory.history import begin_anew
from switchboard.store.work import stopping as store
from switchboard.tasks import cancel_tasks

STOP: Final = "stop"
"""The engine of Switchboard itself."""
_LOOK_EVERY_S: Final = 0.9


async def announce(database: Database, notifier: Notifier, stopped: Sequence[store.Stopped]) -> None:
    """Tell the workers; items waiting for another attempt get it at once, and end there."""
    for lane, seq in stopped:
        notifier.notify(_topic(lane, seq))
    if stopped and await store.wake(database, stopped):
        notifier.notify(WORK)


def built_in(system_id: SystemId, team_id: TeamId) -> Member | None:
    """Switchboard as a member; None for any other system."""
    return Member(SWITCHBOARD, team_id, 1, STOP) if system_id == SWITCHBOARD else None


class StopEngine:
    """The engine that answers commands; of a notice to operators, and of a task that is due, the text is the answer.

    `ends` says which butlers can stop in the middle of a turn; `decide` carries out what is decided in chat, and is
    given the message as `replies` returns it: with its `payload.raw`, by which commands were told when it was accepted.
    `link` answers `/link` with this code, or none, and `memory` what is wanted with `/memory`.
    """

    def __init__(
        self,
        database: Database,
        ends: Callable[[SystemId], bool],
        decide: Callable[[Turn, Envelope], Awaitable[TurnResult]],
        replies: Conversations,
        link: Callable[[Turn, Envelope, str | None], Awaitable[str]],
        memory: Callable[[Turn, MemoryWish], Awaitable[str]],
    ) -> None:
        self._database = database
        self._ends = ends
        self._decide = decide
        self._replies = replies
        self._link = link
        self._memory = memory

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        if turn.envelope.source.channel == NOTICE or turn.envelope.control.is_ours:
            return Answer(turn.envelope.payload.normalized_text)
        whole = await self._replies.whole(turn)
        mark = self._replies.channel_of(whole).command_mark
        said = command_text(whole, mark)
        if said.lower().partition("@")[0] != COMMAND:
            house = self._house_command(whole, said)
            if house is None:
                return await self._decide(turn, whole)
            if house.name == "new":  # it may have been held when it was stored, so that nothing began
                await begin_anew(self._database, [turn.request_id])
            if house.name == "link":
                return Answer(await self._link(turn, whole, house.code))
            told = house.answer if house.memory is None else await self._memory(turn, house.memory)
            return Answer(with_mark(told, mark))
        return Answer(answer([self._ends(one) for one in await store.stopped_by(self._database, turn.request_id)]))

    def _house_command(self, whole: Envelope, said: str) -> HouseCommand | None:
        """As when it was accepted: what is nearly a command may also answer a question, if it is a reply."""
        found = None if command_in(said) is not None else command_of(said)
        is_reply = found is not None and found.name == "slip" and self._replies.replied_to(whole) is not None
        return None if is_reply else found


@asynccontextmanager
async def watch_for_stop(
    database: Database, notifier: Notifier, item: Item, *, stopped: bool
) -> AsyncIterator[asyncio.Event]:
    """An event that is set as soon as the item must end; set at once if it was already `stopped`."""
    wanted = asyncio.Event()
    if stopped:
        wanted.set()
    with notifier.subscribe(_topic(item.lane, item.seq), wanted.set):
        looking = asyncio.create_task(_look(database, item, wanted))
        try:
            yield wanted
        finally:
            await cancel_tasks(looking)


def _topic(lane: object, seq: int) -> str:
    return f"stop:{lane}:{seq}"


async def _look(database: Database, item: Item, wanted: asyncio.Event) -> None:
    while not wanted.is_set():
        await asyncio.sleep(_LOOK_EVERY_S)
        with contextlib.suppress(Unavailable):
            if await store.is_wanted(database, item):
                wanted.set()

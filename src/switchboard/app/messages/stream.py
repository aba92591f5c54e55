"""The replies to a message while they are written, for one reader.

`server/http/streams.py` sends what `Stream.follow` yields; any other interface can, too. In: a message, and the
position where an earlier connection ended; out: events, the last of which is `done`. Nothing is buffered for a slow
reader. Next: `store/work/deltas.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.app.cursors import CursorText, Number, cursor_after, key_of
from switchboard.app.messages.views import MessageReplies, Views
from switchboard.app.runtime import Runtime
from switchboard.domain.errors import Overloaded
from switchboard.domain.shown import ReplyView
from switchboard.lanes.notifier import delta_topic, settled_topic
from switchboard.store.work import deltas as store
from switchboard.store.work.deltas import Asked, MessageStanding, Position, ReplyPiece
from switchboard.tasks import wait_at_most

MOST_STREAMS: Final = 50
"""How many streams a token may have open at a time, by each server process."""
_LOOK_EVERY_S: Final = 0.25
"""Poll interval, as a notification of another process may be lost; while nothing happens it grows."""
_LOOK_LEAST_OFTEN_S: Final = 1.0
_PING_EVERY_S: Final = 15.0
_NOWHERE: Final = Position(0, 0)

StreamEventKind = Literal["delta", "reset", "tool", "tool_end", "status", "waiting", "reply", "done", "ping"]


@dataclass(frozen=True, slots=True)
class Reset:
    """The text that a butler has streamed is void. `step` is the number of the model request that writes it.

    `attempt` grows from one attempt of a turn to the next.
    """

    system_id: str
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class TextDelta(Reset):
    """More of a reply: its text is now `text_so_far[:offset] + text`. `offset` counts Unicode code points."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolUse(Reset):
    """A butler calls the tool of this name. `arguments`: what with, for operators: the beginning of the JSON."""

    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ToolEnd(Reset):
    """The call of the tool of this name has ended. `ok`: it succeeded."""

    name: str
    ok: bool


@dataclass(frozen=True, slots=True)
class TurnStatus(Reset):
    """What a butler does before it writes more, and for about how many `seconds`. `reading`: its slow model reads."""

    phase: Literal["reading"]
    seconds: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn waits for another attempt, because something its engine needs has failed with `error_class`.

    With `asked`, nothing has failed: it waits until people have decided about all of these.
    """

    system_id: str
    engine: str = ""
    error_class: str = ""
    asked: Sequence[Asked] = ()


class StreamEvent(Struct, frozen=True):
    """An event for a reader. It can continue after an `id`; "": not here. `ping`: nothing has happened for a while."""

    kind: StreamEventKind
    data: Reset | Waiting | ReplyView | MessageReplies | None = None
    id: str = ""


class _Told(Struct, frozen=True):
    """The reader's state for one butler."""

    position: Position = _NOWHERE
    step: int = 0
    text: str = ""


class StreamService:
    """Opens streams for callers."""

    def __init__(self, runtime: Runtime, views: Views) -> None:
        self._runtime = runtime
        self._views = views
        self._open = Counter[str]()

    @contextmanager
    def place(self, caller: Principal) -> Iterator[None]:
        """One of a token's concurrent streams. Raises Overloaded."""
        if self._open[caller.name] >= MOST_STREAMS:
            why = f"{MOST_STREAMS} streams of this token are open, which is the most: end one of them first"
            raise Overloaded(why, retry_after=1.0)
        self._open[caller.name] += 1
        try:
            yield
        finally:
            self._open[caller.name] -= 1

    async def open(self, caller: Principal, request_id: UUID, after: str | None = None) -> Stream:
        """From the beginning, or after the event with this id. Raises NotFound, InvalidInput."""
        await self._views.own(caller, request_id)
        replied, positions = key_of(after, tuple[set[UUID], dict[CursorText, tuple[Number, Number]]]) or (set(), {})
        stream = Stream(self._runtime, self._views, request_id, replied)
        stream.tells_arguments = caller.role == "operator"
        await stream.skip({system_id: Position(*position) for system_id, position in positions.items()})
        return stream


class Stream:
    """One reader of one message."""

    def __init__(self, runtime: Runtime, views: Views, request_id: UUID, replied: Iterable[UUID] = ()) -> None:
        self._runtime = runtime
        self._views = views
        self._request_id = request_id
        self._replied = set(replied)
        """The replies that were told. Their ids do not grow in the order in which they are stored."""
        self._told: dict[str, _Told] = {}
        self._resumed: set[str] = set()
        """Butlers of which the reader may have a text that is not here any more."""
        self._unsure: set[str] = set()
        """Butlers of which the reader may have another text: it was cut off between events that belong together."""
        self._waiting: Mapping[str, tuple[str, str]] = {}
        self._asked: Mapping[str, Sequence[Asked]] = {}
        self.tells_arguments = False
        """Whether the reader may see what tools are called with: it can be more than the person may know."""

    async def skip(self, positions: Mapping[str, Position]) -> None:
        """Mark the text up to these positions as known to the reader, as far as it still exists."""
        while known := [one for one in await self._read() if one.position <= positions.get(one.system_id, _NOWHERE)]:
            for one in known:
                self._piece(one)
        self._told = {system_id: _Told(position) for system_id, position in positions.items()} | self._told
        self._resumed = set(positions)
        self._unsure = set(positions)

    def texts(self) -> Mapping[str, str]:
        """What butlers have written, as far as the reader was told."""
        return {system_id: told.text for system_id, told in self._told.items() if told.text}

    async def follow(
        self, gone: asyncio.Event, wait_s: float, allowed: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[StreamEvent]:
        """Yield events until all is settled, `gone` is set, `wait_s` seconds are over, or it is no longer `allowed`.

        A reply comes after deltas that fold to its text, even if pieces were lost before.
        """
        now = asyncio.get_running_loop().time
        end_at, look_at, ping_at, pause = now() + wait_s, 0.0, now() + _PING_EVERY_S, _LOOK_EVERY_S
        with self._listening() as signals:
            while True:
                over = gone.is_set() or now() >= end_at
                if (looking := signals.has_newly_settled() or now() >= look_at) and not await allowed():
                    return
                events = await self._collect_events(looking=looking)
                if looking or events:
                    pause = pause_after(pause, quiet=not events)
                    look_at = now() + pause
                if not events and now() >= ping_at:
                    events = [StreamEvent("ping")]
                for event in events:
                    yield event
                    ping_at = now() + _PING_EVERY_S
                if over or (events and events[-1].kind == "done"):
                    return
                await signals.wait(min(look_at, end_at) - now())

    async def _collect_events(self, *, looking: bool) -> list[StreamEvent]:
        # The state is read first, so that everything settled by then has its replies.
        progress = await store.look(self._runtime.database, self._request_id) if looking else None
        events = [event for one in await self._read() for event in self._piece(one)]
        return events if progress is None else events + await self._apply_progress(progress)

    async def _read(self) -> list[ReplyPiece]:
        positions = {system_id: told.position for system_id, told in self._told.items()}
        return await store.read(self._runtime.database, self._request_id, positions)

    def _piece(self, one: ReplyPiece) -> list[StreamEvent]:
        """The event for a piece; if earlier ones were lost, its text waits for the reply."""
        known = self._told.get(one.system_id, _Told())
        before = known.text if one.epoch == known.position.epoch else ""
        fits = one.kept <= len(before) and not one.doing
        text = one.upon(before)
        self._told[one.system_id] = _Told(one.position, one.step, text)
        of = (one.system_id, one.epoch, one.step)
        events = [StreamEvent("reset", Reset(*of))] if known.text and not before[: one.kept] else []
        if (status := one.status) is not None:
            events.append(StreamEvent("status", TurnStatus(*of, status.phase, status.seconds)))
        elif (ended := one.ended) is not None:
            events.append(StreamEvent("tool_end", ToolEnd(*of, *ended)))
        elif one.doing:
            events.append(StreamEvent("tool", ToolUse(*of, one.doing, one.text if self.tells_arguments else "")))
        elif fits and (one.text or one.kept):
            events.append(StreamEvent("delta", self._delta(*of, one.kept, text)))
        return self._add_cursor(events)

    def _delta(self, system_id: str, attempt: int, step: int, offset: int, text: str) -> TextDelta:
        """The delta that extends the reader's first `offset` characters to `text`, if the rest is certain."""
        kept = 0 if system_id in self._unsure else offset
        self._unsure.discard(system_id)
        return TextDelta(system_id, attempt, step, kept, text[kept:])

    async def _apply_progress(self, progress: MessageStanding) -> list[StreamEvent]:
        newly_waiting = progress.waiting.items() - self._waiting.items()
        events = [event for one in sorted(newly_waiting) for event in self._waits(Waiting(one[0], *one[1]))]
        self._waiting = progress.waiting
        settled = progress.state != "in_flight"
        if progress.replies > len(self._replied) or settled:
            events += await self._new_replies(progress.state, settled=settled)
        if settled:
            return events
        # After the reply that says who decides, and how.
        newly_asked = {name: asked for name, asked in progress.asked.items() if asked != self._asked.get(name)}
        self._asked = progress.asked
        return events + [event for one in newly_asked.items() for event in self._waits(Waiting(one[0], asked=one[1]))]

    async def _new_replies(self, state: str, *, settled: bool) -> list[StreamEvent]:
        replies = await self._views.replies_so_far(self._request_id)
        new = [one for one in replies if one.outbox_id not in self._replied]
        events = [event for one in new for event in self._reply(one)]
        if not settled:
            return events
        voided = self._reset_events({one.system_id for one in replies})
        return events + self._add_cursor([*voided, StreamEvent("done", MessageReplies(settled, state, replies))])

    def _reset_events(self, replied: set[str]) -> list[StreamEvent]:
        """Resets for butlers that have written text and do not reply."""
        told = {system_id for system_id, known in self._told.items() if known.text} | self._resumed
        return [_reset(system_id, self._told[system_id]) for system_id in sorted(told - replied)]

    def _waits(self, waiting: Waiting) -> list[StreamEvent]:
        """The text of the attempt is void."""
        system_id = waiting.system_id
        known = self._told.get(system_id, _Told())
        self._told[system_id] = replace(known, text="")
        return self._add_cursor([_reset(system_id, known)] * bool(known.text) + [StreamEvent("waiting", waiting)])

    def _reply(self, reply: ReplyView) -> list[StreamEvent]:
        known = self._told.get(reply.system_id, _Told())
        self._told[reply.system_id] = replace(known, text=reply.text)
        self._replied.add(reply.outbox_id)
        told = known.text == reply.text and reply.system_id not in self._unsure
        if told:
            return self._add_cursor([StreamEvent("reply", reply)])
        of = (reply.system_id, known.position.epoch, known.step)
        rest = self._delta(*of, _same(known.text, reply.text), reply.text)
        return self._add_cursor([StreamEvent("delta", rest), StreamEvent("reply", reply)])

    def _add_cursor(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """A client cannot resume between events that belong together."""
        if not events:
            return []
        cursor = cursor_after(self._replied, {system_id: told.position for system_id, told in self._told.items()})
        return [*events[:-1], replace(events[-1], id=cursor)]

    @contextmanager
    def _listening(self) -> Iterator[_Signals]:
        signals, notifier = _Signals(), self._runtime.notifier
        with (
            notifier.subscribe(delta_topic(self._request_id), signals.more),
            notifier.subscribe(settled_topic(self._request_id), signals.settle),
        ):
            yield signals


class _Signals:
    """Signals of the notifier: there is more to read, or something was settled."""

    def __init__(self) -> None:
        self._given = asyncio.Event()
        self._settled = False

    def more(self) -> None:
        self._given.set()

    def settle(self) -> None:
        self._settled = True
        self._given.set()

    def has_newly_settled(self) -> bool:
        """Whether something was settled since the last time."""
        settled, self._settled = self._settled, False
        return settled

    async def wait(self, seconds: float) -> None:
        """Wait for a signal, at most this long; one since the last wait counts."""
        await wait_at_most(seconds, self._given)
        self._given.clear()


def pause_after(pause: float, *, quiet: bool) -> float:
    """Seconds until the next look, after one that followed a pause."""
    return min(2 * pause, _LOOK_LEAST_OFTEN_S) if quiet else _LOOK_EVERY_S


def _reset(system_id: str, known: _Told) -> StreamEvent:
    return StreamEvent("reset", Reset(system_id, known.position.epoch, known.step))


def _same(one: str, other: str) -> int:
    """The length of the common prefix."""
    if other.startswith(one):
        return len(one)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

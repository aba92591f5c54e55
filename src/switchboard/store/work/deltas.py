"""The text that running turns write, piece by piece, for readers of the stream: an unlogged table.

Written by `journey/deltas.py`, read by `app/messages/stream.py` and `app/connectors/drafts.py`. Each function is one
transaction, and none of them waits for a disk. Nothing here is ever needed for a reply, which is settled with its turn
(`store/work/lanes.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.domain.message import RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.engine import Delta, TurnPhase
from switchboard.store.database import Database, arrays, part_as, query, rows_as

_OK: Final = "ok"
_FAILED: Final = "failed"


class Writer(NamedTuple):
    """An attempt of a turn: its text replaces that of earlier attempts (with a lower epoch)."""

    request_id: RequestId
    system_id: SystemId
    epoch: int


class Position(NamedTuple):
    """How far a reader has read a butler's text. Grows within an attempt, and from one to the next."""

    epoch: int
    n: int


class ReplyPiece(Struct, frozen=True):
    """A piece as read: keep the first `kept` characters of the butler's text, then append `text`.

    `doing`: the name of a tool whose call begins, with its arguments in `text`; how a call has ended, as `ok:NAME` or
    `failed:NAME`; or a status, as `reading:40`. No tool has a colon in its name.
    """

    system_id: str
    epoch: int
    n: int
    step: int
    kept: int
    text: str
    doing: str

    @property
    def position(self) -> Position:
        """The position of the piece."""
        return Position(self.epoch, self.n)

    @property
    def status(self) -> TurnPhase | None:
        """What the butler is doing besides, as stored."""
        phase, _, seconds = self.doing.partition(":")
        return TurnPhase("reading", int(seconds)) if phase == "reading" and seconds.isdecimal() else None

    @property
    def ended(self) -> tuple[str, bool] | None:
        """The tool of a call that has ended, and whether it succeeded."""
        outcome, colon, name = self.doing.partition(":")
        return (name, outcome == _OK) if colon and outcome in {_OK, _FAILED} else None

    def upon(self, before: str) -> str:
        """The butler's text after this piece; one that does not fit, since earlier ones were lost, changes nothing."""
        return before[: self.kept] + self.text if self.kept <= len(before) and not self.doing else before


class WritingTurn(Struct, frozen=True):
    """A turn that runs for a person who is alone with the account; `address` is that of the message it answers."""

    conversation: str
    address: JsonObject
    request_id: RequestId
    system_id: SystemId
    epoch: int

    @property
    def writer(self) -> Writer:
        """The attempt that writes."""
        return Writer(self.request_id, self.system_id, self.epoch)


def _doing(one: Delta) -> str:
    if one.status:
        return f"{one.status.phase}:{one.status.seconds}"
    return one.tool if one.succeeded is None else f"{_OK if one.succeeded else _FAILED}:{one.tool}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to people while a turn waits: an approval of a tool call, or any other question."""

    approval_id: UUID
    kind: Literal["call", "question"]
    tool: str


class MessageStanding(Struct, frozen=True):
    """A message: its state, its number of replies, and what butlers wait for.

    `waiting`: for another attempt: (engine, class of error). `asked`: for people.
    """

    state: str
    replies: int
    waiting: Mapping[str, tuple[str, str]]
    asked: Mapping[str, Sequence[Asked]]


async def write(database: Database, pieces: Sequence[tuple[Writer, int, Delta]]) -> None:
    """Add pieces; each number is higher than all earlier ones of its writer."""
    rows = [(*writer, n, one.step, one.offset, one.text or one.arguments, _doing(one)) for writer, n, one in pieces]
    await database.run(query("deltas.write"), *arrays(rows, 8))


async def remove(database: Database, ended: Sequence[Writer]) -> None:
    """Remove the pieces of these attempts and of earlier ones, which are no longer needed."""
    await database.run(query("deltas.remove"), *arrays(ended, 3))


async def read(database: Database, request_id: UUID, positions: dict[str, Position]) -> list[ReplyPiece]:
    """At most 1,000 pieces beyond these positions; those of one butler in order."""
    seen = [(system_id, *position) for system_id, position in positions.items()]
    return rows_as(ReplyPiece, await database.rows(query("deltas.read"), request_id, *arrays(seen, 3)))


async def writing_turns(database: Database, channel: str, endpoint: str, limit: int) -> list[WritingTurn]:
    """The turns of an account that may be writing, at most one in each conversation."""
    return rows_as(WritingTurn, await database.rows(query("deltas.writing_turns"), channel, endpoint, limit))


async def new_pieces(database: Database, read_to: Mapping[Writer, int]) -> list[tuple[Writer, ReplyPiece]]:
    """At most 2,000 pieces of these attempts beyond the given numbers; those of one in order."""
    rows = await database.rows(query("deltas.new_pieces"), *arrays([(*writer, n) for writer, n in read_to.items()], 4))
    return [(Writer(row["request_id"], row["system_id"], row["epoch"]), part_as(ReplyPiece, row)) for row in rows]


async def look(database: Database, request_id: UUID) -> MessageStanding:
    """The standing of a message."""
    [found] = await database.rows(query("deltas.look"), request_id)
    waiting = {system_id: (engine, error_class) for system_id, engine, error_class in found["waiting"]}
    asked: defaultdict[str, list[Asked]] = defaultdict(list)
    for system_id, approval_id, kind, tool in found["asked"]:
        asked[system_id].append(Asked(UUID(approval_id), kind, tool))
    return MessageStanding(found["state"], found["replies"], waiting, asked)


async def forget(database: Database, age: timedelta) -> int:
    """Remove pieces left by crashed workers; returns how many."""
    return await database.change_rows(query("deltas.forget"), age)

"""What butlers have written so far of answers to people who are alone with an account, for its connector.

HTTP calls `DraftService` with the caller's `Principal`, about once a second while a turn of the account runs, and
otherwise never. Each call reads only what is new; what was read before is kept here, and read again by a process that
does not have it. Next: `store/work/deltas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from msgspec import Struct

from switchboard.app.access import Access, Principal
from switchboard.app.connectors.accounts import AccountId
from switchboard.app.messages.blobs import OUTBOX
from switchboard.domain.json_values import JsonObject
from switchboard.store.database import Database
from switchboard.store.work import deltas as store
from switchboard.store.work.deltas import Writer, WritingTurn

_MOST_TURNS: Final = 100
_MOST: Final = 5000
"""Characters that are kept of a text: no platform shows more in a draft."""
_MOST_ACCOUNTS: Final = 100


@dataclass(frozen=True, slots=True)
class WrittenSoFar:
    """The beginning of an answer, up to 5,000 characters. `number`: 1 to 2**31 - 1, the same while it is written.

    `address` is the `event.reply_address` of the message that is being answered.
    """

    conversation: str
    number: int
    text: str
    address: JsonObject


class _Read(Struct, frozen=True):
    """The text of an attempt, up to its piece `n`."""

    n: int = 0
    text: str = ""


class DraftService:
    """Reads for connectors; an operator may stand in for any of them."""

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access
        self._read: dict[AccountId, Mapping[Writer, _Read]] = {}

    async def texts(self, caller: Principal, account: AccountId) -> list[WrittenSoFar]:
        """The texts that are not empty. Raises Forbidden."""
        await self._access.check_endpoint(caller, OUTBOX, account.channel, account.endpoint)
        turns = await store.writing_turns(self._database, account.channel, account.endpoint, _MOST_TURNS)
        before = self._read.pop(account, {})
        read = {turn.writer: before.get(turn.writer, _Read()) for turn in turns}
        if not read:
            return []
        for writer, piece in await store.new_pieces(self._database, {writer: one.n for writer, one in read.items()}):
            read[writer] = _Read(piece.n, piece.upon(read[writer].text)[:_MOST])
        self._keep(account, read)
        return [_draft_of_turn(turn, read[turn.writer].text) for turn in turns if read[turn.writer].text]

    def _keep(self, account: AccountId, read: Mapping[Writer, _Read]) -> None:
        """Keep what was read for the next call; of accounts that have not asked for long, nothing."""
        self._read[account] = read
        while len(self._read) > _MOST_ACCOUNTS:
            del self._read[next(iter(self._read))]


def _draft_of_turn(turn: WritingTurn, text: str) -> WrittenSoFar:
    mark = sha256(f"{turn.request_id} {turn.system_id}".encode()).digest()
    number = int.from_bytes(mark[:4]) % (2**31 - 1) + 1
    return WrittenSoFar(turn.conversation, number, text, turn.address)

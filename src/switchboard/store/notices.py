"""What operators have not been told of yet, and where they can be told.

Called by `app/notices.py`. In: kinds and addresses; out: what has happened, oldest first, and the standing of a chat.
Next: `store/messages/inbox.py`, which stores the notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.envelope.identity import chat_conversation
from switchboard.core.notices import NOTICE, ChatAddress, NoticeKind, Unnoticed
from switchboard.core.people.strangers import Contact
from switchboard.domain.json_values import JsonObject
from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.people.strangers import contact_key

LOG: Final = ""
"""In place of an address."""


class ChatStanding(Struct, frozen=True):
    """`reply_address`: where its messages say that replies go; `stuck`: the last notice could not be sent there."""

    approved: bool = False
    reply_address: JsonObject | None = None
    stuck: bool = False


async def unnoticed(database: Database, limit: int) -> list[Unnoticed]:
    """What operators have not been told of, up to `limit` of each kind, oldest first."""
    await database.run(query("notices.pass_decided"))
    return rows_as(Unnoticed, await database.rows(query("notices.unnoticed"), limit))


async def note_sign_ins(database: Database, ends: Sequence[Unnoticed]) -> None:
    """Note which sign-ins have ended or will; what is known stays as it is, so that each end is told of once."""
    columns = [list(one) for one in zip(*((end.kind, end.key, end.detail, end.account) for end in ends), strict=True)]
    if columns:
        await database.run(query("notices.note_sign_ins"), *columns)


async def take(transaction: Database, kind: NoticeKind, address: str, keys: Sequence[str]) -> int:
    """Take these events for a notice of the same transaction; returns how many. 0: no notice is to be made now."""
    return int(await transaction.value(query("notices.take"), kind, address, list(keys)))


async def standing(database: Database, address: ChatAddress) -> ChatStanding:
    """What is known of a chat."""
    keys = await database.keys()
    who = [Contact(address.channel, address.endpoint, scope, address.chat) for scope in ("person", "group")]
    row = await database.row(
        query("notices.standing"),
        [contact_key(keys, one) for one in who],
        keys.conversation(chat_conversation(address.channel, address.endpoint, address.chat)),
        keys.conversation(chat_conversation(NOTICE, address.account, address.name)),
    )
    return row_as(ChatStanding, row) or ChatStanding()

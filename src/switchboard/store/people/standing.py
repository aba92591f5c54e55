"""Whether a person may still write, and whether the account is still in service, of which something is due.

`app/front_door.py` asks before it submits anything. Next: `strangers.py`.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from switchboard.core.people.strangers import Contact
from switchboard.domain.shown import ContactState
from switchboard.store.database import Database, part_as, query
from switchboard.store.people.strangers import contact_key


class MakerStanding(Struct, frozen=True):
    """What an operator has decided about a contact, if anything; and whether the account was taken out of service."""

    contact: ContactState | None
    gone: bool


async def standing_of(database: Database, account: tuple[str, str], contact: Contact | None) -> MakerStanding:
    """The standing of a contact at an account, a channel and an endpoint. Raises `Unavailable`."""
    key = None if contact is None else UUID(contact_key(await database.keys(), contact))
    row = await database.row(query("front_door.standing"), key, *account)
    return MakerStanding(None, gone=False) if row is None else part_as(MakerStanding, row)

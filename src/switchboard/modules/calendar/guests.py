"""Whom a person means to invite: addresses as they are, names by the address books of the caller.

`write_plans.py` calls it before anything is written or approved. Next: `modules/accounts/addressees.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from switchboard.modules.accounts.addressees import UnresolvedAddressee, resolve_addressees
from switchboard.modules.calendar.editing.fields import Guest
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.tools import ToolScope


async def resolve_guests(resolver: ContactResolver | None, scope: ToolScope, named: Iterable[str]) -> tuple[Guest, ...]:
    """Raises CalendarRefusal for a name that is nobody's, or could be that of several."""
    try:
        found = await resolve_addressees(resolver, scope, named)
    except UnresolvedAddressee as error:
        raise CalendarRefusal(f"nothing was written: {error}") from error
    return tuple(Guest(one.address, one.name) for one in found)

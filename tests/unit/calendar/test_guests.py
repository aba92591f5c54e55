"""Whom a person means to invite: nobody is invited at an address that was chosen for them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.guests import resolve_guests
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.ports.tools import ToolScope

WORK, HOME = "ben@work.example", "ben@home.example"
SCOPE = ToolScope(Path(), frozenset(), frozenset(), uuid4(), uuid4())


class OneBen(Struct, frozen=True):
    """Ben, who is certain, as he stands in several books."""

    emails: tuple[str, ...]
    others: tuple[tuple[str, ...], ...] = ()

    async def resolve(self, scope: ToolScope, who: str) -> JsonObject:  # noqa: ARG002
        also = [{"id": f"home/b/{number}", "emails": list(one)} for number, one in enumerate(self.others)]
        found = {"id": "ann/b/1", "name": "Ben", **({"emails": list(self.emails)} if self.emails else {})}
        return {"certain": True, "people": [{**found, **({"also": also} if also else {})}]}


@pytest.mark.parametrize(
    ("ben", "invited"),
    [
        (OneBen((WORK,)), WORK),
        (OneBen((WORK,), ((WORK.upper(),),)), WORK),
        (OneBen((), ((HOME,),)), HOME),
        (OneBen((WORK,), ((HOME,),)), f"has several addresses: {WORK}, {HOME}; ask which one"),
        (OneBen((WORK,), ((WORK,), (HOME,))), f"has several addresses: {WORK}, {HOME}; ask which one"),
        (OneBen((), ((),)), "has no mail address"),
    ],
)
async def test_somebody_in_several_books_has_the_addresses_of_all(ben: OneBen, invited: str) -> None:
    if invited in (WORK, HOME):
        [guest] = await resolve_guests(ben, SCOPE, ["ben"])
        assert (guest.address, guest.name) == (invited, "Ben")
    else:
        with pytest.raises(CalendarRefusal, match=invited):
            await resolve_guests(ben, SCOPE, ["ben"])

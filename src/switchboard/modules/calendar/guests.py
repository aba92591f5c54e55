"""Whom a person means to invite: addresses as they are, names by the address books of the caller.

`write_plans.py` calls it before anything is written or approved. Two who may be meant are both told, and nobody is
invited until one of them is named by address or id. Next: `ports/contact_resolver.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.describing import clip_text
from switchboard.modules.calendar.editing.fields import Guest
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.tools import ToolScope

_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"]{1,64}@[^\s@<>,;:\"]+\.[^\s@<>,;:\"]+")
_TOLD: Final = 5


async def resolve_guests(resolver: ContactResolver | None, scope: ToolScope, named: Iterable[str]) -> tuple[Guest, ...]:
    """Raises CalendarRefusal for a name that is nobody's, or could be that of several."""
    found: dict[str, Guest] = {}
    for one in named:
        guest = await _resolve_one(resolver, scope, one.strip())
        found.setdefault(guest.address.lower(), guest)
    return tuple(found.values())


async def _resolve_one(resolver: ContactResolver | None, scope: ToolScope, named: str) -> Guest:
    if _ADDRESS.fullmatch(named):
        return Guest(named)
    if resolver is None:
        raise CalendarRefusal(
            f"nothing was written: there are no contacts here to look up {named[:100]!r}; give an address"
        )
    try:
        said = await resolver.resolve(scope, named)
    except LookupError as error:
        raise _guest_refusal(named, f"cannot be looked up: {error}") from error
    people: Sequence[Mapping[str, Any]] = said.get("people", ())
    if not people:
        raise CalendarRefusal(
            f"nothing was written: nobody called {named[:100]!r} is in the contacts; ask for the address"
        )
    if not said.get("certain"):
        raise _guest_refusal(named, f"may be {_tell_people(people)}. Ask which one, and name that by address or id")
    return _guest_from(named, people[0])


def _guest_refusal(named: str, why: str) -> CalendarRefusal:
    return CalendarRefusal(f"nothing was written: {named[:100]!r} {why}")


def _tell_people(people: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(map(_tell_person, people[:_TOLD]))


def _tell_person(one: Mapping[str, Any]) -> str:
    addresses = ", ".join(_addresses_of(one)) or "no address"
    return f"{clip_text(str(one.get('name', '')))} ({addresses}, id {one.get('id', '')})"


def _guest_from(named: str, person: Mapping[str, Any]) -> Guest:
    addresses, name = _addresses_of(person), clip_text(str(person.get("name", "")), 100)
    if len(addresses) == 1:
        return Guest(addresses[0], name)
    if not addresses:
        raise _guest_refusal(name or named, "has no mail address in the contacts; ask for it")
    raise _guest_refusal(name or named, f"has several addresses: {', '.join(addresses)}; ask which one")


def _addresses_of(person: Mapping[str, Any]) -> list[str]:
    """Those of all their cards, each once."""
    cards: Iterable[Mapping[str, Any]] = (person, *person.get("also", ()))
    entries: Iterable[str | JsonObject] = (entry for card in cards for entry in card.get("emails", ()))
    values = [one if isinstance(one, str) else str(one.get("value", "")) for one in entries]
    return [*{one.lower(): one for one in reversed(values) if _ADDRESS.fullmatch(one)}.values()][::-1]

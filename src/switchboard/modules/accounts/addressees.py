"""Whom a person means by a name, when something is to be sent: addresses as they are, names by the caller's contacts.

Modules that invite or write to people call it before anything is approved. Two who may be meant are both told, and
nobody is written to until one of them is named by address or id. Next: `ports/contact_resolver.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from switchboard.core.text.visible import visible, visible_start
from switchboard.domain.json_values import JsonObject
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.tools import ToolScope

_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"]{1,64}@[^\s@<>,;:\"]+\.[^\s@<>,;:\"]+")
_MAILBOX: Final = re.compile(rf"[^<>]*<({_ADDRESS.pattern})>")
_PERSON: Final = re.compile(r" \(person [\w-]+\)\Z")
"""How prompts call a linked person, which models write behind other names, too."""
_TOLD: Final = 5
_LONGEST: Final = 200


class UnresolvedAddressee(LookupError):
    """A clause for the model: who is not certain, and what would be right."""


class Addressee(Struct, frozen=True):
    """An address, and the name that the contacts have for it; empty: the address was given."""

    address: str
    name: str = ""


async def resolve_addressees(
    resolver: ContactResolver | None, scope: ToolScope, named: Iterable[str]
) -> tuple[Addressee, ...]:
    """Each address once. Raises UnresolvedAddressee for a name that is nobody's, or could be that of several."""
    found: dict[str, Addressee] = {}
    for one in named:
        addressee = await _resolve_one(resolver, scope, one.strip())
        found.setdefault(addressee.address.lower(), addressee)
    return tuple(found.values())


async def _resolve_one(resolver: ContactResolver | None, scope: ToolScope, named: str) -> Addressee:
    named = _PERSON.sub("", named)
    if (given := _ADDRESS.fullmatch(named) or _MAILBOX.fullmatch(named)) is not None:
        return Addressee(given[given.lastindex or 0])
    if resolver is None:
        raise UnresolvedAddressee(f"there are no contacts here to look up {named[:100]!r}; give an address")
    try:
        said = await resolver.resolve(scope, named)
    except LookupError as error:
        raise _refuse_name(named, f"cannot be looked up: {error}") from error
    people: Sequence[Mapping[str, Any]] = said.get("people", ())
    if not people:
        raise UnresolvedAddressee(
            f"nobody called {named[:100]!r} is in the contacts; write the name as they said it, or ask for the address"
        )
    if not said.get("certain"):
        raise _refuse_name(named, f"may be {_tell_people(people)}. Ask which one, and name that by address or id")
    return _addressee_from(named, people[0])


def _refuse_name(named: str, why: str) -> UnresolvedAddressee:
    return UnresolvedAddressee(f"{named[:100]!r} {why}")


def _tell_people(people: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(map(_tell_person, people[:_TOLD]))


def _tell_person(one: Mapping[str, Any]) -> str:
    addresses = ", ".join(_addresses_of(one)) or "no address"
    return f"{_clip_name(str(one.get('name', '')))} ({addresses}, id {one.get('id', '')})"


def _addressee_from(named: str, person: Mapping[str, Any]) -> Addressee:
    addresses, name = _addresses_of(person), _clip_name(str(person.get("name", "")), 100)
    if len(addresses) == 1:
        return Addressee(addresses[0], name)
    if not addresses:
        raise _refuse_name(name or named, "has no mail address in the contacts; ask for it")
    raise _refuse_name(name or named, f"has several addresses: {', '.join(addresses)}; ask which one")


def _addresses_of(person: Mapping[str, Any]) -> list[str]:
    """Those of all their cards, each once."""
    cards: Iterable[Mapping[str, Any]] = (person, *person.get("also", ()))
    entries: Iterable[str | JsonObject] = (entry for card in cards for entry in card.get("emails", ()))
    values = [one if isinstance(one, str) else str(one.get("value", "")) for one in entries]
    return [*{one.lower(): one for one in reversed(values) if _ADDRESS.fullmatch(one)}.values()][::-1]


def _clip_name(text: str, most: int = _LONGEST) -> str:
    return visible_start(" ".join(visible(text).split()), most)

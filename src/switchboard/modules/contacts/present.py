"""What is told of a card: data that others wrote, of limited size, without invisible characters, and with its origin.

`looking.py` and `writing.py` call it. In: a `KeptCard`; out: JSON. Pure.
"""

from __future__ import annotations

from typing import Final

from switchboard.core.text.visible import visible_start
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.contacts.books import KeptCard, local_time
from switchboard.modules.contacts.cards import Card, CardWay, card_of

IN_LISTS: Final = 500
"""Characters of a field."""
ALONE: Final = 4_000
"""The same, where one card is told."""
_WAYS_IN_LISTS: Final = 5
_WAYS_ALONE: Final = 50
_CATEGORIES: Final = 20


def listed_contact(kept: KeptCard, *, as_person: bool = True) -> JsonObject:
    """A card among others: what identifies the person, and how to reach them."""
    card = _card_in(kept)
    told: JsonObject = {"id": str(kept.contact_id)}
    if as_person:
        told["name"] = visible_start(card.name, IN_LISTS)
    told |= _without_empty(
        organisation=visible_start(card.organisation, IN_LISTS), title=visible_start(card.title, IN_LISTS)
    )
    return told | _ways_of(card, _WAYS_IN_LISTS, IN_LISTS) | {"from": _origin_of(kept)}


def whole_contact(kept: KeptCard, zone: str) -> JsonObject:
    """All that is told of a card."""
    card = _card_in(kept)
    told: JsonObject = {"id": str(kept.contact_id), "name": visible_start(card.name, IN_LISTS)}
    told |= _without_empty(
        given=visible_start(card.given, IN_LISTS),
        family=visible_start(card.family, IN_LISTS),
        nicknames=[visible_start(one, IN_LISTS) for one in card.nicknames[:_CATEGORIES]],
        organisation=visible_start(card.organisation, IN_LISTS),
        title=visible_start(card.title, IN_LISTS),
        birthday=visible_start(card.birthday, IN_LISTS),
        categories=[visible_start(one, IN_LISTS) for one in card.categories[:_CATEGORIES]],
        note=visible_start(card.note, ALONE),
    )
    told |= _ways_of(card, _WAYS_ALONE, IN_LISTS)
    written = "others" if kept.written_at is None else f"Switchboard, {local_time(kept.written_at, zone)}"
    return told | {"from": {**_origin_of(kept), "last_written_by": written}}


def name_of(kept: KeptCard) -> str:
    """The name on a card, for sentences."""
    return visible_start(_card_in(kept).name, 100)


def _card_in(kept: KeptCard) -> Card:
    try:
        return card_of(kept.found.data)
    except InvalidInput:  # the mirror keeps why, and does not find it
        return Card("", "(cannot be read)", "")


def _origin_of(kept: KeptCard) -> JsonObject:
    return {"account": kept.book.account, "book": visible_start(kept.book.name or kept.book.label, 100)}


def _ways_of(card: Card, most: int, longest: int) -> JsonObject:
    told: JsonObject = {}
    for name, kind in (("emails", "email"), ("phones", "phone"), ("handles", "handle"), ("addresses", "address")):
        ways = [way for way in card.ways if way.kind == kind]
        if ways:
            told[name] = [_way_text(way, longest) for way in ways[:most]]
        if len(ways) > most:
            told[f"more_{name}"] = len(ways) - most
    return told


def _way_text(way: CardWay, longest: int) -> str | JsonObject:
    value = visible_start(way.value, longest)
    return {"value": value, "label": visible_start(way.label, 50)} if way.label else value


def _without_empty(**fields: object) -> JsonObject:
    return {name: value for name, value in fields.items() if value}

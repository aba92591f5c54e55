"""What contacts make of the cards that are mirrored for them: words of names, and keys of the ways to reach somebody.

The mirror (`modules/mirror`) calls it for each card. Next: `resolve.py`, which looks for people by what is kept here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from switchboard.domain.errors import InvalidInput
from switchboard.modules.contacts.cards import Card, card_of
from switchboard.modules.contacts.keys import index_words, key_of, search_words
from switchboard.modules.mirror.kept import SHARED_SQL
from switchboard.ports.module_store import ModuleStore

SYNC_EVERY_S: Final = 900.0
CONTACTS_SQL: Final = (SHARED_SQL, "switchboard.modules.contacts.sql")
_MOST_WAYS: Final = 100


class CardKeeper:
    """`MirrorKeeper` of cards. `region` is the country of numbers without its code, such as `DE`."""

    def __init__(self, region: str = "") -> None:
        self._region = region

    async def on_kept(self, store: ModuleStore, collection: str, name: str, data: bytes) -> str:
        """By what the card is found. One that cannot be read is not found."""
        await store.run("people.forget_card", collection, name)
        try:
            card = await asyncio.to_thread(card_of, data)
        except InvalidInput as error:
            return error.message
        words = search_words(card)
        await store.run("people.find_card", collection, name, card.name.replace("\0", ""), words, index_words(words))
        await self._keep_ways(store, collection, name, card)
        return ""

    async def on_gone(self, store: ModuleStore, collection: str, name: str) -> None:
        """It is not found any more."""
        await store.run("people.forget_card", collection, name)

    async def on_erased(self, store: ModuleStore) -> None:
        """All that is kept refers to cards."""

    async def _keep_ways(self, store: ModuleStore, collection: str, name: str, card: Card) -> None:
        ways = card.ways[:_MOST_WAYS]
        columns = (
            range(len(ways)),
            [way.kind for way in ways],
            [way.value.replace("\0", "") for way in ways],
            [key_of(way.kind, way.value, self._region).replace("\0", "") for way in ways],
            [way.label.replace("\0", "") for way in ways],
            [way.preferred for way in ways],
        )
        await store.run("people.find_ways", collection, name, *map(list, columns))

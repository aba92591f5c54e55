"""What was done of the first run, by its cards. Called by `app/setup/first_run.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from switchboard.store.database import Database, query

SetupCard = Literal["welcome", "say", "model", "channel", "keep"]
"""`welcome` is the page as a whole."""
SettledCard = Literal["done", "skipped"]


async def settled_cards(database: Database) -> Mapping[SetupCard, SettledCard]:
    """Those that were done or skipped."""
    return {row["card"]: row["state"] for row in await database.rows(query("first_run.cards"))}


async def settle_card(database: Database, card: SetupCard, state: SettledCard) -> bool:
    """Note that a card was done or skipped. False: that was known."""
    return await database.change_rows(query("first_run.settle"), card, state) > 0


async def reopen_card(database: Database, card: SetupCard) -> bool:
    """Forget that it was. False: it was not."""
    return await database.change_rows(query("first_run.reopen"), card) > 0


async def was_somebody_answered(database: Database) -> bool:
    """Whether one of the newest messages has an answer."""
    return cast(bool, await database.value(query("first_run.somebody_was_answered")))

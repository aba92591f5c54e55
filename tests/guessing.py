"""Strangers who guess the owner's code of a bot, over the real interface of a server.

Used by `test_channels_attacked.py`, and 10,000 times by `kit.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from switchboard.core.people.strangers import CODE_ALPHABET, CODE_LENGTH
from tests.lab import envelope_json

BOT: Final = {"channel": "telegram", "endpoint": "bot:123456"}
_AT_ONCE: Final = 8


async def guess(operator: httpx2.AsyncClient, connector: Mapping[str, str], guessers: int, each: int) -> None:
    """So many strangers try so many codes each, the right one last; `connector`: headers with the token of the bot."""
    code = (await operator.post("/v1/pairing/codes", json=BOT)).json()["code"]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def guesser(number: int) -> None:
        words = [*_words(random.Random(number), each - 1), code]
        async with turns:
            posted = await operator.post(
                "/v1/ingest/batch", json={"envelopes": _tries(words, number)}, headers=connector
            )
        assert posted.status_code == 200, posted.text

    await guesser(0)  # whose first five tries lock the code
    await asyncio.gather(*map(guesser, range(1, guessers)))


async def contacts(operator: httpx2.AsyncClient, **wanted: str) -> list[Any]:
    """Those who have written to the accounts of a server."""
    answer = await operator.get("/v1/pairing", params={"limit": "500", **wanted})
    return list(answer.raise_for_status().json()["contacts"])


def _words(guesses: random.Random, count: int) -> list[str]:
    return ["".join(guesses.choices(CODE_ALPHABET, k=CODE_LENGTH)) for _ in range(count)]


def _tries(words: list[str], number: int) -> list[dict[str, Any]]:
    who = {"sender": f"guesser {number}", "endpoint": BOT["endpoint"], "chat_type": "private"}
    return [envelope_json(f"/start {word}", **who) for word in words]

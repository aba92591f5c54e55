"""A house, and the pool of a program that embeds the pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.embedding import RULES, TEAMS, foreign_pool
from tests.lab import Lab, lab


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[Lab]:
    async with lab(database_url, TEAMS, RULES) as parts:
        yield parts


@pytest.fixture
async def pool(house: Lab) -> AsyncIterator[asyncpg.Pool]:
    async with foreign_pool(house.database.url) as made:
        yield made

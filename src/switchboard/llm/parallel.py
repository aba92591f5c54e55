"""How many requests a local server runs at once: as it says, or as two small requests show.

`app/models/model_tests.py` asks for `switchboard init`. In: its address, or durations; out: a number.
"""

from __future__ import annotations

import asyncio
from typing import Final

import httpx2

from switchboard.core.text.lenient import count, json_value, mapping
from switchboard.domain.llm import ChatMessage, Request
from switchboard.llm.context import server_root

COUNTING: Final = Request(
    (ChatMessage("user", "Count from one to thirty, in words."),), "You count.", max_tokens=48, whole=False
)
"""A request that is short to read, and not too short to answer."""
_TIMEOUT_S: Final = 3.0
_LEAST_S: Final = 0.2
"""A server that answers sooner cannot be measured like this."""
_TOGETHER: Final = 1.5
"""Two requests at once that take less than this, where one takes 1, do not run one after the other."""


async def told_slots(http: httpx2.AsyncClient, base_url: str) -> int | None:
    """The slots of a llama.cpp server, from `/props`; None: it does not say. Raises nothing."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            response = await http.get(f"{server_root(base_url)}/props")
    except (httpx2.HTTPError, TimeoutError):
        return None
    return count(mapping(json_value(response.text)).get("total_slots")) or None


def measured_slots(alone: float, together: float) -> int:
    """How many requests run at once, if one takes so many seconds `alone`, and two at once take so many."""
    return 2 if alone >= _LEAST_S and together < _TOGETHER * alone else 1

"""A batch that takes long to parse: all others are served meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from switchboard.core.envelope import read as wire
from tests.lab import envelope_json
from tests.servers import open_server


async def test_a_batch_that_is_slow_to_parse_does_not_stop_everyone_else(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    parse = wire.parse_envelope

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(0.06)
        turns.append(0)
        return parse(*args, **more)

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            if turns:
                turns[-1] += 1

    monkeypatch.setattr(wire, "parse_envelope", slow)
    async with open_server(database_url, tmp_path) as server:
        running = asyncio.create_task(others())
        answer = await server.http.post("/v1/ingest/batch", json={"envelopes": [envelope_json("x") for _ in range(4)]})
        running.cancel()
    assert len(answer.json()["results"]) == 4
    assert all(turns)

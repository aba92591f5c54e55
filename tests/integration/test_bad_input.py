"""Thousands of generated envelopes through the real API: a bad one gets a clear error and affects nothing else."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.lab import envelope_json
from tests.servers import open_server
from tests.strategies import assembled, broken_envelope_dicts, controls, events, payloads, senders, sources
from tests.unit.test_envelope import three
from tests.width import wide


def generated() -> list[tuple[bool, bytes]]:
    """2,700 envelopes of the right form and 300 with one thing wrong, or a sample: (is the form right, JSON)."""
    found: list[tuple[bool, bytes]] = []
    everything = settings(database=None, suppress_health_check=list(HealthCheck))

    @settings(everything, max_examples=wide(100, 30))
    @given(three(sources()), three(events()), three(senders()), three(payloads()), three(controls()))
    def right(s: list[Any], e: list[Any], who: list[Any], p: list[Any], c: list[Any]) -> None:
        for n, (sender, payload, control) in enumerate(product(who, p, c)):
            found.append((True, json.dumps(assembled(s[n % 3], e[n // 3 % 3], sender, payload, control)).encode()))

    @settings(everything, max_examples=wide(300, 80))
    @given(broken_envelope_dicts())
    def wrong(fields: dict[str, Any]) -> None:
        found.insert(hash(str(fields)) % len(found), (False, json.dumps(fields).encode()))

    right()
    wrong()
    return found


def slices(items: list[tuple[bool, bytes]], size: int) -> list[list[tuple[bool, bytes]]]:
    """Batches of at most `size`."""
    return [items[at : at + size] for at in range(0, len(items), size)]


@pytest.mark.slow
async def test_bad_envelopes_among_good_ones_cost_nothing_and_break_nothing(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server:
        kept, refused = set(), 0
        for batch in slices(generated(), 200):
            body = b'{"envelopes":[' + b",".join(raw for _, raw in batch) + b"]}"
            answer = await server.http.post(
                "/v1/ingest/batch", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 200, answer.text
            for (right, raw), result in zip(batch, answer.json()["results"], strict=True):
                if "request_id" in result:
                    assert right, raw
                    kept.add(result["request_id"])
                else:
                    refused += 1
                    assert result["error"]["code"] not in {"internal_error", "invalid_input"}, (raw, result)
                    assert result["error"]["message"]
        assert refused >= wide(300, 80)
        assert await server.lab.count("select count(*) from message_inbox") == len(kept)
        assert (await server.http.post("/v1/ingest", json=envelope_json("still open"))).status_code == 202
        assert (await server.http.get("/v1/books", params={"now": True})).json()["balanced"]

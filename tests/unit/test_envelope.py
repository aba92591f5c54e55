"""`ingest.v1` under ten thousand generated envelopes: the valid ones are taken, the others refused in our own words."""

from __future__ import annotations

import json
import random
from itertools import product
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchboard.core.envelope.read import parse_envelope
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from tests.strategies import (
    NOW,
    assembled,
    broken_envelope_dicts,
    controls,
    envelope_dicts,
    events,
    payloads,
    senders,
    sources,
)


def outcome(raw: bytes) -> Envelope | InvalidInput:
    """What becomes of it; anything else that is raised fails the test."""
    try:
        return parse_envelope(raw, now=NOW)
    except InvalidInput as error:
        return error


def three(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(parts, min_size=3, max_size=3)


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(three(sources()), three(events()), three(senders()), three(payloads()), three(controls()))
def test_valid_envelopes_are_taken_and_survive_the_wire(
    from_sources: list[dict[str, Any]],
    of_events: list[dict[str, Any]],
    from_senders: list[dict[str, Any]],
    with_payloads: list[dict[str, Any]],
    under: list[dict[str, Any]],
) -> None:
    """Three of each part make 27 envelopes: 10,800 in all."""
    for number, (sender, payload, control) in enumerate(product(from_senders, with_payloads, under)):
        fields = assembled(from_sources[number % 3], of_events[number // 3 % 3], sender, payload, control)
        one = parse_envelope(json.dumps(fields).encode(), now=NOW)
        assert parse_envelope(msgspec.json.encode(one), now=NOW) == one
        assert one.payload.normalized_text == fields["payload"]["normalized_text"].strip()
        assert one.payload.raw == fields["payload"].get("raw")
        assert one.event.external_event_id == fields["event"]["external_event_id"]


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(broken_envelope_dicts())
def test_broken_envelopes_are_refused_by_code_and_field(fields: dict[str, Any]) -> None:
    error = outcome(json.dumps(fields).encode())
    assert isinstance(error, InvalidInput)
    assert error.message
    assert error.code != InvalidInput.code
    # A key that holds half a pair breaks the JSON itself; everything else has a place.
    assert error.field or error.code == "lone_surrogate"


@settings(max_examples=2_000)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    error = outcome(data)
    assert isinstance(error, InvalidInput)
    assert error.code in {"invalid_json", "invalid_utf8", "wrong_type", "missing_field", "unknown_field"}


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(envelope_dicts(), st.integers(0, 2**32))
def test_damaged_bytes_of_an_envelope_never_raise_anything_else(fields: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        whole = bytearray(json.dumps(fields, ensure_ascii=False).encode())
        for _ in range(dice.randint(1, 4)):
            whole[dice.randrange(len(whole))] = dice.randrange(256)
        result = outcome(bytes(whole))
        assert isinstance(result, Envelope) or result.code

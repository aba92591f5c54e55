"""What a task keeps of its message, and when its text is the person's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from switchboard.domain.envelope import Passage, PassageKind
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.front_door import Firing, Origin, stands_in_own_words

ORIGIN = Origin(
    channel="telegram",
    provider="telegram",
    endpoint="bot:house",
    conversation=Conversation("telegram/bot%3Ahouse/5488"),
    system_id=SystemId("house.butler"),
    sender="5488",
    chat_type="private",
    participants={"5488": "Ann"},
    thread="5488",
    reply_address={"chat": 5488, "topics": [1, 2]},
    facts={"sender": "5488", "thread": "5488"},
)


def test_an_origin_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ORIGIN), type=Origin) == ORIGIN


@pytest.mark.parametrize(
    ("due", "key"),
    [
        (datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "task:t1:3:2026-10-25T01:30:00Z"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=1))), "task:t1:3:2026-10-25T01:30:00Z"),
    ],
)
def test_a_firing_has_one_key_in_every_time_zone(due: datetime, key: str) -> None:
    firing = Firing(origin=ORIGIN, task_id="t1", revision=3, due=due, made_at=due, text="water the tomatoes")

    assert firing.key == key


@pytest.mark.parametrize(
    ("kind", "written", "own"),
    [
        ("own", "Remind me tonight to water\n the tomatoes, please", True),
        ("own", "Remind me tonight to water the plants", False),
        ("quoted", "water the tomatoes", False),
        ("forwarded", "water the tomatoes", False),
        ("between", "water the tomatoes", False),
    ],
)
def test_only_own_words_make_a_text_the_persons(kind: PassageKind, written: str, *, own: bool) -> None:
    message = (Passage(kind=kind, text=written),)

    assert stands_in_own_words("water the  tomatoes", message) is own
    assert not stands_in_own_words(" ", message)

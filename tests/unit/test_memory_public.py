"""A public set of questions is read as it is published: ids of turns, times, pictures, and evidence written oddly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import ValidationError, json

from tests.memory_set.public import PublicMessage, PublicQuestion, read_locomo

SAMPLE = {
    "sample_id": "conv-1",
    "qa": [
        {"question": "What does Ann paint?", "answer": "Boats", "evidence": ["D1:1; D2:1", "D9:9"], "category": 1},
        {"question": "Is Ann tall?", "answer": "Perhaps", "evidence": [], "category": 3},
        {"question": "What does Bob paint?", "adversarial_answer": "Boats", "evidence": ["D1:1"], "category": 5},
    ],
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I paint. Look!", "img_url": ["…"], "blip_caption": "a boat"},
        ],
        "session_2_date_time": "12:09 am on 13 September, 2023",
        "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "Nice"}],
        "session_3_date_time": "9:55 am on 22 October, 2023",
    },
    "event_summary": {},
}


def test_a_conversation_is_read_as_it_is_published() -> None:
    [conversation] = read_locomo(json.encode([SAMPLE]))
    assert conversation.messages == [
        PublicMessage(
            "D1:1",
            datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
            "Ann: I paint. Look! a boat",
            ("Ann: I paint.", "Ann: Look!", "Ann: a boat"),
        ),
        PublicMessage("D2:1", datetime(2023, 9, 13, 0, 9, tzinfo=UTC), "Bob: Nice", ("Bob: Nice",)),
    ]
    assert conversation.questions == [
        PublicQuestion(1, "What does Ann paint?", frozenset({"D1:1", "D2:1"})),
        PublicQuestion(5, "What does Bob paint?", frozenset({"D1:1"})),
    ]


def test_another_file_is_no_public_set() -> None:
    with pytest.raises(ValidationError):
        read_locomo(json.encode([{"question": "What does Ann paint?"}]))

"""The example of the routing document with a voice message, in an installation as users have it."""

from __future__ import annotations

import pytest

from switchboard.testing.scripted_llm import Reply, ScriptedLlm
from tests.places import passable
from tests.whisper.interview import interview

pytestmark = pytest.mark.slow
SAID = "There are four people in our house, and two of them are children."


async def test_a_spoken_answer_reaches_the_interviewer_by_rules() -> None:
    with passable("switchboard voice ") as place:
        async with ScriptedLlm([Reply(SAID)]) as server:
            found = await interview(place, f"{server.url}/v1")
    assert f"[voice message, 5 s, transcribed by a machine] {SAID}" in found.reply
    [asked] = server.requests
    assert (asked.body["file"]["name"], asked.dialect) == ("voice.ogg", "openai-audio")
    [decision] = found.explained["decisions"]
    assert [(step["team_id"], step["reason"]) for step in decision["trail"]] == [
        ("root", "rule"),
        ("onboarding", "rule"),
    ]
    assert [one["delivery"]["system_id"] for one in found.explained["deliveries"]] == ["System1/onboarding_interviewer"]
    [heard] = found.explained["transcriptions"]
    assert (heard["text"], heard["host"], heard["tries"]) == (SAID, server.url.removeprefix("http://"), 1)
    told = [one["detail"] for one in found.doctor["findings"] if one["name"] == "transcription"]
    assert told == [f"recordings (voice) are sent to {heard['host']}"]

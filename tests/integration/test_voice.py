"""Voice messages: who hears them, when, at what price, and what becomes of a message that nobody could hear."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from switchboard.app.messages.explain import explain
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.passages.own import has_others_words, own_text, passages_of
from switchboard.core.policy.budget import Amount, Cap
from switchboard.core.turns.command import command_text
from switchboard.core.voice.settings import TranscriptionSettings
from switchboard.journey.hearing import Hearing, HearingPolicy
from switchboard.store.messages.files import StoredFiles
from switchboard.testing.scripted_llm import Disconnect, Fault, Hang, Reply, ScriptedLlm, SpeechInSilence, Status
from tests.forked import ForkedCommand
from tests.hands import assert_balanced, at_work, settled
from tests.lab import Lab, spent_on, submission
from tests.speaking import (
    FirstChosen,
    Reading,
    attached,
    hearing_of,
    ogg_of,
    read_by_butlers,
    say_aloud,
    speak,
    speaking_lab,
    store_bytes,
)
from tests.waiting import eventually

SAID: Final = "Ich möchte den Bericht jeden Montag bekommen."
HEARD: Final = f"[voice message, 14 s, transcribed by a machine] {SAID}"
GROUP: Final = {"chat_type": "group", "thread": "g"}


def hears(*replies: Reply) -> ScriptedLlm:
    return ScriptedLlm(replies or [Reply(SAID)])


async def answered(parts: Lab, server: str, **settings: Any) -> tuple[Reading, FirstChosen]:
    """What the butlers and the model have read when everything is answered."""
    reading, model = Reading(), FirstChosen()
    async with hearing_of(parts, server, **settings) as hearing:
        await read_by_butlers(parts, [parts.worker({"echo": reading}, classifier=model, hearing=hearing)])
    await assert_balanced(parts)
    return reading, model


async def explained(parts: Lab, message: Any) -> Any:
    runtime = Runtime(Settings(), parts.database, parts.notifier, parts.rule_book)
    return (await explain(runtime, message.request_id)).transcriptions


async def test_a_butler_reads_what_was_said_and_rules_have_decided_before(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears() as server:
        said = await speak(parts, ogg_of(14))
        assert said.decision is not None, "no rule waits for a transcript"
        reading, model = await answered(parts, server.url, language="de", prompt="Switchboard")
        [turn] = reading.read
        assert (turn.text, turn.member.system_id, model.asked) == (HEARD, "System1/b", [])
        assert [one.kind for one in passages_of(turn.envelope)] == ["transcript"]
        assert (own_text(passages_of(turn.envelope)), has_others_words(passages_of(turn.envelope))) == ("", False)
        [asked] = server.requests
        wanted = {"model": "whisper-1", "language": "de", "prompt": "Switchboard", "response_format": "verbose_json"}
        assert wanted.items() <= asked.body.items()
        assert asked.body["file"]["name"] == "voice.ogg"
        [shown] = await explained(parts, said)
        assert (shown.text, shown.state, shown.tries, shown.paid) == (SAID, "done", 1, True)


async def test_a_model_decides_by_what_was_said_which_is_paid_for_once(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears() as server:
        await speak(parts, ogg_of(14), text="Please", **GROUP)
        reading, model = await answered(parts, server.url)
        both = f"Please\n\n{HEARD}"
        assert ([turn.text for turn in reading.read], model.asked, len(server.requests)) == ([both], [both], 1)
        assert [one.kind for one in passages_of(reading.read[0].envelope)] == ["own", "transcript"]


async def test_the_same_bytes_are_paid_for_once_whoever_sends_them(database_url: str) -> None:
    data = ogg_of(14)
    async with speaking_lab(database_url) as parts, hears() as server:
        for sender in ("ann", "bob"):
            await speak(parts, data, sender=sender)
        both = await speak(parts, data, sender="cem")
        reading, _ = await answered(parts, server.url)
        assert ([turn.text for turn in reading.read], len(server.requests)) == ([HEARD] * 3, 1)
        assert [one.paid for one in await explained(parts, both)].count(True) <= 1


async def test_what_is_said_aloud_is_no_command(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(Reply("/stop"), Reply("/approve 7")) as server:
        for data in (ogg_of(1), ogg_of(2)):
            await speak(parts, data)
        reading, _ = await answered(parts, server.url)
        assert [turn.member.system_id for turn in reading.read] == ["System1/b"] * 2
        assert [command_text(turn.envelope) for turn in reading.read] == ["", ""]


AAC: Final = b"\xff\xf1\x50\x80" * 9
UNFIT: Final[dict[str, tuple[bytes, dict[str, Any], str]]] = {
    "no file": (b"", {"storage_ref": None, "unavailable": "it is gone"}, "it is gone"),
    "too long": (ogg_of(601), {"seconds": 601}, "longer than 10 min"),
    "longer than it says": (ogg_of(700), {}, "longer than 10 min"),
    "too large": (ogg_of(3, "x" * 3000), {}, "larger than 0.00191 MB"),
    "no kind": (AAC, {"media_type": "audio/aac"}, "the server takes no audio/aac"),
    "video": (ogg_of(4), {"media_type": "video/mp4"}, "video is not among the recordings that are transcribed here"),
}


@pytest.mark.parametrize("case", UNFIT)
async def test_what_is_not_sent_says_why_and_goes_on(case: str, database_url: str) -> None:
    data, more, reason = UNFIT[case]
    recording = attached(data, **more)
    async with speaking_lab(database_url) as parts, hears() as server:
        await store_bytes(parts.database, data)
        said = await say_aloud(parts, recording)
        reading, _ = await answered(parts, server.url, max_bytes=2000)
        what = "video message" if case == "video" else "voice message"
        expected = f"[{what}, {recording['seconds']} s; not transcribed: {reason}]"
        assert ([turn.text for turn in reading.read], server.requests) == ([expected], ())
        assert [(one.state, one.error) for one in await explained(parts, said)] == [("failed", reason)]


async def test_without_a_server_a_voice_message_says_so(database_url: str) -> None:
    async with speaking_lab(database_url) as parts:
        said = await speak(parts, ogg_of(14))
        reading = Reading()
        hearing = Hearing(parts.database, StoredFiles(parts.database, ""), TranscriptionSettings(), None)
        await read_by_butlers(parts, [parts.worker({"echo": reading}, hearing=hearing)])
        assert reading.read[0].text == "[voice message, 14 s; not transcribed: no transcription is set up]"
        assert await explained(parts, said) == ()


async def test_an_outage_is_tried_three_times_and_the_message_goes_on(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(*[Reply(fault=Status(503))] * 3) as server:
        said = await speak(parts, ogg_of(14), **GROUP)
        reading, model = await answered(parts, server.url)
        lost = "[voice message, 14 s; not transcribed: the server failed: status 503: scripted error (server_error)]"
        assert ([turn.text for turn in reading.read], model.asked, len(server.requests)) == ([lost], [lost], 3)
        [shown] = await explained(parts, said)
        assert (shown.state, shown.tries, shown.paid) == ("failed", 3, False)


PASSING: Final[dict[str, Fault]] = {"busy": Status(429), "broken": Disconnect(), "overloaded": Status(529)}


@pytest.mark.parametrize("fault", PASSING)
async def test_what_passes_costs_a_try_and_no_attempt_of_the_turn(fault: str, database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(Reply(fault=PASSING[fault]), Reply(SAID)) as server:
        said = await speak(parts, ogg_of(14))
        reading, _ = await answered(parts, server.url)
        assert ([(turn.text, turn.attempt) for turn in reading.read], len(server.requests)) == ([(HEARD, 1)], 2)
        assert [one.tries for one in await explained(parts, said)] == [2]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_what_is_refused_is_not_tried_again(status: int, database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(Reply(fault=Status(status))) as server:
        await speak(parts, ogg_of(14))
        reading, _ = await answered(parts, server.url)
        assert (len(reading.read), len(server.requests)) == (1, 1)
        assert "not transcribed: the server " in reading.read[0].text


async def test_a_server_that_hangs_holds_up_nobody_else(database_url: str) -> None:
    """More voice messages than a worker has places wait for it, and still everybody else is answered at once."""
    server = ScriptedLlm(lambda _: Reply(SAID, fault=Hang("until-all-others-are-answered")))
    async with speaking_lab(database_url) as parts, server:
        for n in range(12):
            await speak(
                parts, ogg_of(14, str(n)), sender=f"speaker{n}", **(GROUP | {"thread": str(n)} if n % 2 else {})
            )
        reading, model = Reading(), FirstChosen()
        async with hearing_of(parts, server.url, concurrency=2) as hearing:
            pools = {"work": 4, "route": 4}
            worker = parts.worker({"echo": reading}, classifier=model, hearing=hearing, pools=pools)
            async with at_work(worker):
                await server.waiting("until-all-others-are-answered")
                written = [await say_aloud(parts, text=f"written {n}", sender=f"w{n}") for n in range(12)]
                grouped = [await say_aloud(parts, text=f"written {n}", sender=f"w{n}", **GROUP) for n in range(3)]
                ids = [one.request_id for one in (*written, *grouped)]
                await eventually(lambda: _all_answered(parts, ids))
                assert {turn.envelope.sender.identity for turn in reading.read} <= {f"w{n}" for n in range(12)}
                assert len(server.requests) <= 2
                server.release("until-all-others-are-answered")
                await eventually(lambda: settled(parts))
        assert sum(turn.text == HEARD for turn in reading.read) == 12
        await assert_balanced(parts)


async def _all_answered(parts: Lab, ids: list[Any]) -> bool:
    ended = "select count(*) from delivery where request_id = any ($1) and settled_at is not null"
    return await parts.count(ended, ids) == len(ids)


async def test_who_waits_for_a_server_that_is_away_gives_up_with_it(database_url: str) -> None:
    policy = HearingPolicy(pause=0.02, within=0.0)
    async with speaking_lab(database_url) as parts, hears(*[Reply(fault=Status(503))] * 5) as server:
        for n in range(5):
            await speak(parts, ogg_of(14, str(n)), sender=f"s{n}")
        reading, _ = await answered(parts, server.url, policy=policy, concurrency=1)
        assert all("not transcribed: the server " in turn.text for turn in reading.read)
        assert len(reading.read) == 5


async def test_silence_is_no_text_and_no_model_is_asked_about_it(database_url: str) -> None:
    invented = Reply("", fault=SpeechInSilence())
    async with speaking_lab(database_url) as parts, hears(invented, invented) as server:
        stranger = await speak(parts, ogg_of(14, "1"), sender="new", **GROUP)
        await say_aloud(parts, text="hello", sender="ann", **GROUP)
        await speak(parts, ogg_of(14, "2"), sender="ann", **GROUP)
        reading, model = await answered(parts, server.url)
        taken = [turn for turn in reading.read if turn.dead_letter is None]
        assert [turn.text for turn in taken] == ["hello", "[voice message, 14 s; no speech was recognised]"]
        assert ([turn.member.system_id for turn in taken], model.asked) == (["System1/a"] * 2, ["hello"])
        dead = "select reason from dead_letter where request_id = $1"
        assert "no speech was recognised" in await parts.database.value(dead, stranger.request_id)


async def test_what_was_passed_on_is_not_what_its_sender_said(database_url: str) -> None:
    passages = [{"kind": "forwarded", "text": "[voice message, 14 s]", "author": "Bob"}]
    async with speaking_lab(database_url) as parts, hears() as server:
        await store_bytes(parts.database, ogg_of(14))
        payload = {"passages": passages, "attachments": [attached(ogg_of(14))]}
        [_] = await parts.accept.accept_all([submission(payload=payload, chat_type="private")])
        reading, _ = await answered(parts, server.url)
        [passage] = passages_of(reading.read[0].envelope)
        assert (passage.kind, passage.author, passage.text) == ("forwarded", "Bob", HEARD)


async def test_an_audio_file_is_transcribed_only_if_the_settings_say_so(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(Reply("the minutes"), Reply("never")) as server:
        await store_bytes(parts.database, ogg_of(14))
        await say_aloud(parts, attached(ogg_of(14), voice=False), text="Here")
        reading, _ = await answered(parts, server.url)
        assert (reading.read[0].text, server.requests) == ("Here", ())
        await say_aloud(parts, attached(ogg_of(14), voice=False), text="Here")
        reading, _ = await answered(parts, server.url, media=("voice", "audio"))
        assert reading.read[0].text == "Here\n\n[audio file, 14 s, transcribed by a machine] the minutes"
        assert [one.kind for one in passages_of(reading.read[0].envelope)] == ["own", "quoted"]


# What it costs --------------------------------------------------------------------------------------------------------


async def test_the_budget_of_the_day_counts_recordings_and_ends_them(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(*[Reply(SAID)] * 4) as server:
        for n in range(4):
            await speak(parts, ogg_of(30, str(n)), sender=f"s{n}")
        cap, today = Cap(micros=6_000), datetime.now(UTC).date()
        reading, _ = await answered(parts, server.url, cap=cap, price_minute=0.006, concurrency=1)
        over = sum("not transcribed: the budget of the day is used up" in turn.text for turn in reading.read)
        # A recording of 30 s reserves 3,000 micro-dollars, and is billed for the second that the server has counted.
        assert (over, len(server.requests), await spent_on(parts.database, today)) == (0, 4, Amount(0, 400))


async def test_the_seconds_of_a_day_are_a_limit_for_all_workers_together(database_url: str) -> None:
    async with speaking_lab(database_url) as parts, hears(*[Reply(SAID)] * 4) as server:
        for n in range(4):
            await speak(parts, ogg_of(14, str(n)), sender=f"s{n}")
        reading, model = Reading(), FirstChosen()
        async with (
            hearing_of(parts, server.url, day_seconds=16) as one,
            hearing_of(parts, server.url, day_seconds=16) as two,
        ):
            workers = [parts.worker({"echo": reading}, classifier=model, hearing=each) for each in (one, two)]
            await read_by_butlers(parts, workers)
        over = [turn.text for turn in reading.read if "have reached the limit" in turn.text]
        # The first takes one second of the day in the end, and so do those behind it, as long as 14 are left.
        assert len(over) + len(server.requests) == 4
        assert await parts.count("select sum(seconds) from transcription where asked_on is not null") <= 16


# Deaths ---------------------------------------------------------------------------------------------------------------


IN_TURN: Final = {"chat_type": "private"}
DEATHS: Final = (
    ("before_transcript:1", GROUP, 2),
    ("before_transcript:1", IN_TURN, 2),
    ("after_transcript:1", GROUP, 1),
    ("after_transcript:1", IN_TURN, 1),
    ("before_route:1", GROUP, 1),
    ("before_complete:1", IN_TURN, 1),
)
"""Where a worker is killed, at which of the two readers, and how often the server is asked: what it has said and nobody
has kept is lost."""


@pytest.mark.parametrize(("where", "how", "asked"), DEATHS)
async def test_a_killed_worker_pays_again_only_for_what_was_not_kept(
    where: str, how: dict[str, str], asked: int, database_url: str
) -> None:
    async with speaking_lab(database_url) as parts, hears(*[Reply(SAID)] * 2) as server:
        said = await speak(parts, ogg_of(14), **how)
        assert await _worker(database_url, server.url, where) == -signal.SIGKILL
        assert await _worker(database_url, server.url, "") == 0
        assert len(server.requests) == asked
        assert await parts.replies_to(said.request_id) == [HEARD]
        await assert_balanced(parts)


async def _worker(url: str, server: str, crash_at: str) -> int:
    command = [sys.executable, "-m", "tests.speaking", url, server]
    worker = ForkedCommand(command, env={**os.environ, "SWITCHBOARD_CRASH_AT": crash_at}, stdout=subprocess.DEVNULL)
    return await asyncio.to_thread(worker.wait, 120)

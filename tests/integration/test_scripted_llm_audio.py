"""Transcriptions of the scripted LLM, as the SDK of OpenAI asks for them, and what our own client makes of answers."""

from __future__ import annotations

from typing import Any, Final

import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types.audio import TranscriptionVerbose

from switchboard.core.voice.recordings import name_for_server, refused_type, seconds_of_ogg
from switchboard.domain.llm import ModelFailure
from switchboard.llm.transcription import read_transcript
from switchboard.testing.scripted_llm import Reply, ScriptedLlm, SpeechInSilence, Status
from tests.speaking import ogg_of
from tests.whisper.interview import SPOKEN

SAID: Final = "We need milk."
WAV: Final = b"RIFF\x24\0\0\0WAVEfmt "


def sdk(server: ScriptedLlm) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-very-secret", max_retries=0, timeout=30)


async def test_the_sdk_hears_what_the_script_says_with_and_without_segments() -> None:
    async with ScriptedLlm([Reply(SAID)] * 2) as server, sdk(server) as client:
        ask = client.audio.transcriptions.create
        plain = await ask(model="whisper-1", file=("voice.ogg", ogg_of(3)), prompt="Noor", language="en")
        whole = await ask(model="whisper-1", file=("voice.wav", WAV), response_format="verbose_json")
    assert plain.text == SAID
    assert isinstance(whole, TranscriptionVerbose)
    assert (whole.text, [one.text.strip() for one in whole.segments or ()]) == (SAID, [SAID])
    first, _ = server.requests
    assert (first.model, first.prompt, first.body["language"]) == ("whisper-1", "Noor", "en")
    assert first.body["file"]["name"] == "voice.ogg"
    assert "sk-very-secret" not in str(first)


REFUSED: Final[dict[str, tuple[str, str, bytes, str, int]]] = {
    "a suffix": ("whisper-1", "voice.amr", b"#!AMR", "json", 400),
    "an old suffix, by a newer model": ("gpt-4o-mini-transcribe", "voice.oga", ogg_of(3), "json", 400),
    "segments, by a newer model": ("gpt-4o-transcribe", "voice.ogg", ogg_of(3), "verbose_json", 400),
    "other contents": ("whisper-1", "voice.wav", ogg_of(3), "json", 400),
    "nothing": ("whisper-1", "voice.mp3", b"", "json", 400),
    "too much": ("whisper-1", "voice.mp3", bytes(26_214_401), "json", 413),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_the_real_server_refuses_is_refused(case: str) -> None:
    model, name, data, form, status = REFUSED[case]
    async with ScriptedLlm([Reply(SAID)]) as server, sdk(server) as client:
        given: Any = {"model": model, "file": (name, data), "response_format": form}
        with pytest.raises(APIStatusError) as refused:
            await client.audio.transcriptions.create(**given)
        assert (refused.value.status_code, len(server.requests), len(server.strays)) == (status, 0, 1)
        if name == "voice.oga":
            old = await client.audio.transcriptions.create(model="whisper-1", file=(name, data))
            assert old.text == SAID


async def test_an_error_has_the_form_of_the_provider() -> None:
    async with ScriptedLlm([Reply(fault=Status(429, retry_after=1))]) as server, sdk(server) as client:
        with pytest.raises(APIStatusError) as refused:
            await client.audio.transcriptions.create(model="whisper-1", file=("voice.ogg", ogg_of(3)))
    assert (refused.value.status_code, refused.value.response.headers["retry-after"]) == (429, "1")


async def test_what_a_model_invents_in_silence_is_marked() -> None:
    async with ScriptedLlm([Reply(SAID, fault=SpeechInSilence())]) as server, sdk(server) as client:
        given: Any = {"model": "whisper-1", "file": ("voice.ogg", ogg_of(3)), "response_format": "verbose_json"}
        whole = await client.audio.transcriptions.create(**given)
    assert whole.text == f"{SAID} Thank you for watching!"
    assert read_transcript(whole.model_dump_json()).text == SAID


SEGMENT: Final = '{"text": "yes", "no_speech_prob": %s, "avg_logprob": %s, "compression_ratio": %s}'


@pytest.mark.parametrize(
    ("figures", "kept"),
    [
        ((0.9, -1.2, 1.0), False),
        ((0.9, -0.5, 1.0), True),
        ((0.1, -1.2, 1.0), True),
        ((0.1, -0.2, 2.5), False),
        (("null", "null", "null"), True),
    ],
)
def test_segments_that_nobody_spoke_are_left_out(figures: tuple[Any, ...], *, kept: bool) -> None:
    answer = '{"text": "yes", "segments": [%s]}' % (SEGMENT % figures)
    assert read_transcript(answer).text == ("yes" if kept else "")


@pytest.mark.parametrize("answer", ["", "<html>", "[]", '{"words": []}'])
def test_what_is_no_transcript_is_a_failure(answer: str) -> None:
    with pytest.raises(ModelFailure, match="no transcript"):
        read_transcript(answer)


NAMES: Final = {
    "voice.ogg": ogg_of(3),
    "voice.wav": WAV,
    "voice.flac": b"fLaC\0\0\0\x22",
    "voice.webm": b"\x1aE\xdf\xa3\x9f",
    "voice.m4a": b"\0\0\0\x20ftypM4A \0\0\0\0",
    "voice.mp4": b"\0\0\0\x20ftypisom\0\0\0\0",
    "voice.mp3": b"\xff\xfb\x90\x44",
    "": b"\xff\xf1\x50\x80",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_named_by_its_bytes(name: str) -> None:
    assert (name_for_server(NAMES[name]) or "") == name


def test_what_no_server_takes_is_called_by_its_name() -> None:
    assert [refused_type(data, "audio/x") for data in (b"\xff\xf1\x50", b"#!AMR\n", b"?")] == [
        "audio/aac",
        "audio/amr",
        "audio/x",
    ]


def test_speech_is_as_long_as_its_end_says() -> None:
    assert [seconds_of_ogg(ogg_of(n)) for n in (0, 1, 14)] == [0, 1, 14]
    assert seconds_of_ogg(SPOKEN.read_bytes()) == 5, "espeak-ng and a real encoder"
    for odd in (b"", b"OggS", WAV, SPOKEN.read_bytes()[:40], ogg_of(3)[:-13]):
        assert seconds_of_ogg(odd) is None

"""How many words of ten spoken files a real Whisper finds, through our own client: `make voice`.

The speaker is a machine too (espeak-ng), which is harder to understand than a person. Prints each sentence, what was
heard, and the share of its words that were found; then what was heard in silence.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from switchboard.core.policy.budget import Cap
from switchboard.core.voice.recordings import name_for_server, seconds_of_ogg
from switchboard.core.voice.settings import TranscriptionSettings
from switchboard.llm.spending import DayBook
from switchboard.llm.transcription import TranscriptionApi
from switchboard.llm.web import open_client
from switchboard.ports.transcription import SpokenRecording, TranscriptionFailed
from tests.whisper.places import MODEL, missing
from tests.whisper.server import real_whisper, speech

LEAST: Final = 0.6
"""The share below which something is wrong with what we send."""
SENTENCES: Final = (
    ("en", "There are four people in our house, and two of them are children."),
    ("en", "Please remind me on Monday evening to water the tomatoes."),
    ("en", "My daughter must not eat any nuts."),
    ("en", "The meeting with the bank is on Thursday at ten."),
    ("en", "We need milk, bread and butter for the weekend."),
    ("de", "Ich möchte den Bericht jeden Montag um neun Uhr bekommen."),
    ("de", "Bitte sag den Termin beim Zahnarzt am Freitag ab."),
    ("de", "Unsere Tochter hat am Dienstag Geburtstag."),
    ("en", "The children go to the beach tomorrow afternoon."),
    ("en", "Call the plumber before nine, the kitchen is under water."),
)


def words(text: str) -> list[str]:
    """The words of a sentence, as they are compared."""
    return re.findall(r"\w+", text.casefold())


def found(said: str, heard: str) -> int:
    """How many words of what was said were heard, each as often as it was."""
    left, count = words(heard), 0
    for word in words(said):
        if word in left:
            left.remove(word)
            count += 1
    return count


async def heard_in(api: TranscriptionApi, data: bytes, language: str) -> str:
    """What Whisper hears in a spoken file."""
    recording = SpokenRecording(name_for_server(data) or "", data, language, seconds_of_ogg(data))
    try:
        return (await api.transcribe(recording)).text
    except TranscriptionFailed as failure:
        return f"({failure.reason})"


async def main() -> None:
    """Print the report. Exits with 1 if fewer words than `LEAST` were found, or any in silence."""
    total, right, began = 0, 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="voice-", dir="/var/tmp") as place,
        real_whisper(Path(place) / "log") as url,
    ):
        settings = TranscriptionSettings(url=url, model=str(MODEL), timeout=600.0)
        api = TranscriptionApi(open_client(), settings, {}, DayBook(lambda: datetime.now(UTC).date()), Cap())
        for language, said in SENTENCES:
            heard = await heard_in(api, speech(language, said, Path(place)), language)
            count = found(said, heard)
            total, right = total + len(words(said)), right + count
            print(f"{count:2} of {len(words(said)):2}  {said}\n           {heard}", flush=True)
        silence = await heard_in(api, speech("en", "", Path(place)), "en")
        await api.aclose()
    print(f"{right} of {total} words found: {right / total:.0%}; in silence: {silence or 'nothing'}")
    print(f"{time.monotonic() - began:.0f} s")
    if right < LEAST * total or silence:
        sys.exit(1)


if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    asyncio.run(main())

"""The table `[transcription]` of the settings: who writes down what voice messages say, and what that may cost.

Read by `app/settings.py`; used by `journey/hearing.py`, which decides what is sent, and `llm/transcription.py`, which
sends it. Next: `recordings.py`.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from switchboard.domain.numbers import Count, Limit, NotNegative, Positive

AUTO: Final = "auto"
"""The server finds out which language is spoken."""

RecordingKind = Literal["voice", "video", "audio"]


class TranscriptionSettings(Struct, frozen=True):
    """`url`: an API like that of OpenAI, such as `https://api.openai.com/v1`; without one nothing leaves the machine.

    The key comes from the variable `api_key_env`; without one, none is sent. `language` is a code such as `de`;
    `languages` are those of single accounts, by channel and endpoint. `prompt`: names that are likely to be said.
    `media`: voice messages, video, other audio files. What is longer than `max_seconds`, or larger than `max_bytes`, is
    not sent. `timeout` in seconds; `concurrency`: requests at once of each worker. `price_minute` in dollars;
    `day_seconds`: how much is sent in a day, of the length of the recordings, 0 for no limit.
    """

    url: Annotated[str, Meta(pattern=r"^https?://[^\s?#@]+$")] | None = None
    model: Annotated[str, Meta(min_length=1, max_length=200)] = "whisper-1"
    api_key_env: str | None = None
    language: Annotated[str, Meta(pattern=r"^(auto|[a-z]{2,3})$")] = AUTO
    languages: dict[str, Annotated[str, Meta(pattern=r"^(auto|[a-z]{2,3})$")]] = {}
    prompt: Annotated[str, Meta(max_length=200)] = ""
    media: tuple[RecordingKind, ...] = ("voice",)
    max_seconds: Count = 600
    max_bytes: Count = 26_214_400
    timeout: Positive = 60.0
    concurrency: Count = 2
    price_minute: NotNegative | None = None
    day_seconds: Limit = 0

    @property
    def host(self) -> str:
        """Where recordings are sent, without the path; empty if they are not."""
        return urlsplit(self.url).netloc if self.url is not None else ""

    @property
    def stays_here(self) -> bool:
        """Whether they are sent to a server on this machine."""
        name = urlsplit(self.url or "").hostname or ""
        try:
            return name == "localhost" or ip_address(name).is_loopback
        except ValueError:
            return False

    def language_of(self, channel: str, endpoint: str) -> str:
        """The language that people speak to an account."""
        return self.languages.get(f"{channel}/{endpoint}", self.language)

    def micros(self, seconds: float) -> int:
        """What so much of a recording costs, in micro-dollars, rounded up."""
        return -int(-(self.price_minute or 0.0) * 1_000_000 * seconds // 60)

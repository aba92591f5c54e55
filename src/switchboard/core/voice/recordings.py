"""Recordings among the attachments of a message: of which kind, how long, and under which name they are sent. Pure.

`journey/hearing.py` asks what there is to transcribe, `connectors/telegram` and the views of messages what stands for
a recording that nobody has transcribed. In: attachments and bytes; out: names, seconds. Next: `transcripts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.files.blobs import HEAD_BYTES, bare_type
from switchboard.core.voice.settings import RecordingKind
from switchboard.domain.envelope import Attachment

MOST: Final = 10
"""Recordings of one message that are transcribed."""

_NAMES: Final[tuple[tuple[int, bytes, str], ...]] = (
    # position, bytes, and the name that servers know such a file by: `.oga` is refused by several
    (0, b"OggS", "voice.ogg"),
    (8, b"WAVE", "voice.wav"),
    (0, b"fLaC", "voice.flac"),
    (0, b"\x1aE\xdf\xa3", "voice.webm"),
    (0, b"ID3", "voice.mp3"),
    (8, b"M4A ", "voice.m4a"),
    (4, b"ftyp", "voice.mp4"),
)
_REFUSED: Final[tuple[tuple[bytes, str], ...]] = ((b"#!AMR", "audio/amr"), (b"ADIF", "audio/aac"))
"""What no server is known to take."""
_OPUS: Final = b"OpusHead"
_OPUS_RATE: Final = 48_000
_PAGE: Final = b"OggS"
_PAGE_HEAD: Final = 14


class FoundRecording(Struct, frozen=True):
    """A recording and its place among the attachments, from 0."""

    n: int
    kind: RecordingKind
    attachment: Attachment


def recordings_in(attachments: Sequence[Attachment]) -> Iterator[FoundRecording]:
    """All recordings, whether anybody wants to know what they say or not."""
    for n, attachment in enumerate(attachments):
        kind = bare_type(attachment.media_type).partition("/")[0]
        if kind == "audio":
            yield FoundRecording(n, "voice" if attachment.voice else "audio", attachment)
        elif kind == "video":
            yield FoundRecording(n, "video", attachment)


def describe_recording(attachment: Attachment) -> str:
    """What a recording is, and how long, as in `voice message, 14 s`."""
    video = bare_type(attachment.media_type).startswith("video/")
    what = "video" if video else "voice" if attachment.voice else "audio"
    return f"{what} {'message' if attachment.voice else 'file'}{length_text(attachment.seconds)}"


def length_text(seconds: int | None) -> str:
    """How long it is, behind what it is; empty if that is unknown."""
    return "" if seconds is None else f", {seconds} s"


def stand_in(attachment: Attachment) -> str:
    """What is shown for a recording of which nobody says what is in it."""
    return f"[{describe_recording(attachment)}]"


def shown_voices(attachments: Sequence[Attachment]) -> str:
    """What is shown of a message without words: its voice and video messages."""
    return "\n".join(stand_in(one) for one in attachments if one.voice)


def name_for_server(data: bytes) -> str | None:
    """The name under which a recording is sent, whose suffix says what it is; None: servers do not take it."""
    for at, sign, name in _NAMES:
        if data.startswith(sign, at):
            return name
    # A frame of MPEG audio begins with eleven set bits; in those of AAC the two bits of the layer are not set.
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] & 0x06:
        return "voice.mp3"
    return None


def refused_type(data: bytes, claimed: str) -> str:
    """What a recording that servers do not take is."""
    if data[:2] in (b"\xff\xf1", b"\xff\xf9"):
        return "audio/aac"
    found = next((kind for sign, kind in _REFUSED if data.startswith(sign)), None)
    return found or bare_type(claimed) or "such files"


def seconds_of_ogg(data: bytes) -> int | None:
    """How long speech in Ogg and Opus is, rounded up, by the position at its end; None: it is something else."""
    begin = data.find(_OPUS, 0, HEAD_BYTES)
    end = data.rfind(_PAGE)
    if not data.startswith(_PAGE) or begin < 0 or not end or len(data) < max(begin + 12, end + _PAGE_HEAD):
        return None
    skipped = int.from_bytes(data[begin + 10 : begin + 12], "little")
    position = int.from_bytes(data[end + 6 : end + _PAGE_HEAD], "little", signed=True)
    return max(0, -(-(position - skipped) // _OPUS_RATE))

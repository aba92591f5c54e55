"""How readers see what a machine heard in a message: as passages of their own, marked, and never a command. Pure.

`journey/hearing.py` calls it for those who are about to read a message; what is stored, and what rules and duplicates
are compared by, stays as it arrived. In: an envelope and what was heard; out: the envelope as it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.passages.own import joined, passages_of
from switchboard.core.passages.showing import shortened_text
from switchboard.core.voice.recordings import describe_recording, stand_in
from switchboard.domain.envelope import Attachment, Envelope, Passage, PassageKind

MOST_TEXT: Final = 20_000
"""Characters of one transcript: ten minutes of fast speech are 12,000."""
MOST_REASON: Final = 200


class HeardRecording(Struct, frozen=True):
    """What a machine heard in a recording; `reason`: why it is not known."""

    attachment: Attachment
    text: str = ""
    reason: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether there were no words."""
        return self.reason is None and not self.text


def with_transcripts(envelope: Envelope, heard: Sequence[HeardRecording]) -> Envelope:
    """The envelope as it is read: what was heard stands behind the text."""
    if not heard:
        return envelope
    passages, known = passages_of(envelope), {stand_in(one.attachment) for one in heard}
    forwarded = next((one for one in passages if one.kind == "forwarded"), None)
    origin = forwarded if forwarded is not None and all(one.kind == "forwarded" for one in passages) else None
    said = [one for one in passages if one.text not in known]
    read = (*said, *(_passage_of(one, origin) for one in heard))
    return replace(envelope, payload=replace(envelope.payload, normalized_text=joined(read), passages=read))


def transcripts_among(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """The passages that are transcripts."""
    return tuple(one for one in passages if one.kind == "transcript")


def has_only_silence(envelope: Envelope, heard: Sequence[HeardRecording]) -> bool:
    """Whether a message consists of recordings in which there are no words: nothing says whom it is for."""
    stands_for = {stand_in(one.attachment) for one in heard}
    wordless = all(one.text in stands_for for one in passages_of(envelope))
    return bool(heard) and wordless and all(one.is_silent for one in heard)


def clean_transcript(text: str) -> str:
    """A transcript in one line, of a length that can be read."""
    return shortened_text(" ".join(text.split()), MOST_TEXT)


def _passage_of(heard: HeardRecording, origin: Passage | None) -> Passage:
    """What the sender said is theirs; what they passed on, or attached as a file, is somebody else's."""
    what = describe_recording(heard.attachment)
    if heard.reason is not None:
        text = f"[{what}; not transcribed: {heard.reason}]"
    elif heard.text:
        text = f"[{what}, transcribed by a machine] {heard.text}"
    else:
        text = f"[{what}; no speech was recognised]"
    if origin is not None:
        return Passage(kind="forwarded", text=text, author=origin.author, sent_at=origin.sent_at)
    kind: PassageKind = "transcript" if heard.attachment.voice or not heard.text else "quoted"
    return Passage(kind=kind, text=text)

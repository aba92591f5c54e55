"""Engine `memo`: files every message and finds earlier ones; it needs no model, and says so.

`journey/turn.py` calls `MemoEngine.run`; the message enters, a memo is kept in the database, an answer with the nearest
earlier memos leaves. Next: `store/memos.py`.

What one person wrote is never shown to another: where only the two of us speak, that person's own memos may be shown;
where others listen, only what was said in this same conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from switchboard.core.identity import own_conversation
from switchboard.domain.envelope import Envelope
from switchboard.journey.reply import DOOR_CHANNELS
from switchboard.journey.turn import Answer, Engine, NoReply, Turn, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.store.database import Database
from switchboard.store.lanes import Work
from switchboard.store.memos import Found, Memo, file_memo, nearest_memos

_SHOWN: Final = 3
_EXCERPT: Final = 160
_MAX_PERSON: Final = 400
_TO_THE_SENDER: Final = frozenset({"email", *DOOR_CHANNELS})
_HONEST: Final = "I answer without a model, so I have filed this and searched what I filed before."


def engine(database: Database) -> Engine:
    """The entry point `memo` of `switchboard.engines`."""
    return MemoEngine(database)


class MemoEngine:
    """Files and searches; the memories of different butlers are apart."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn: a delivery is answered, a notice is filed without reply. Raises `Unavailable`."""
        work = turn.work

        async def file(key: UUID) -> dict[str, Any]:
            # The key is the same in every attempt, so what is repeated is kept once.
            await file_memo(self._database, memo_of(work, key))
            return {"memo_id": str(key)}

        filed = await journal.step("file", file)
        if work.dead_letter is not None:
            return NoReply("the dead letter is filed")
        memo = memo_of(work, UUID(filed["memo_id"]))
        return Answer(answer_text(memo.text, await nearest_memos(self._database, memo, _SHOWN)))


def memo_of(work: Work, memo_id: UUID) -> Memo:
    """The memo of a delivery, or of a notice: that one is shown to nobody, for its reason may hold what is internal."""
    envelope = work.envelope
    if work.dead_letter is None:
        person, private = person_of(envelope), is_private(envelope, work.conversation)
        text = message_text(envelope)
    else:
        person, private, text = "", True, _dead_letter_text(work.dead_letter, work)
    return Memo(memo_id, work.conversation, work.system_id, work.request_id, person, private, text)


def person_of(envelope: Envelope) -> str:
    """Channel, endpoint and sender as one key of at most 400 ASCII characters; distinct persons have distinct keys."""
    source = envelope.source
    parts = (source.channel, source.endpoint_identity, envelope.sender.identity)
    key = "/".join(quote(part, safe="") for part in parts)
    if len(key) <= _MAX_PERSON:
        return key
    # The key is indexed. Quoting never leaves a `=`, so a shortened key is no other person's whole one.
    mark = "=" + sha256(key.encode()).hexdigest()
    return key[: _MAX_PERSON - len(mark)] + mark


def is_private(envelope: Envelope, conversation: str) -> bool:
    """Whether only this sender hears the answer; several writers of one message are a group, whatever it says.

    A chat that does not say what it is counts as private only where nobody else can be: the answer goes to the sender
    by mail or at the door, or the chat is the sender's own.
    """
    sender = envelope.sender
    if len(sender.participants or ()) > 1:
        return False
    if sender.chat_type is not None:
        return sender.chat_type == "private"
    return envelope.source.channel in _TO_THE_SENDER or conversation == own_conversation(envelope)


def message_text(envelope: Envelope) -> str:
    """The text, and the names of what was attached."""
    attached = (a.filename or a.media_type for a in envelope.payload.attachments)
    return "\n".join(part for part in (envelope.payload.normalized_text, *(f"[{name}]" for name in attached)) if part)


def _dead_letter_text(letter: Mapping[str, Any], work: Work) -> str:
    """What is filed of a notice: the letter with its message, or of a digest a line per letter that it shows."""
    digest = letter.get("digest")
    if digest is None:
        return f"Dead letter ({letter['category']}): {letter.get('reason')}\n{message_text(work.envelope)}"
    lines = (f"- {one['dead_letter_id']} ({one['category']}): {excerpt(one['text'] or '')}" for one in digest)
    return "\n".join((f"{letter['letters']} dead letters:", *lines))


def answer_text(text: str, found: Sequence[Found]) -> str:
    """One paragraph, then a list of what was found."""
    filed = f"{_HONEST} Filed: “{excerpt(text)}”."
    if not found:
        return f"{filed} Nothing I filed earlier resembles it."
    lines = (f"- {memo.created_at:%Y-%m-%d}: {excerpt(memo.text)}" for memo in found)
    return "\n".join((f"{filed} Nearest earlier memos:", *lines))


def excerpt(text: str) -> str:
    """At most 160 characters on one line."""
    line = " ".join(text[: 8 * _EXCERPT].split())
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1].rstrip() + "…"

"""Engine `memo`: stores every message and finds earlier ones; needs no model, and says so.

`journey/turn.py` calls `MemoEngine.run`, which stores the message as a memo in the database and answers with the
nearest earlier memos. Next: `store/models/memos.py`.

What one person wrote is never shown to another: in a private chat only that person's own memos are shown; where others
can read along, only memos of the same conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from switchboard.core.people.readers import is_private, person_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.engine import Answer, Engine, EngineContext, Journal, NoReply, Turn, TurnResult
from switchboard.ports.memos import FoundMemo, Memo, Memos

_SHOWN: Final = 3
_EXCERPT: Final = 160
_NEXT: Final = "Ask me about it later: I have no model, but I can find whatever I have filed."


def engine(context: EngineContext) -> Engine:
    """The entry point `memo` of `switchboard.engines`."""
    return MemoEngine(context.memos)


class MemoEngine:
    """Stores and searches; the memos of different butlers are separate."""

    def __init__(self, memos: Memos) -> None:
        self._memos = memos

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn: a delivery is answered, a notice is stored without a reply. Raises `Unavailable`."""

        async def file(key: UUID) -> JsonObject:
            # The key is the same in every attempt, so a repeated memo is stored once.
            await self._memos.file(memo_of(turn, key))
            return {"memo_id": str(key)}

        filed = await journal.step("file", file)
        if turn.dead_letter is not None:
            return NoReply("the dead letter is filed")
        memo = memo_of(turn, UUID(filed["memo_id"]))
        return Answer(answer_text(memo.text, await self._memos.nearest(memo, _SHOWN)))


def memo_of(turn: Turn, memo_id: UUID) -> Memo:
    """The memo of a delivery or of a notice. A notice's memo is shown to nobody: its reason may contain internals."""
    envelope = turn.envelope
    if turn.dead_letter is None:
        # What is due is nobody's words, so nobody is shown it as theirs.
        person = "" if envelope.control.is_ours else person_of(envelope)
        private = envelope.control.is_ours or is_private(envelope, turn.conversation)
        text = message_text(envelope)
    else:
        person, private, text = "", True, _dead_letter_text(turn.dead_letter, envelope)
    return Memo(memo_id, turn.conversation, turn.member.system_id, turn.request_id, person, private, text)


def message_text(envelope: Envelope) -> str:
    """The text, and the names of the attachments."""
    attached = (a.filename or a.media_type for a in envelope.payload.attachments)
    return "\n".join(part for part in (envelope.payload.normalized_text, *(f"[{name}]" for name in attached)) if part)


def _dead_letter_text(dead_letter: JsonMapping, envelope: Envelope) -> str:
    """The text of a notice: the dead letter with its message; for a digest, a line per dead letter shown."""
    digest = dead_letter.get("digest")
    if digest is None:
        return f"Dead letter ({dead_letter['category']}): {dead_letter.get('reason')}\n{message_text(envelope)}"
    lines = (f"- {one['dead_letter_id']} ({one['category']}): {excerpt(one['text'] or '')}" for one in digest)
    return "\n".join((f"{dead_letter['dead_letters']} dead letters:", *lines))


def answer_text(text: str, found: Sequence[FoundMemo]) -> str:
    """One paragraph, then a list of what was found."""
    filed = f"Filed: “{excerpt(text)}”."
    if not found:
        return f"{filed} {_NEXT}"
    lines = (f"- {memo.created_at:%Y-%m-%d}: {excerpt(memo.text)}" for memo in found)
    return "\n".join((f"{filed} Nearest earlier memos:", *lines))


def excerpt(text: str) -> str:
    """At most 160 characters on one line."""
    line = " ".join(text[: 8 * _EXCERPT].split())
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1].rstrip() + "…"

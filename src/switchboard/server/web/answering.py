"""How a page follows an answer that is being written: what is drawn of each event of its stream. Pure.

`pages/chat.py` makes an `AnswerProgress` for each reader and renders what it says. In: events of
`app/messages/stream.py`; out: the parts of the page that change. A text that only grows is appended to, any other is
drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from switchboard.app.messages.stream import (
    Reset,
    StreamEvent,
    TextDelta,
    ToolEnd,
    ToolUse,
    TurnStatus,
    Waiting,
)
from switchboard.domain.shown import ReplyView

PartKind = Literal["more", "writing", "tool", "tool_end", "reading", "standing", "told", "settled"]


class ChangedPart(Struct, frozen=True):
    """A part of the page that is drawn. What it shows is read when it is `standing`, `told` or `settled`."""

    kind: PartKind
    system_id: str = ""
    text: str = ""
    seconds: int = 0
    ok: bool = True


class AnswerProgress:
    """What a reader has of an answer; `texts`: of each butler, as far as it was told before."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)
        self._is_asked = bool(texts)
        """Whether something may be shown to be decided that is decided by now."""

    def apply_event(self, event: StreamEvent) -> list[ChangedPart]:
        """Take an event in; returns what it changes on the page."""
        if event.kind == "done":
            return [ChangedPart("settled")]
        if event.data is None:
            return [ChangedPart("standing")]
        changed = self._apply_data(event)
        if self._is_asked and not isinstance(event.data, (Waiting, ReplyView)):
            self._is_asked = False
            changed.append(ChangedPart("told"))
        return changed

    def _apply_data(self, event: StreamEvent) -> list[ChangedPart]:
        match event.data:
            case TextDelta() as delta:
                return self._apply_delta(delta)
            case ToolUse() | ToolEnd() | TurnStatus() as doing:
                return [_part_of(doing)]
            case Reset(system_id):
                self.texts.pop(system_id, None)
                return [ChangedPart("writing"), ChangedPart("standing")]
            case ReplyView() as reply:
                self.texts.pop(reply.system_id, None)
                self._is_asked = True
                return [ChangedPart("writing"), ChangedPart("told")]
            case _:
                self._is_asked = True
                return [ChangedPart("standing"), ChangedPart("told")]

    def _apply_delta(self, delta: TextDelta) -> list[ChangedPart]:
        known = self.texts.get(delta.system_id)
        self.texts[delta.system_id] = (known or "")[: delta.offset] + delta.text
        if known is not None and delta.offset == len(known):
            return [ChangedPart("more", delta.system_id, delta.text)]
        return [ChangedPart("writing"), ChangedPart("standing")]


def _part_of(doing: ToolUse | ToolEnd | TurnStatus) -> ChangedPart:
    match doing:
        case ToolUse():
            return ChangedPart("tool", doing.system_id, f"{doing.name} {doing.arguments}".strip())
        case ToolEnd():
            return ChangedPart("tool_end", doing.system_id, doing.name, ok=doing.ok)
        case TurnStatus():
            return ChangedPart("reading", doing.system_id, seconds=doing.seconds)


def mark_of_butler(system_id: str) -> str:
    """What stands for a butler in the ids of a page's elements, which know fewer characters than names."""
    return sha256(system_id.encode()).hexdigest()[:12]


def frame_message(html: str, mark: str, name: str = "") -> bytes:
    """A message of the stream with HTML, after which a reader can continue; `name`: that of an event without any."""
    lines = [f"data: {line}" for line in html.replace("\r", "&#13;").split("\n")] if html else []
    head = ([f"id: {mark}"] if mark else []) + ([f"event: {name}", "data:"] if name else [])
    return ("\n".join([*head, *lines]) + "\n\n").encode() if head or lines else b":\n\n"

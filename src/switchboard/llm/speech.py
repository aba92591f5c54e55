"""Removes the thinking that some local servers leave at the head of the text. Pure.

`api.py` feeds it piece by piece, `answers.py` all at once, with the same result.
"""

from __future__ import annotations

from typing import Final

_TAGS: Final = ("<think>", "<thinking>", "<thought>")
_ORPHAN: Final = "</think>"


class Speech:
    """Holds back text that may be thinking until it is known to be speech."""

    def __init__(self) -> None:
        self._held = ""
        self._closing = ""
        self._speaks = False
        self._thought = False

    def feed(self, text: str) -> str:
        """The new part of what is certainly speech by now."""
        if self._speaks:
            return text
        self._held += text
        while self._leave_thinking() if self._closing else self._enter_thinking():
            pass
        return "" if self._closing or self._may_be_a_tag() else self._release()

    def end(self) -> str:
        """The text held back until the end, without thinking that never ended."""
        return "" if self._closing else self._release()

    def _enter_thinking(self) -> bool:
        head = self._held.lstrip()
        tag = next((one for one in _TAGS if head.lower().startswith(one)), None)
        if tag is None:
            return False
        self._held, self._closing = head[len(tag) :], f"</{tag[1:]}"
        return True

    def _leave_thinking(self) -> bool:
        end = self._held.lower().find(self._closing)
        if end < 0:
            self._held = self._held[-len(self._closing) :]  # the marker may have begun
            return False
        self._held = self._held[end + len(self._closing) :].lstrip()
        self._closing, self._thought = "", True
        return True

    def _may_be_a_tag(self) -> bool:
        head = self._held.lstrip().lower()
        return any(one.startswith(head) for one in _TAGS)

    def _release(self) -> str:
        text, self._held, self._speaks = self._held, "", True
        return text.lstrip() if self._thought else text


def spoken(text: str) -> str:
    """A text without the thinking at its head, even if only its end is marked: some templates write the beginning."""
    speech = Speech()
    said = speech.feed(text) + speech.end()
    return said.partition(_ORPHAN)[2].lstrip() if _ORPHAN in said else said

"""Streams the reply of a turn from the deltas of its model.

`talk.py` feeds it the model's output, which it passes on to `Turn.on_delta` so that the pieces add up to exactly the
reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from switchboard.core.text.storable import storable_text
from switchboard.domain import llm
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.engine import Delta, TurnPhase

_MOST_SAID: Final = 200
"""Characters of a call's arguments that are told."""


class Telling:
    """The part of a reply that was streamed so far."""

    def __init__(self, on_delta: Callable[[Delta], None] | None) -> None:
        self._on_delta = on_delta
        self._step = 0
        self.text = ""

    def hear(self, delta: llm.ModelDelta) -> None:
        """Process a piece of a model's output."""
        if delta.reset:
            self.restart(self._step)
        if delta.reading and self._on_delta is not None:
            self._on_delta(Delta(len(self.text), "", self._step, status=TurnPhase("reading", delta.reading)))
        self._add(storable_text(delta.text + (delta.end.text if delta.end else "")))

    def restart(self, step: int) -> None:
        """A request begins, so the text streamed so far is not the reply."""
        self._step = step
        if self.text:
            self._tell(0, "")

    def call(self, tool: str, arguments: JsonMapping) -> None:
        """Report that a tool is called."""
        if self._on_delta is not None:
            said = storable_text(json.dumps(arguments, ensure_ascii=False, default=str)[:_MOST_SAID])
            self._on_delta(Delta(len(self.text), "", self._step, tool, arguments=said))

    def end_call(self, tool: str, *, ok: bool) -> None:
        """Report how the call of a tool has ended."""
        if self._on_delta is not None:
            self._on_delta(Delta(len(self.text), "", self._step, tool, succeeded=ok))

    def end(self, text: str) -> None:
        """Complete the stream with the missing part of the reply."""
        text = storable_text(text)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.text, text, strict=False)))
        if text != self.text:
            self._tell(same, text[same:])

    def _add(self, text: str) -> None:
        if text:
            self._tell(len(self.text), text)

    def _tell(self, offset: int, text: str) -> None:
        self.text = self.text[:offset] + text
        if self._on_delta is not None:
            self._on_delta(Delta(offset, text, self._step))

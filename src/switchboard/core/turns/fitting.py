"""When a turn outgrows the context of its model: its oldest results become references to files. Pure.

`agents/turns/talk.py` calls `fit` before each request, with the context of the first model, and `shorter` for each
model it asks, with that model's own; it writes the files. Next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import Struct, structs

from switchboard.core.text.tokens import asked_tokens, estimate_tokens, fits
from switchboard.core.turns.render import messages
from switchboard.domain.llm import ChatMessage, Request, ToolResult
from switchboard.ports.history import Entry

_FULL: Final = 0.8
"""Results are moved above this share of the context."""
_LEFT: Final = 0.6
"""They are moved down to this share, so that it happens rarely: every move invalidates the provider's cache."""
_SMALL: Final = 400
"""With fewer characters than these in a result, a reference would save nothing."""


class Moved(Struct, frozen=True):
    """A result to be moved to a file of this name in the workspace."""

    name: str
    text: str


def fit(
    request: Request, turn: Sequence[ChatMessage], window: int, folder: str
) -> tuple[tuple[ChatMessage, ...], list[Moved]]:
    """The messages of this turn with their oldest results as references, and the files in `folder` they refer to.

    `request` is what would be sent, `window` the tokens of question and answer together. Nothing changes below 80 %.
    """
    if fits(request, _FULL * window - request.max_tokens):
        return tuple(turn), []
    return _referring(turn, asked_tokens(request) + request.max_tokens - _LEFT * window, folder)


class Said(Struct, frozen=True):
    """What a request is made of: the history, the messages of this turn, and the time zone of both."""

    history: Sequence[Entry]
    turn: Sequence[ChatMessage]
    zone: str


def shorter(request: Request, said: Said, tokens: int, folder: str) -> tuple[Request, list[Moved]]:
    """The request within `tokens`, as far as that can be done, and the files in `folder` that it refers to.

    First the oldest results of this turn become references, which can still be read; then the history is removed from
    its beginning. What a person said in this turn always stays, but not what was said before and never answered.
    """
    if fits(request, tokens):
        return request, []
    turn, moved = _referring(said.turn, asked_tokens(request) - tokens, folder)
    shown = replace(request, messages=messages(said.history, turn, said.zone))
    for start in _starts(said.history):
        if fits(shown, tokens):
            break
        shown = replace(request, messages=messages(said.history[start:], turn, said.zone))
    return shown, moved


def _starts(history: Sequence[Entry]) -> list[int]:
    """Where a history may begin instead, at what a person said; the last one is behind its end."""
    return [*(n for n, entry in enumerate(history) if n and entry.role == "user"), len(history)]


def _referring(turn: Sequence[ChatMessage], over: float, folder: str) -> tuple[tuple[ChatMessage, ...], list[Moved]]:
    """The messages, with enough of their oldest results turned into references to save `over` tokens."""
    moved, found = list[Moved](), list[ChatMessage]()
    for i, message in enumerate(turn):
        results = []
        for j, result in enumerate(message.results, 1):
            name = f"{folder}/{i}-{j}.txt"
            short = result if over <= 0 else _replace_by_reference(name, result)
            if short is not result:
                over -= estimate_tokens(result.text) - estimate_tokens(short.text)
                moved.append(Moved(name, result.text))
            results.append(short)
        found.append(replace(message, results=tuple(results)))
    return tuple(found), moved


_MARK: Final = "[moved to the file "


def _replace_by_reference(name: str, result: ToolResult) -> ToolResult:
    """The result as a reference, unless it is short or already one."""
    if len(result.text) < _SMALL or result.text.startswith(_MARK):
        return result
    text = f"{_MARK}{name}: {len(result.text)} characters, which begin with {result.text[:200]!r}]"
    return structs.replace(result, text=text)

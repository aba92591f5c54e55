"""What a reply is sent as: texts that fit, files, and which of them answers the message. Pure.

The plan of a reply is the same each time it is made: parts are recorded by their number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from switchboard.connectors.kernel.chunking import length, split
from switchboard.connectors.kernel.rendering import Rendered, render
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Capabilities, FileOut, Part

REPEAT_NOTE: Final = "(This may be a repeat.)"
_NOTE: Final = f"\n\n{REPEAT_NOTE}"
_SMALL: Final = 100
"""Texts of platforms with such a limit are not shortened for a note, and so cannot have one."""


def plan(
    text: str, files: tuple[FileOut, ...], capabilities: Capabilities, *, address: JsonObject, reply_to: str | None
) -> tuple[Part, ...]:
    """The parts of a reply in their order; a text that fits goes with its only file. Only the first is an answer."""
    if len(files) == 1 and text.strip() and _fits(text, capabilities):
        parts = [replace(_written(text, capabilities, _room(capabilities.caption_limit), address), file=files[0])]
    else:
        parts = [*_texts(text, capabilities, address), *(Part(address=address, file=file) for file in files)]
    return (replace(parts[0], reply_to=reply_to), *parts[1:]) if parts else ()


def plain(part: Part) -> Part:
    """The same part without its markup."""
    return replace(part, rendered=None)


def unanswering(part: Part) -> Part:
    """The same part, not as an answer to a message."""
    return replace(part, reply_to=None)


def marked(part: Part, capabilities: Capabilities) -> Part:
    """The same part for a second time, and it says so; `plan` has left room for that."""
    limit = capabilities.caption_limit if part.file else capabilities.text_limit
    text = f"{part.text}{_NOTE}".lstrip("\n")
    if length(text, capabilities.text_unit) > limit:
        return part
    # Entities stay where they are; HTML and Markdown would say something else than the text.
    entities = part.rendered is not None and "entities" in part.rendered
    return replace(part, text=text, rendered=part.rendered if entities else None)


def _room(limit: int) -> int:
    """For the words of a part."""
    return limit - len(_NOTE) if limit > _SMALL else limit


def _fits(text: str, capabilities: Capabilities) -> bool:
    limit = capabilities.caption_limit
    return bool(limit) and length(text, capabilities.text_unit) <= _room(limit)


def _texts(text: str, capabilities: Capabilities, address: JsonObject) -> list[Part]:
    room = _room(capabilities.text_limit)
    pieces = (piece.text for piece in split(text, room, capabilities.text_unit))
    return [_written(piece, capabilities, room, address) for piece in pieces if piece.strip()]


def _written(text: str, capabilities: Capabilities, room: int, address: JsonObject) -> Part:
    made = render(text, capabilities.markup)
    if length(made.text, capabilities.text_unit) > room:  # a few constructs grow when they are rendered
        made = Rendered(text)
    return Part(address=address, text=made.text, rendered=made.markup)

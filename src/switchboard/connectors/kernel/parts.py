"""Plans the parts of a reply: texts that fit, files, and which part answers the message. Pure.

Planning a reply again gives the same parts, because parts are recorded by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.connectors.kernel.chunking import length, split
from switchboard.connectors.kernel.marking import defuse_mentions
from switchboard.connectors.kernel.rendering import render
from switchboard.core.files.blobs import bare_type
from switchboard.core.files.reply_files import instead
from switchboard.core.turns.choices import one_line
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import VERBATIM, Capabilities, FileOut, Part

REPEAT_NOTE: Final = "(This may be a repeat.)"
_NOTE: Final = f"\n\n{REPEAT_NOTE}"
_MARKED: Final = ("markdown", "whatsapp")
_MOST_GROWTH: Final = 8
"""By which factor marks, and what makes mentions harmless, can lengthen a text at most."""
_SMALL: Final = 100
"""Texts of platforms with such a limit are not shortened for a note, and so cannot have one."""


class ReplyDestination(Struct, frozen=True):
    """Where a reply goes, which message it answers, the name of the platform, and the choices below the reply."""

    address: JsonObject
    reply_to: str | None = None
    platform: str = "this platform"
    choices: tuple[ReplyChoice, ...] | None = None


def plan(text: str, files: Sequence[FileOut], capabilities: Capabilities, to: ReplyDestination) -> tuple[Part, ...]:
    """The parts of a reply in order. Only the first is an answer.

    Choices are buttons below the last text, if the platform can show all of them. A text that fits is sent with the
    file of its part, or with the first of several. Files that the platform cannot accept are named at the end of the
    text.
    """
    if is_verbatim(to.address):
        return (Part(address=to.address, text=text, files=tuple(files)),)
    bundles, lines = _bundle_files(files, capabilities, to.platform)
    text = "\n\n".join(filter(None, (text.rstrip() if lines else text, "\n".join(lines))))
    with_text = bool(bundles) and (len(bundles) == 1 or capabilities.files_per_part > 1)
    fits = with_text and takes_text(bundles[0], capabilities) and text.strip() and _fits(text, capabilities)
    caption = _rendered_part(text, capabilities, _room(capabilities.caption_limit), to.address) if fits else None
    parts = [replace(caption, files=bundles.pop(0))] if caption else _texts(text, capabilities, to.address)
    if parts and (choices := _choices_that_fit(to.choices, capabilities)) is not None:
        parts[-1] = replace(parts[-1], choices=choices)
    parts += (Part(address=to.address, files=bundle) for bundle in bundles)
    return (replace(parts[0], reply_to=to.reply_to), *parts[1:]) if parts else ()


def is_verbatim(address: JsonObject) -> bool:
    """Whether a reply goes there in one form only: see `VERBATIM`."""
    return address.get(VERBATIM) is True


def takes_text(files: Sequence[FileOut], capabilities: Capabilities) -> bool:
    """Whether a text can go in one part with these files, if there are any."""
    kinds = [bare_type(file.media_type) for file in files]
    refused = any(fnmatchcase(kind, pattern) for kind in kinds for pattern in capabilities.no_caption)
    return not files or (bool(capabilities.caption_limit) and not refused)


def _choices_that_fit(
    choices: tuple[ReplyChoice, ...] | None, capabilities: Capabilities
) -> tuple[ReplyChoice, ...] | None:
    """The choices with labels that fit; None if there is no room for all of them, or two would look alike."""
    if choices is None or len(choices) > capabilities.buttons:
        return None
    short = tuple(ReplyChoice(one_line(one.label, capabilities.label_limit), one.value) for one in choices)
    return short if len({one.label for one in short}) == len(short) else None


def _bundle_files(
    files: Sequence[FileOut], capabilities: Capabilities, platform: str
) -> tuple[list[tuple[FileOut, ...]], list[str]]:
    """The files by part, and a line for each file that is too large for any."""
    most, why = capabilities.max_file_out, f"too large for {platform}"
    bundles: list[tuple[FileOut, ...]] = []
    lines = []
    for file in files:
        if file.size_bytes > most or not most:
            lines.append(instead(file.filename, file.size_bytes, why if most else f"{platform} takes no files"))
        elif bundles and _has_room(bundles[-1], file, capabilities):
            bundles[-1] += (file,)
        else:
            bundles.append((file,))
    return bundles, lines


def _has_room(bundle: Sequence[FileOut], file: FileOut, capabilities: Capabilities) -> bool:
    total = sum(one.size_bytes for one in (*bundle, file))
    return len(bundle) < capabilities.files_per_part and total <= capabilities.max_file_out


def without_files(part: Part, why: str, capabilities: Capabilities) -> Part:
    """The same part as a text that names its files and says why they are missing."""
    lines = "\n".join(instead(file.filename, file.size_bytes, why) for file in part.files)
    lines = defuse_mentions(lines, capabilities.mentions)
    left = capabilities.text_limit - length(part.text, capabilities.text_unit) - 2
    named = next(iter(split(lines, left, capabilities.text_unit)), None) if left > _SMALL else None
    text = "\n\n".join(filter(None, (part.text, named.text if named else "" if part.text else why)))
    return replace(_as_text(part, text), files=())


def _as_text(part: Part, text: str) -> Part:
    """The part with text added in front of its own: entities stay in place, but HTML would change meaning."""
    entities = part.rendered is not None and "entities" in part.rendered
    return replace(part, text=text, rendered=part.rendered if entities else None)


def plain(part: Part) -> Part:
    """The same part without its markup and its buttons, which say no more than its text."""
    return replace(part, rendered=None, choices=None)


def unanswering(part: Part) -> Part:
    """The same part, not as an answer to a message."""
    return replace(part, reply_to=None)


def mark_as_resent(part: Part, capabilities: Capabilities) -> Part:
    """The same part, marked as sent a second time; `plan` has left room for that."""
    limit = capabilities.caption_limit if part.files else capabilities.text_limit
    text = f"{part.text}{_NOTE}".lstrip("\n")
    if length(text, capabilities.text_unit) > limit:
        return part
    return _as_text(part, text)


def _room(limit: int) -> int:
    """The room for the words of a part."""
    return limit - len(_NOTE) if limit > _SMALL else limit


def _fits(text: str, capabilities: Capabilities) -> bool:
    limit = capabilities.caption_limit
    return bool(limit) and length(text, capabilities.text_unit) <= _room(limit)


def _texts(text: str, capabilities: Capabilities, address: JsonObject) -> list[Part]:
    return list(_fitting_parts(text, capabilities, _room(capabilities.text_limit), address))


def _fitting_parts(text: str, capabilities: Capabilities, room: int, address: JsonObject) -> Iterator[Part]:
    """The text in parts. A piece that is too long with its marks is split again."""
    most = _room(capabilities.text_limit)
    for piece in split(text, room, capabilities.text_unit):
        if not piece.text.strip():
            continue
        if part := _rendered_part(piece.text, capabilities, most, address):
            yield part
        elif room > max(most // _MOST_GROWTH, _MOST_GROWTH):
            yield from _fitting_parts(piece.text, capabilities, room // 2, address)
        else:
            yield Part(address=address, text=defuse_mentions(piece.text, capabilities.mentions))


def _rendered_part(text: str, capabilities: Capabilities, room: int, address: JsonObject) -> Part | None:
    """None if it is too long, also with its marks; HTML does not count towards the limit of a text."""
    made = render(text, capabilities.markup, capabilities.dialect, capabilities.mentions)
    sent = (made.text, *(str(one) for name, one in (made.markup or {}).items() if name in _MARKED))
    if max(length(one, capabilities.text_unit) for one in sent) > room:
        return None
    return Part(address=address, text=made.text, rendered=made.markup)

"""The content of a WhatsApp message: its words, or those that stand for it, and its file. Pure; called by `events.py`.

In: a message of a webhook, however odd; out: passages and an attachment. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from switchboard.core.passages.own import read_passages
from switchboard.domain.envelope import MAX_TEXT, Attachment, Passage, PassageKind
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import FileIn
from switchboard.ports.raw import Raw, at, child, word

_FILES: Final = {
    "audio": "audio/ogg",
    "document": "application/octet-stream",
    "image": "image/jpeg",
    "sticker": "image/webp",
    "video": "video/mp4",
}
"""By type of message, the media type where none is given."""
_MOST_ITEMS: Final = 50
_MAX_ITEM: Final = 512
UNSHOWN: Final = "(A message that WhatsApp does not show to programs)"


def is_described(kind: str) -> bool:
    """Whether messages of this type are read."""
    return kind in _FILES or kind in _KINDS


def passages_in(kind: str, message: Raw) -> tuple[Passage, ...]:
    """The words of a message: the sender's own, unless it was forwarded."""
    if kind in _FILES:
        found = tuple(_own_words(at(message, kind, "caption")))
    else:
        found = tuple(_KINDS[kind](message)) if kind in _KINDS else ()
    if at(message, "context", "forwarded") is True or at(message, "context", "frequently_forwarded") is True:
        text = "\n\n".join(one.text for one in found)
        return (Passage(kind="forwarded", text=text),) if text else ()
    return found


def file_in(kind: str, message: Raw) -> tuple[tuple[Attachment, FileIn], ...]:
    """The file of a message; there is at most one."""
    about = child(message, kind) if kind in _FILES else {}
    media_id = word(about.get("id"))
    if media_id is None:
        return ()
    attachment = Attachment(
        media_type=(word(about.get("mime_type")) or _FILES[kind]).partition(";")[0].strip(),
        filename=word(about.get("filename")),
        size_bytes=0,
        source_attachment_id=word(about.get("sha256")) or media_id,
        voice=True if about.get("voice") is True else None,
    )
    handle: JsonObject = {"media": media_id, "kind": kind}
    return ((attachment, FileIn(0, handle)),)


def _own_words(text: object) -> Sequence[Passage]:
    return read_passages(text[:MAX_TEXT], "whatsapp") if isinstance(text, str) and text.strip() else ()


def _one_passage(text: str, kind: PassageKind = "own") -> Iterator[Passage]:
    yield Passage(kind=kind, text=text)


def _text_of(message: Raw) -> Sequence[Passage]:
    return _own_words(at(message, "text", "body"))


def _describe_location(message: Raw) -> Iterator[Passage]:
    place = child(message, "location")
    named = ", ".join(filter(None, (_one_line_of(place.get(part)) for part in ("name", "address"))))
    where = ", ".join(
        f"{one:.6f}" if isinstance(one, int | float) else "?" for one in map(place.get, ("latitude", "longitude"))
    )
    return _one_passage(f"(Place: {named}, {where})", "quoted") if named else _one_passage(f"(Location: {where})")


def _describe_contacts(message: Raw) -> Iterator[Passage]:
    for one in _objects_in(message.get("contacts")):
        name = _one_line_of(at(one, "name", "formatted_name")) or "without a name"
        phones = (_one_line_of(phone.get("phone")) for phone in _objects_in(one.get("phones")))
        yield Passage(kind="quoted", text=f"(Contact: {' '.join(filter(None, (name, *phones)))})")


def _describe_order(message: Raw) -> Iterator[Passage]:
    items = _objects_in(at(message, "order", "product_items"))
    lines = (
        f"- {_show_amount(one.get('quantity'))} of {_one_line_of(one.get('product_retailer_id')) or '?'}, "
        f"{_show_amount(one.get('item_price'))} {_one_line_of(one.get('currency')) or '?'} each"
        for one in items
    )
    yield from _own_words(at(message, "order", "text"))
    yield Passage(kind="quoted", text="\n".join((f"(Order of {len(items)} products)", *lines)))


def _pressed_value(message: Raw) -> Iterator[Passage]:
    """What a button stands for; nobody has written it, and only our own buttons stand for something."""
    value = next(
        (
            found
            for path in (("interactive", "button_reply", "id"), ("interactive", "list_reply", "id"))
            if (found := word(at(message, *path))) is not None
        ),
        word(at(message, "button", "payload")) or word(at(message, "button", "text")),
    )
    if value is not None:
        yield Passage(kind="own", text=value)


def _emoji_of(message: Raw) -> Iterator[Passage]:
    if emoji := word(at(message, "reaction", "emoji")):
        yield Passage(kind="own", text=emoji)


def _changed_words(message: Raw) -> Sequence[Passage]:
    changed = child(message, "edit", "message")
    kind = word(changed.get("type")) or ""
    return passages_in(kind, changed) if kind in ("text", *_FILES) else ()


def _no_words(_: Raw) -> Sequence[Passage]:
    return ()


def _describe_unshown(_: Raw) -> Iterator[Passage]:
    return _one_passage(UNSHOWN)


def _objects_in(found: object) -> Sequence[Raw]:
    return [child(one) for one in found[:_MOST_ITEMS]] if isinstance(found, list) else ()


def _one_line_of(text: object) -> str:
    return " ".join(text[:_MAX_ITEM].split()) if isinstance(text, str) else ""


def _show_amount(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else word(value) or "?"


_KINDS: Final[Mapping[str, Callable[[Raw], Iterator[Passage] | Sequence[Passage]]]] = {
    "text": _text_of,
    "location": _describe_location,
    "contacts": _describe_contacts,
    "order": _describe_order,
    "interactive": _pressed_value,
    "button": _pressed_value,
    "reaction": _emoji_of,
    "edit": _changed_words,
    "revoke": _no_words,
    "unsupported": _describe_unshown,
    "errors": _describe_unshown,
}
"""By the type of a message."""

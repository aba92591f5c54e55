"""The content of a Telegram message in words, and its files. Pure; called by `updates.py` and `passages.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchboard.core.lenient import count
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import FileIn
from switchboard.ports.raw import Raw, at, child, number, word

_FILES: Final = {
    "animation": "video/mp4",
    "audio": "audio/mpeg",
    "document": "application/octet-stream",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "voice": "audio/ogg",
}
"""By field, the media type where none is given."""
_SPOKEN: Final = {"voice": "Voice message", "video_note": "Video message"}
SERVICE: Final[dict[str, str]] = {
    "new_chat_members": "joined the group",
    "left_chat_member": "left the group",
    "new_chat_title": "changed the title of the group",
    "new_chat_photo": "changed the photo of the group",
    "delete_chat_photo": "deleted the photo of the group",
    "group_chat_created": "created the group",
    "supergroup_chat_created": "created the group",
    "channel_chat_created": "created the channel",
    "message_auto_delete_timer_changed": "changed when messages are deleted",
    "migrate_to_chat_id": "turned the group into a supergroup",
    "migrate_from_chat_id": "turned a group into this supergroup",
    "pinned_message": "pinned a message",
    "forum_topic_created": "created the topic",
    "forum_topic_edited": "edited the topic",
    "forum_topic_closed": "closed the topic",
    "forum_topic_reopened": "reopened the topic",
    "general_forum_topic_hidden": "hid the topic General",
    "general_forum_topic_unhidden": "showed the topic General",
    "video_chat_scheduled": "scheduled a video chat",
    "video_chat_started": "started a video chat",
    "video_chat_ended": "ended a video chat",
    "video_chat_participants_invited": "invited to a video chat",
    "write_access_allowed": "allowed the bot to write",
    "boost_added": "boosted the chat",
    "chat_background_set": "changed the background of the chat",
}
"""What is said of the chat and not by anybody, in words."""


def service_of(message: Raw) -> str | None:
    """The field that makes it a service message."""
    return next((kind for kind in SERVICE if kind in message), None)


def files_of(message: Raw) -> Iterator[tuple[Attachment, FileIn]]:
    """The file of a message; Telegram sends at most one, and repeats an animation as a document."""
    found = next((kind for kind in (*_FILES, "sticker", "photo") if message.get(kind)), None)
    about = _largest(message) if found == "photo" else child(message, found or "")
    file_id = word(about.get("file_id"))
    if found is None or file_id is None:
        return
    size = count(about.get("file_size"))
    attachment = Attachment(
        media_type=_media_type(found, about),
        filename=word(about.get("file_name")),
        size_bytes=size,
        source_attachment_id=word(about.get("file_unique_id")) or file_id,  # the same file may have another file_id
    )
    handle: JsonObject = {"file_id": file_id, "size": size}
    yield attachment, FileIn(0, handle)


def _media_type(kind: str, about: Raw) -> str:
    if kind == "photo":
        return "image/jpeg"
    if kind == "sticker":
        moving = "application/x-tgsticker" if about.get("is_animated") is True else "image/webp"
        return "video/webm" if about.get("is_video") is True else moving
    return word(about.get("mime_type")) or _FILES[kind]


def _largest(message: Raw) -> Raw:
    sizes = message.get("photo")
    return child(sizes[-1]) if isinstance(sizes, list) and sizes else {}


def spoken(message: Raw) -> str:
    """The note that speech is not transcribed, also below a caption."""
    for kind, called in _SPOKEN.items():
        if kind in message:
            seconds = number(at(message, kind, "duration"))
            return f"({called}{f' of {seconds} seconds' if seconds else ''}, not transcribed)"
    return ""


def described(message: Raw) -> str:
    """A description of content that is not text."""
    contact = child(message, "contact")
    others = {
        "sticker": word(at(message, "sticker", "emoji")) or "(Sticker)",
        "location": f"(Location: {_coordinates(child(message, 'location'))})",
        "contact": f"(Contact: {word(contact.get('first_name'))} {word(contact.get('phone_number'))})",
        "poll": f"(Poll: {word(at(message, 'poll', 'question'))})",
        "dice": f"(Dice: {number(at(message, 'dice', 'value'))})",
    }
    nothing = "" if next(files_of(message), None) else "(A message of a kind that bots cannot read)"
    return next((said for kind, said in others.items() if kind in message), nothing)


def _coordinates(location: Raw) -> str:
    found = (location.get(axis) for axis in ("latitude", "longitude"))
    return ", ".join(f"{value:.6f}" if isinstance(value, int | float) else "?" for value in found)

"""What kind of Telegram message it is: written to us, something that happened in the chat, or unknown to us. Pure.

Called by `updates.py`. A message without any content that we know is unknown: Telegram adds kinds several times a year,
and most of them nobody writes. Next: `described.py` for the words of what somebody did write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from switchboard.connectors.telegram.content import has_file
from switchboard.connectors.telegram.described import is_described, tasks_in
from switchboard.ports.raw import Raw, at

_SERVICE: Final[Mapping[str, str]] = {
    "new_chat_members": "joined the group",
    "left_chat_member": "left the group",
    "chat_owner_left": "left the group as its owner",
    "chat_owner_changed": "made somebody else the owner of the group",
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
    "connected_website": "signed in to a website with the bot",
    "write_access_allowed": "allowed the bot to write",
    "proximity_alert_triggered": "came close to somebody who shares a location",
    "boost_added": "boosted the chat",
    "chat_background_set": "changed the background of the chat",
    "checklist_tasks_done": "changed what is done of a checklist",
    "checklist_tasks_added": "added to a checklist",
    "direct_message_price_changed": "changed the price of direct messages",
    "paid_message_price_changed": "changed the price of messages",
    "forum_topic_created": "created the topic",
    "forum_topic_edited": "edited the topic",
    "forum_topic_closed": "closed the topic",
    "forum_topic_reopened": "reopened the topic",
    "general_forum_topic_hidden": "hid the topic General",
    "general_forum_topic_unhidden": "showed the topic General",
    "gift": "sent a gift",
    "unique_gift": "sent a unique gift",
    "gift_upgrade_sent": "upgraded a gift",
    "giveaway_created": "scheduled a giveaway",
    "giveaway": "scheduled a giveaway",
    "giveaway_winners": "named the winners of a giveaway",
    "giveaway_completed": "completed a giveaway",
    "suggested_post_approved": "approved a suggested post",
    "suggested_post_approval_failed": "could not approve a suggested post",
    "suggested_post_declined": "declined a suggested post",
    "suggested_post_paid": "paid for a suggested post",
    "suggested_post_refunded": "refunded a suggested post",
    "video_chat_scheduled": "scheduled a video chat",
    "video_chat_started": "started a video chat",
    "video_chat_ended": "ended a video chat",
    "video_chat_participants_invited": "invited to a video chat",
}
_FURTHER: Final[Mapping[str, Callable[[Raw], str]]] = {
    "checklist_tasks_added": lambda message: "\n".join(tasks_in(at(message, "checklist_tasks_added", "tasks"))),
}
_ABOUT: Final = frozenset(
    [
        *("message_id", "message_thread_id", "direct_messages_topic", "from", "sender_chat", "sender_boost_count"),
        *("sender_business_bot", "sender_tag", "business_connection_id", "date", "chat", "is_topic_message"),
        *("via_bot", "is_automatic_forward", "reply_to_message", "external_reply", "quote", "reply_to_story"),
        *("edit_date", "reply_to_checklist_task_id", "has_protected_content", "is_from_offline", "is_paid_post"),
        *("media_group_id", "author_signature", "paid_star_count", "effect_id", "reply_markup", "entities"),
        *("caption_entities", "text", "caption", "link_preview_options", "suggested_post_info"),
        *("show_caption_above_media", "has_media_spoiler", "forward_origin", "forward_from", "forward_from_chat"),
        *("forward_from_message_id", "forward_signature", "forward_sender_name", "forward_date"),
    ]
)
"""What says something about a message, and is not what is in it."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_NAMES: Final = 5


def describe_service_event(message: Raw) -> str | None:
    """What happened in the chat, in words; None if the message is no service message."""
    kind = next((one for one in _SERVICE if one in message), None)
    if kind is None:
        return None
    further = _FURTHER[kind](message) if kind in _FURTHER else ""
    return f"({_SERVICE[kind]})" + (f"\n{further}" if further else "")


def unknown_kind(message: Raw) -> str | None:
    """The platform's name of a content that we do not know, if there is none that we know."""
    if at(message, "text") or at(message, "caption") or has_file(message) or is_described(message):
        return None
    return names_in(field for field in message if field not in _ABOUT)


def names_in(fields: Iterable[str]) -> str:
    """Names of fields that are shown and counted; "unnamed" if there are none."""
    found = [one for one in fields if _NAME.fullmatch(one)]
    return ", ".join(found[:_MOST_NAMES]) or "unnamed"

"""A part of a reply as a message of Discord, and Discord's answer as an outcome. Pure; called by `channel.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.connectors.discord.rest import DiscordError, RouteUsedUp
from switchboard.connectors.kernel.held import short_key
from switchboard.connectors.kernel.requests import NotWritten
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import Later, Outcome, Part, Refused, Sent, Uncertain, Why
from switchboard.ports.raw import Raw, at, word

NOBODY: Final = {"parse": [], "replied_user": False}
"""Whom a message notifies. Without it, Discord notifies whom its text names, also when it is edited."""
_NO_PREVIEWS: Final = 1 << 2
"""Discord would fetch the first link, whose address may contain data that a butler was tricked into revealing."""
_ONLY_TO_ONE: Final = 1 << 6
_MAX_NONCE: Final = 25
_IN_A_ROW: Final = 5
_SOON_S: Final = 2.0
_SIGNED_OUT_S: Final = 60.0
_DELETED: Final = 10008
_BLOCKED: Final = {
    10003: "the channel no longer exists",
    50001: "the bot may not see this channel: it needs the permission View Channel",
    50007: "this person takes no messages of the bot",
    50013: "the bot may not write in this channel: it needs the permissions Send Messages, Send Messages in Threads, "
    "Attach Files and Read Message History",
    160002: "the bot may not answer there: it needs the permission Read Message History",
}
_TARGET: Final = frozenset({160005, 50083})
"""The thread is locked, or archived."""
THREAD_EXISTS: Final = 160004
_PRESS_OVER: Final = frozenset({10015, 10062, 50027})


def message_of(part: Part, key: str, quote: str) -> JsonObject:
    """The body of a message; `quote` is the setting."""
    body: JsonObject = {
        "content": _content_of(part),
        "allowed_mentions": NOBODY,
        "flags": _NO_PREVIEWS,
        "nonce": nonce_of(key),
        "enforce_nonce": True,
    }
    if part.files:
        body["attachments"] = [{"id": number, "filename": one.filename} for number, one in enumerate(part.files)]
    if part.choices:
        body["components"] = rows_of(part.choices)
    if quoted := _quoted_by(part, quote):
        body["message_reference"] = {"message_id": quoted, "fail_if_not_exists": False}
    return body


def _quoted_by(part: Part, quote: str) -> str | None:
    """The message that is shown as answered."""
    address = part.address
    wanted = quote == "always" or (quote == "groups" and address.get("group") is True)
    # A thread that begins with the message shows it already, and has no message with that id.
    is_shown = wanted and part.reply_to is not None and "parent" not in address
    return word(address.get("message")) if is_shown else None


def nonce_of(key: str) -> str:
    """The key of a part as Discord takes it."""
    return short_key(key, _MAX_NONCE)


def _content_of(part: Part) -> str:
    text = (part.rendered or {}).get("markdown")
    return text if isinstance(text, str) else part.text


def rows_of(choices: Sequence[ReplyChoice]) -> list[JsonObject]:
    """The choices as rows of buttons."""
    buttons = [{"type": 2, "style": 2, "label": one.label, "custom_id": one.value} for one in choices]
    return [{"type": 1, "components": buttons[at_ : at_ + _IN_A_ROW]} for at_ in range(0, len(buttons), _IN_A_ROW)]


def whisper_of(part: Part) -> JsonObject:
    """What whoever pressed a button alone is shown."""
    return {"content": _content_of(part), "allowed_mentions": NOBODY, "flags": _ONLY_TO_ONE | _NO_PREVIEWS}


def new_buttons(part: Part) -> JsonObject:
    """The buttons that replace those below the message that was pressed."""
    return {"components": rows_of(part.choices or ()), "allowed_mentions": NOBODY}


def press_is_over(error: DiscordError) -> bool:
    """Whether a press can no longer be answered, which is so after some minutes."""
    return error.code in _PRESS_OVER or error.status == 404


def outcome_of(error: DiscordError | OSError, part: Part) -> Outcome:
    """The outcome of a part that was not sent normally."""
    match error:
        case RouteUsedUp():
            return Later(error.seconds, "the limit of the channel")
        case NotWritten():
            return Later(_SOON_S, str(error))
        case DiscordError():
            return _refusal_of(error, part)
    return Uncertain(str(error))


def _refusal_of(error: DiscordError, part: Part) -> Outcome:
    if error.status == 429:
        after = error.retry_after if error.retry_after is not None else _SOON_S
        return Later(after, str(error), account=error.is_global)
    if error.status == 401 or (error.is_foreign and error.status != 413):
        return Later(_SIGNED_OUT_S, str(error))  # nothing is lost: receiving reports that somebody must sign in
    if error.code == _DELETED:  # it was sent before, and somebody has deleted it
        return Sent("")
    if error.code in _TARGET:
        return Refused(str(error), "target")
    if error.code in _BLOCKED or error.status == 403:
        return Refused(f"{_BLOCKED.get(error.code, error.message)} ({error.code})", "blocked")
    return Refused(_with_fields(error), _reason_for(error, part))


def _reason_for(error: DiscordError, part: Part) -> Why:
    return "markup" if part.choices is not None and "components" in error.fields else "other"


def _with_fields(error: DiscordError) -> str:
    wrong = ", ".join(sorted(error.fields))
    return f"{error}: {wrong}" if wrong else str(error)


def is_same(message: Raw, part: Part, quote: str, me: str) -> bool:
    """Whether a message of ours says what the part says, to whom it says it, with files of the same names and sizes."""
    found, said = message.get("attachments"), message.get("content")
    files = [(_bare_name(at(one, "filename")), at(one, "size")) for one in found] if isinstance(found, list) else []
    if files != [(_bare_name(one.filename), one.size_bytes) for one in part.files]:
        return False
    answered = at(message, "message_reference", "message_id")  # nothing if it was deleted before it was answered
    if answered is not None and answered != _quoted_by(part, quote):
        return False
    return isinstance(said, str) and said.strip() == _content_of(part).strip() and at(message, "author", "id") == me


def _bare_name(name: object) -> str:
    """What Discord leaves of a name in any case."""
    return "".join(one for one in name if one.isascii() and one.isalnum()) if isinstance(name, str) else ""


def sent_of(answer: JsonMapping) -> Sent:
    """The message that was made."""
    return Sent(word(answer.get("id")) or "")

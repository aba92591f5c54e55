"""Slack's texts as people read them: names for ids, links behind their words. Pure; called by `events.py`.

In: a message of Slack, however odd; out: texts. Takes linear time and raises nothing. Next: `names.py`, which finds
the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from switchboard.ports.raw import Raw, child, word

_TOKEN: Final = re.compile(r"<([@#!]?)([^<>|\n]{1,3000})(?:\|([^<>\n]{0,3000}))?>")
_MENTIONED: Final = re.compile(r"<@([UW][A-Z0-9]{1,40})[|>]")
_NAMED: Final = re.compile(r"<#(C[A-Z0-9]{1,40})\|?>")
_ENTITY: Final = re.compile(r"&(amp|lt|gt);")
_CHARACTERS: Final = {"amp": "&", "lt": "<", "gt": ">"}
_SCHEME: Final = re.compile(r"^(?:https?://|mailto:)", re.IGNORECASE)
_DEEPEST: Final = 8
_MAX_NAME: Final = 80
_TOKENS: Final = {
    "link": ("<{}>", "url"),
    "user": ("<@{}>", "user_id"),
    "channel": ("<#{}>", "channel_id"),
    "usergroup": ("<!subteam^{}>", "usergroup_id"),
    "broadcast": ("<!{}>", "range"),
    "emoji": (":{}:", "name"),
}
"""By the type of an element of a block, how it stands in texts, and the field that names it."""
_WITH_TEXT: Final = frozenset({"section", "header", "markdown", "mrkdwn", "plain_text"})
_OF_LINES: Final = frozenset({"rich_text", "rich_text_list", "context"})


def source_of(message: Raw) -> str:
    """The text as Slack stores it, of the blocks if there is no other."""
    text = message.get("text")
    if isinstance(text, str) and text:
        return text
    return "\n".join(filter(None, (_text_of_block(one, 0) for one in _list_at(message, "blocks")))).strip()


def users_in(source: str) -> Iterator[str]:
    """The ids of the users that are mentioned in a text."""
    return (found[1] for found in _MENTIONED.finditer(source))


def channels_in(source: str) -> Iterator[str]:
    """The ids of the channels that a text mentions without their names."""
    return (found[1] for found in _NAMED.finditer(source))


def in_words(source: str, names: Mapping[str, str], own: str) -> str:
    """The text as it is read. A mention of our own user at its beginning is left out: it says no more than whom it is
    for.
    """
    own_mention = re.match(rf"\s*<@{re.escape(own)}(?:\|[^<>\n]*)?>[\s:,]*", source)
    if own_mention:
        source = source[own_mention.end() :]
    return _decode_entities(_TOKEN.sub(lambda found: _words_of_token(found, names), source)).strip()


def _words_of_token(found: re.Match[str], names: Mapping[str, str]) -> str:
    sign, what, label = found[1], found[2], found[3] or ""
    match sign:
        case "@":
            return f"@{(label or names.get(what, what)).removeprefix('@')[:_MAX_NAME]}"
        case "#":
            return f"#{(label or names.get(what, what))[:_MAX_NAME]}"
        case "!":
            return _words_of_command(what, label)
    url = _SCHEME.sub("", what) if what.lower().startswith("mailto:") else what
    return url if not label or _without_scheme(label) == _without_scheme(url) else f"{label} ({url})"


def _words_of_command(what: str, label: str) -> str:
    """Groups of users, everybody, and times, which people read in their own zone."""
    name = what.partition("^")[0]
    if name == "date":
        return label or what
    return f"@{(label or what.rpartition('^')[2]).removeprefix('@')}"


def _without_scheme(url: str) -> str:
    return _SCHEME.sub("", url).rstrip("/").casefold()


def _decode_entities(text: str) -> str:
    return _ENTITY.sub(lambda found: _CHARACTERS[found[1]], text)


def escape_text(text: str) -> str:
    """A text that Slack shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _text_of_block(block: object, depth: int) -> str:
    """The text of a block or an element, in the form of the texts that Slack stores."""
    about = child(block)
    kind = word(about.get("type")) or ""
    if depth > _DEEPEST:
        return ""
    if kind == "text":
        return escape_text(_string_of(about.get("text")))
    if kind in _WITH_TEXT:
        return _string_of(about.get("text")) or _string_of(child(about, "text").get("text"))
    if kind in _TOKENS:
        form, name = _TOKENS[kind]
        return form.format(word(about.get(name)) or "")
    between = "\n" if kind in _OF_LINES else ""
    return between.join(_text_of_block(one, depth + 1) for one in _list_at(about, "elements"))


def _string_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list_at(raw: Raw, name: str) -> list[object]:
    found = raw.get(name)
    return found if isinstance(found, list) else []

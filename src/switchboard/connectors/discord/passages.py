"""Whose words a Discord message has: its own, those it quotes, and those it forwards. Pure; called by `events.py`.

In: a message, however odd; out: passages in reading order, with names instead of ids. Takes linear time and raises
nothing. What a message answers is no passage: it stands in the message, and `core/channels/discord.py` reads it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from unicodedata import category

from switchboard.connectors.discord.files import files_of, snapshots_of
from switchboard.connectors.discord.places import DiscordPlaces
from switchboard.core.passages.own import read_passages
from switchboard.core.passages.plain import limit_passages
from switchboard.core.voice.recordings import shown_voices
from switchboard.domain.envelope import Passage
from switchboard.ports.raw import Raw, at, child, first_word, integer, word

_MARK: Final = re.compile(
    r"<@!?(?P<user>\d{1,20})>|<@&(?P<role>\d{1,20})>|<#(?P<place>\d{1,20})>|<a?:(?P<emoji>\w{1,64}):\d{1,20}>"
    r"|<t:(?P<time>-?\d{1,12})(?::[a-zA-Z])?>|</(?P<command>[\w -]{1,100}):\d{1,20}>",
    re.ASCII,
)
_REST_QUOTED: Final = re.compile(r"^>>> ", re.MULTILINE)
_IN_NAMES: Final = frozenset(" '\u2019-_.")
"""What is left of names besides letters and digits: others choose them, and no name must look like a link or a command.
"""
_MAX_NAME: Final = 40
_MOST_ITEMS: Final = 25
_MAX_ITEM: Final = 512


def passages_in(message: Raw, places: DiscordPlaces) -> tuple[Passage, ...]:
    """The words that a person would read, or those that describe the content."""
    said = _without_calls(_text_of(message), places.me, places.own_roles(_guild_of(message)))
    own = read_passages(_quoting_the_rest(_in_words(said, message, places)), "discord")
    found = [*own, *_describe_stickers(message), *_describe_poll(message), *_forwarded_passages(message, places)]
    if not found and (spoken := shown_voices([one for one, _ in files_of(message)])):
        found = [Passage(kind="own", text=spoken)]
    return limit_passages(found)


def _text_of(message: Raw) -> str:
    text = message.get("content")
    return text if isinstance(text, str) else ""


def _guild_of(message: Raw) -> str | None:
    return integer(message.get("guild_id"))


def _without_calls(text: str, me: str, roles: frozenset[str]) -> str:
    """The text without the names of ours at its beginning, unless it is nothing else."""
    left = text
    while (mark := _MARK.match(left)) is not None and (mark["user"] == me or mark["role"] in roles):
        left = left[mark.end() :].lstrip()
    return left or text


def _in_words(text: str, message: Raw, places: DiscordPlaces) -> str:
    """The text with names instead of ids."""
    if "<" not in text:
        return text
    found = message.get("mentions")
    people = {
        user: name
        for one in (found if isinstance(found, list) else ())
        if (user := integer(at(one, "id"))) and (name := first_word(one, ("global_name",), ("username",)))
    }
    guild = _guild_of(message)
    return _MARK.sub(lambda mark: _name_for(mark, people, guild, places), text)


def _name_for(mark: re.Match[str], people: Mapping[str, str], guild: str | None, places: DiscordPlaces) -> str:
    kind = mark.lastgroup
    match kind:
        case "user":
            return f"@{_plain_name(people.get(mark['user'])) or mark['user']}"
        case "role":
            return f"@{_plain_name(places.role_name(guild, mark['role'])) or mark['role']}"
        case "place":
            return f"#{_plain_name(places.shown_name(guild, mark['place'])) or mark['place']}"
        case "emoji":
            return f":{mark['emoji']}:"
        case "command":
            return f"/{mark['command']}"
    return _time_text(int(mark["time"])) or mark[0]


def _time_text(seconds: int) -> str | None:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def _plain_name(name: str | None) -> str:
    letters = (one if one.isalnum() or one in _IN_NAMES or category(one)[0] == "M" else " " for one in name or "")
    return " ".join("".join(letters).split())[:_MAX_NAME].strip()


def _quoting_the_rest(text: str) -> str:
    """With a mark on every line after `>>> `, which stands for all of them."""
    begin = _REST_QUOTED.search(text)
    if begin is None:
        return text
    before, rest = text[: begin.start()], text[begin.end() :]
    return before + "\n".join(f"> {line}" for line in rest.split("\n"))


def _describe_stickers(message: Raw) -> Iterator[Passage]:
    for one in _items_in(message.get("sticker_items")):
        yield Passage(kind="own", text=f"(Sticker: {_line_of(one.get('name')) or '?'})")


def _describe_poll(message: Raw) -> Iterator[Passage]:
    poll = child(message, "poll")
    if poll:
        options = (f"- {_line_of(at(one, 'poll_media', 'text'))}" for one in _items_in(poll.get("answers")))
        question = _line_of(at(poll, "question", "text"))
        yield Passage(kind="own", text="\n".join((f"(Poll: {question})", *options)))


def _forwarded_passages(message: Raw, places: DiscordPlaces) -> Iterator[Passage]:
    """What was forwarded; Discord does not say by whom it was written."""
    for one in snapshots_of(message):
        said = _in_words(_text_of(one), {**one, "guild_id": message.get("guild_id")}, places).strip()
        described = "\n".join(some.text for some in (*_describe_stickers(one), *_describe_poll(one)))
        if text := "\n\n".join(filter(None, (said, described))) or _named_files(one):
            yield Passage(kind="forwarded", text=text, sent_at=time_in(one.get("timestamp")))


def _named_files(message: Raw) -> str:
    names = [word(one.get("filename")) or "?" for one in _items_in(message.get("attachments"))]
    return f"(Files: {', '.join(names)})" if names else ""


def time_in(value: object) -> datetime | None:
    """A time as Discord writes it."""
    text = word(value)
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def _items_in(found: object) -> Sequence[Raw]:
    return [child(one) for one in found[:_MOST_ITEMS]] if isinstance(found, list) else ()


def _line_of(text: object) -> str:
    return " ".join(text[:_MAX_ITEM].split()) if isinstance(text, str) else ""

"""The names of users and channels, which Slack gives by their ids. Called by `channel.py`; next: `texts.py`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.raw import child, first_word

_KNOWN_S: Final = 3600.0
_UNKNOWN_S: Final = 60.0
_MOST: Final = 5000
_MOST_IN_ONE: Final = 20
"""Names that are looked up for one message: others stay ids."""


class NameBook:
    """Names by id; of what has no name, nobody is told why, since its id stands for it."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._names: dict[str, tuple[str, float]] = {}

    def note(self, id_: str, name: str) -> None:
        """A name that Slack has given along the way."""
        self._put_name(id_, name, _KNOWN_S)

    async def find(self, users: Iterable[str], channels: Iterable[str]) -> Mapping[str, str]:
        """The names of those that have one; Slack is asked for some of those that are not known."""
        asked = [
            *((one, "users.info", "user") for one in users),
            *((one, "conversations.info", "channel") for one in channels),
        ]
        now = time.monotonic()
        unknown = [one for one in dict.fromkeys(asked) if self._names.get(one[0], ("", 0.0))[1] < now]
        for id_, method, kind in unknown[:_MOST_IN_ONE]:
            await self._ask(id_, method, kind)
        return {id_: name for id_, _, _ in asked if (name := self._names.get(id_, ("", 0.0))[0])}

    async def _ask(self, id_: str, method: str, kind: str) -> None:
        try:
            answer = await self._api.read_now(method, {kind: id_})
        except SlackRefusal:
            self._put_name(id_, "", _UNKNOWN_S)
        except OSError:
            return
        else:
            self._put_name(id_, name_of(child(answer, kind)), _KNOWN_S)

    def _put_name(self, id_: str, name: str, seconds: float) -> None:
        self._names.pop(id_, None)
        self._names[id_] = name, time.monotonic() + seconds
        if len(self._names) > _MOST:
            del self._names[next(iter(self._names))]


def name_of(about: JsonMapping) -> str:
    """What people call a user or a channel; empty if nobody says, or if not everybody may know of the channel."""
    if about.get("is_private"):
        return ""
    paths = ("profile", "display_name"), ("real_name",), ("profile", "real_name"), ("name",)
    return first_word(about, *paths) or ""

"""The tool `history_search`: what was said to and by a butler, as far as whoever asks may see it.

`registry.py` builds it. What is found has others' words, and so counts as read from outside. In: words, days, a person,
a channel; out: a line of JSON for each message and its reply. Next: `ports/history.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from switchboard.core.passages.names import speaker
from switchboard.core.text.outside import outside_json
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.history import SaidEntry, WantedHistory
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.memory_tool import read_day

MOST_FOUND: Final = 10
"""Messages in one result, each with its reply."""
_SHOWN: Final = 400
"""Characters of a text that are shown, beginning before the first word that was looked for."""
_BEFORE: Final = 80
_DAY: Final = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
_NOTHING: Final = "nothing that was said here fits; say that you do not know, or try other words, or fewer"
_NO_DAY: Final = "write days as YYYY-MM-DD, from 1900 to 2199"

HISTORY_SEARCH: Final = ToolSpec(
    "history_search",
    "Look for what was said in earlier conversations, word for word: messages and your replies, with their dates. Give "
    "words, days or both. It finds what was written, not what is true now.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "maxLength": 1000, "description": "Words of which any may occur"},
            "since": {**_DAY, "description": "First day"},
            "until": {**_DAY, "description": "Last day"},
            "person": {"type": "string", "maxLength": 200, "description": "Who wrote, by name"},
            "channel": {"type": "string", "maxLength": 64, "description": "Such as email"},
        },
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)


class HistorySearch(NamedTool):
    """See the port."""

    spec: Final = HISTORY_SEARCH

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the messages that fit best, each with its reply."""
        try:
            wanted = _read_wanted(arguments, scope.zone)
        except ValueError:
            return ToolOutcome(_NO_DAY, ok=False)
        found = () if scope.memory is None else await scope.memory.search_history(wanted)
        if not found:
            return ToolOutcome(_NOTHING)
        return ToolOutcome("\n".join(outside_json(_row_of(one, wanted.words, scope.zone)) for one in found))


def _read_wanted(arguments: JsonMapping, zone: str) -> WantedHistory:
    """What is asked for. Raises ValueError for a day that there is not."""
    given: Mapping[str, str] = {
        name: arguments.get(name, "") for name in ("query", "since", "until", "person", "channel")
    }
    until = _begin_of_day(given["until"], zone)
    return WantedHistory(
        given["query"].strip(),
        _begin_of_day(given["since"], zone),
        None if until is None else until + timedelta(days=1),
        given["person"].strip(),
        given["channel"].strip().lower(),
        MOST_FOUND,
    )


def _begin_of_day(day: str, zone: str) -> datetime | None:
    return read_day(day, zone) if day else None


def _row_of(said: SaidEntry, words: str, zone: str) -> JsonMapping:
    who, channel = speaker(said.name, said.person), said.person.partition("/")[0]
    matched = _find_words(words, said.text)
    row: dict[str, object] = {
        "at": f"{said.created_at.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M}",
        "by": who if said.role == "user" else "you",
        "channel": channel,
        "text": _show_excerpt(said.text, matched),
    }
    return row | ({"words": matched} if matched else {})


def _find_words(words: str, text: str) -> list[str]:
    """Those of a text that were looked for, as the store finds them: of longer ones the last two letters are free."""
    wanted = [(len(one), one[: max(4, len(one) - 2)]) for one in re.findall(r"\w+", words.lower())]
    there = dict.fromkeys(re.findall(r"\w+", text.lower()))
    return [one for one in there if any(one.startswith(stem) if size > 3 else one == stem for size, stem in wanted)]


def _show_excerpt(text: str, matched: list[str]) -> str:
    first = min((at for one in matched if (at := text.lower().find(one)) >= 0), default=0)
    begin = max(0, first - _BEFORE) if len(text) > _SHOWN else 0
    shown = text[begin : begin + _SHOWN]
    return f"{'…' * (begin > 0)}{shown}{'…' * (begin + _SHOWN < len(text))}"

"""What the tools of memory have in common: their module, the form in which they show facts, and what they say of none.

Models are offered `remember`, `memory_search` and `history_search` always, and the others when they ask for those of
`memory`. What may not be told and what there is not get the same words. Next: `recall.py`, `keeping.py`, `entities.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from switchboard.core.memory.settling import SELF
from switchboard.core.passages.names import speaker
from switchboard.core.text.fact_numbers import number_of
from switchboard.core.text.outside import outside_json
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.facts import Fact, PersonalMemory
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolSpec

MOST_SHOWN: Final = 40
"""Facts in one result."""
NOWHERE: Final = ToolOutcome("nothing is remembered here", ok=False)
UNKNOWN: Final = "nothing is remembered under this name that may be told here; say that you do not know"
NO_NUMBER: Final = "nothing that may be told here has the number {number}; memory_search and memory_recall show numbers"
NUMBER_SCHEMA: Final = {"type": "string", "maxLength": 8, "description": "Number of a fact, such as k7q2d"}
NAME_SCHEMA: Final = {"type": "string", "minLength": 1, "maxLength": 200}
_YEARS: Final = range(1900, 2200)
"""Those of days that are meant: with others, sums and time zones leave the calendar of Python."""


class MemoryTool(NamedTool):
    """A tool of memory that is offered when it is asked for."""

    __slots__ = ()

    module_name: Final = "memory"
    core: Final = False


def spec_of(name: str, description: str, properties: Mapping[str, object], required: Iterable[str]) -> ToolSpec:
    """The spec of a tool that changes nothing twice, and reaches nothing outside."""
    parameters = {
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
    }
    return ToolSpec(name, description, parameters, "idempotent", reach="inside")


def read_day(day: str, zone: str) -> datetime:
    """The beginning of a day. Raises ValueError if it is none, or nobody means it, such as 9999-12-31."""
    found = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=ZoneInfo(zone))
    if found.year not in _YEARS:
        raise ValueError(f"{day} is not between {_YEARS.start} and {_YEARS.stop}")
    return found


async def show_facts(facts: Iterable[Fact], memory: PersonalMemory) -> str:
    """A line of JSON for each fact: what was said, by whom, when and about whom, and never that it is so."""
    shown = [*facts]
    names = await memory.find_names({one.author for one in shown})
    lines = [outside_json(_row_of(one, names)) for one in shown[:MOST_SHOWN]]
    more = len(shown) - len(lines)
    return "\n".join((*lines, *((f"{more} more are not shown",) if more else ())))


def _row_of(fact: Fact, names: Mapping[str, str]) -> JsonMapping:
    row: dict[str, object] = {
        "number": number_of(fact.fact_id),
        "on": f"{fact.said_at or fact.created_at:%Y-%m-%d}",
        "by": "the person who writes" if fact.own else speaker(names.get(fact.author, ""), fact.author),
    }
    if fact.subject != SELF:
        row["about"] = fact.subject
    row["said"] = " ".join(fact.text.split())
    if fact.valid_to is not None:
        row["until"] = f"{fact.valid_to:%Y-%m-%d}"
    if fact.contradicts:
        row["contradicts"] = [*map(number_of, fact.contradicts)]
    return row

"""Time zones by their IANA names, such as Europe/Berlin.

Settings, options of butlers and tasks read names of zones with `find_zone`. Next: `schedules.py`.
"""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from switchboard.core.text.problems import abbreviate_value

_OF_THE_MACHINE: Final = frozenset({"localtime", "posixrules", "posix", "right", "Factory"})
"""Files and directories beside the zones: what they mean differs between machines, or they mean no place at all."""


def find_zone(name: str) -> ZoneInfo:
    """The time zone with this IANA name. Raises ValueError that says what would be right."""
    try:
        if name.partition("/")[0] not in _OF_THE_MACHINE:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ValueError(f"there is no time zone {abbreviate_value(name)}; write one such as Europe/Berlin")

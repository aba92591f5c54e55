"""When a route of Discord may be asked again, as the headers of its answers say. Pure; called by `rest.py`.

`now` is in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_MOST: Final = 1000
_OWN: Final = {"channels": 1, "guilds": 1, "interactions": 2, "webhooks": 2}
"""How many ids of a path have limits of their own: a press is named by two."""


def route_of(verb: str, path: str) -> str:
    """The route of a path: of its ids only those count with which it begins."""
    first, *rest = path.partition("?")[0].strip("/").split("/")
    own = _OWN.get(first, 0)
    return f"{verb} /{'/'.join((first, *rest[:own], *('…' if one.isdecimal() else one for one in rest[own:])))}"


@dataclass(slots=True)
class RouteTimes:
    """Remembers which routes are used up, and until when."""

    _until: dict[str, float] = field(default_factory=dict)

    def wait(self, route: str, now: float) -> float:
        """Seconds until the route may be asked; 0: now."""
        return max(self._until.get(route, 0.0) - now, 0.0)

    def learn(self, route: str, headers: Mapping[str, str], now: float) -> None:
        """What an answer says of its route."""
        after = seconds_in(headers.get("x-ratelimit-reset-after"))
        if headers.get("x-ratelimit-remaining") == "0" and after is not None:
            self._until[route] = now + after
        if len(self._until) > _MOST:
            self._until = {name: until for name, until in self._until.items() if until > now}


def seconds_in(value: object) -> float | None:
    """A number of seconds, at most a day; None: it is none."""
    try:
        found = float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None
    return None if found is None or not found >= 0.0 else min(found, 86_400.0)

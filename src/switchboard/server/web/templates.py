"""The one environment of all templates: it escapes everything, and an unknown name is an error.

`site.py` opens it with the first page, as Jinja2 takes 50 ms to import. In: a template and its values; out: HTML.
Next: `templates/parts.html`, the macros that pages are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from switchboard.core.text.visible import escaped
from switchboard.core.turns.asking import render_arguments
from switchboard.server.web.static import StaticFiles

_HERE: Final = Path(__file__).with_name("templates")
_SAFE: Final = frozenset({"http", "https", "mailto"})
SHOWN: Final = 2000
"""Characters of a foreign text that are shown at once."""


class PageTemplates:
    """Renders the templates. `zone`: in which times are shown, None for that of this machine."""

    def __init__(self, static: StaticFiles, zone: str | None) -> None:
        self._zone: tzinfo | None = None if zone is None else ZoneInfo(zone)
        self._environment = Environment(
            loader=FileSystemLoader(_HERE),
            autoescape=True,  # of every template, whatever its name
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals |= {"static": static.address, "shown": SHOWN}
        self._environment.filters |= {
            "visible": escaped,
            "arguments": render_arguments,
            "link": safe_address,
            "readable": unquote,  # names of conversations and lanes have their parts quoted
            "segment": lambda value: quote(str(value), safe=""),
            "clock": self._show_clock,
            "hour": lambda at: f"{at.astimezone(self._zone):%H:%M}",
            "utc": lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        }

    def render(self, template: str, values: Mapping[str, object]) -> str:
        """The template with these values."""
        return self._environment.get_template(template).render(values)

    def _show_clock(self, at: datetime, *, seconds: bool = False) -> str:
        """The time of today, with the day for another one."""
        there, now = at.astimezone(self._zone), datetime.now(UTC).astimezone(self._zone)
        time = f"{there:%H:%M:%S}" if seconds else f"{there:%H:%M}"
        if there.date() == now.date():
            return time
        return f"{there:%-d %b} {time}" if there.year == now.year else f"{there:%-d %b %Y}"


def safe_address(url: str) -> str:
    """An address from outside, if a browser may follow it; otherwise nothing."""
    try:
        return url if urlsplit(url.strip()).scheme.lower() in _SAFE else ""
    except ValueError:
        return ""

"""A check of the search: it is asked once, from here. Called by `app/ops/checks.py`. Next: `searxng.py`."""

from __future__ import annotations

from typing import Final

from switchboard.ports.checks import CheckResult, ok, warning
from switchboard.ports.search import SearchFailure
from switchboard.tools.search_spec import SearchPlace
from switchboard.tools.searxng import Searxng

_QUERY: Final = "switchboard"


async def check_search(place: SearchPlace) -> list[CheckResult]:
    """Search once, from here."""
    if place.url is None:
        return []
    try:
        await Searxng(place).search(_QUERY, 1)
    except SearchFailure as failure:
        remedy = "correct it, or [search] in the settings; butlers with web_search are told the same"
        return [warning("search", f"{place.url}: {failure}", remedy)]
    return [ok("search", f"{place.url} answers")]

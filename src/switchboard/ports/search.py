"""The port of searches in the web.

`tools/searxng.py` implements it, the tool `web_search` asks through it. In: words; out: pages, the best first. Next:
`tools.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class FoundPage(Struct, frozen=True):
    """A page as its provider describes it: every field is text from outside."""

    title: str
    url: str
    text: str


class SearchFailure(Exception):
    """There is no result; the message says why, as a clause. `passing`: the same search may succeed a little later."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Search(Protocol):
    """A provider of the settings."""

    async def search(self, query: str, n: int) -> Sequence[FoundPage]:
        """At most `n` pages, each address once. Raises `SearchFailure`.

        If cancelled, it leaves nothing running.
        """
        ...

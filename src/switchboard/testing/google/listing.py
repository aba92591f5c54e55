"""Lists with pages and tokens, as both APIs have them: a list goes on with the parameters with which it began.

`calendar_api.py` and `people_api.py` name what is listed. In: parameters; out: a page, or `GoogleRefusal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.google.errors import GoogleRefusal

_PER_PAGE: Final = frozenset({"pageToken", "maxResults", "pageSize"})


class ListedPage(Struct, frozen=True):
    """Of the two tokens there is one: that of the next page, or on the last one that of the next sync."""

    items: Sequence[JsonObject]
    next_page: str = ""
    next_sync: str = ""


class _Begun(Struct, frozen=True):
    left: Sequence[JsonObject]
    parameters: Mapping[str, str]
    next_sync: str


class TokenList:
    """What is listed of one collection. `page_size`: of a page at most, however many are asked for."""

    def __init__(self, lost: GoogleRefusal, page_size: int) -> None:
        self.page_size = page_size
        self._lost = lost
        self._count = 0
        self._pages: dict[str, _Begun] = {}
        self._since: dict[str, tuple[int, Mapping[str, str]]] = {}

    def expire_tokens(self) -> None:
        """As after a week, or a change of rights."""
        self._since.clear()

    def page_of(
        self, parameters: Mapping[str, str], state: int, select: Callable[[int | None], Sequence[JsonObject]]
    ) -> ListedPage:
        """`select` finds what has changed since a state, or everything; its answer is of the state `state`."""
        same = {name: value for name, value in parameters.items() if name not in _PER_PAGE}
        if (named := parameters.get("pageToken")) is not None:
            begun = self._pages.pop(named, None)
            if begun is None or begun.parameters != same:
                raise GoogleRefusal(400, "invalid", "Invalid page token value.")
        else:
            begun = _Begun(select(self._since_state(same)), same, self._token_for(state, same))
        size = min(self.page_size, int(parameters.get("maxResults") or parameters.get("pageSize") or self.page_size))
        if len(begun.left) <= size:
            return ListedPage(begun.left, next_sync=begun.next_sync)
        self._count += 1
        further = f"page-{self._count}"
        self._pages[further] = _Begun(begun.left[size:], same, begun.next_sync)
        return ListedPage(begun.left[:size], next_page=further)

    def _since_state(self, parameters: Mapping[str, str]) -> int | None:
        token = parameters.get("syncToken")
        if token is None:
            return None
        if token not in self._since:
            raise self._lost
        state, before = self._since[token]
        if before != {name: value for name, value in parameters.items() if name != "syncToken"}:
            raise GoogleRefusal(400, "invalid", "The parameters are others than those of the first list.")
        return state

    def _token_for(self, state: int, parameters: Mapping[str, str]) -> str:
        self._count += 1
        token = f"sync-{id(self):x}-{self._count}="
        self._since[token] = state, {name: value for name, value in parameters.items() if name != "syncToken"}
        return token

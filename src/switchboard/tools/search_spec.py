"""Where the web is searched: `[search]` of the settings.

Made by `app/settings.py`, read by `searxng.py`. It does not import the web client.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

AUTHORIZATION: Final = "authorization"


class SearchPlace(Struct, frozen=True):
    """Where a search server is. `url` is that of its start page. The key comes from the variable `key_env`, if named,
    and goes into `key_header`, as a bearer token if that is `authorization`. `seconds` is the limit for a search.
    """

    url: str
    key_env: str | None = None
    key_header: str = AUTHORIZATION
    seconds: float = 20.0

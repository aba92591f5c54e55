"""Where the web is searched: `[search]` of the settings.

Read by `app/settings.py`, used by `searxng.py`. It does not import the web client.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from switchboard.domain.numbers import Positive

AUTHORIZATION: Final = "authorization"


class SearchPlace(Struct, frozen=True):
    """Who searches the web for butlers. Without a provider nobody does. `url` is that of its start page.

    The key comes from the variable `key_env`, if named, and goes into `key_header`, as a bearer token if that is
    `authorization`. `timeout` is the limit for a search in seconds.
    """

    provider: Literal["searxng"] | None = None
    url: Annotated[str, Meta(pattern=r"^https?://[^\s?#@]+$")] | None = None
    key_env: str | None = None
    key_header: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$")] = AUTHORIZATION
    timeout: Positive = 20.0

    def check(self) -> None:
        """Raises ValueError if one of two is missing."""
        if (self.provider is None) != (self.url is None):
            raise ValueError('name both: provider = "searxng", and url, the start page of the server')

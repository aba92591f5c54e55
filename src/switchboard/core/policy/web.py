"""The settings of the page for people. Read by `app/settings.py`; used by `server/web`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from switchboard.core.zones import find_zone


class WebSettings(Struct, frozen=True):
    """`[web]`. `time_zone`: in which times are shown, by default that of the server.

    `insecure`: pages are also served over plain HTTP under names that are not this machine's loopback, so that anybody
    on the way can read them and take over the session.
    """

    time_zone: Annotated[str, Meta(min_length=1)] | None = None
    insecure: bool = False

    def check(self) -> None:
        """Raises ValueError for a time zone that is not known."""
        if self.time_zone is not None:
            find_zone(self.time_zone)

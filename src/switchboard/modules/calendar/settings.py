"""The table `[modules.calendar]`. The kernel reads it; `opened.py` hands it on."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from switchboard.modules.accounts.settings import AccountName, DavAccount


class CalendarSettings(Struct, frozen=True):
    """The accounts whose calendars are mirrored, by the names that tools and operators use."""

    accounts: Mapping[AccountName, DavAccount] = field(default_factory=dict)

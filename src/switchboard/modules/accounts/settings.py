"""The tables `[modules.contacts.accounts.NAME]` and `[modules.calendar.accounts.NAME]`.

The settings of both modules have a mapping of `DavAccount`. It imports no library, as manifests name it. Next:
`walls.py`, who may see into an account; `logins.py`, how it is opened.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

AccountName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$", description="Small letters, digits and hyphens.")
]
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_VIEWER: Final = re.compile(r"(?:person|group):[^\s:]+")


class PasswordPlace(Struct, frozen=True):
    """Where a password is. A relative file is beside the settings file."""

    file: Path | None = None
    env: str | None = None

    def check(self) -> None:
        """Raises ValueError."""
        if (self.file is None) == (self.env is None):
            raise ValueError('give the password as {file = "…"} or as {env = "…"}')


class DavAccount(Struct, frozen=True):
    """An account on a server, which is a person's or a household's. All that tools show of it is decided by that."""

    url: str = ""
    """Where it is; the site is enough for most servers. Google's is known, and only tests name another."""
    user: str = ""
    password: PasswordPlace | None = None
    person: str = ""
    """The id of the person whose account it is, as in `switchboard people list`."""
    group: str = ""
    """Of a household account: the group of people whose members share it."""
    busy_for: tuple[str, ...] = ()
    """Who else may see when the person is busy, and nothing more: `person:ann` or `group:family`."""
    region: Annotated[str, Meta(pattern=r"^(?:[A-Z]{2})?$")] = ""
    """The country of phone numbers without its code, such as `DE`."""
    zone: str = ""
    """The IANA name of the time zone of calendars that say none, for times whose own zone is unknown; empty: UTC."""
    addresses: tuple[str, ...] = ()
    """The e-mail addresses by which the person is invited to meetings, besides `user` if that is one."""
    sends: Literal["server", "mail", "nobody"] = "nobody"
    """Who sends the invitations to a meeting: the server; we, by mail; or nobody, so that none are made."""
    provider: Literal["dav", "google"] = "dav"
    """By what it is reached: CalDAV or CardDAV, with a password, or Google's own interface, with a `token_file`."""
    token_file: Path | None = None
    """The file that `switchboard modules login google` has written. A relative one is beside the settings file."""

    @property
    def owner(self) -> str:
        """Whose it is: `person:ann` or `group:family`."""
        return f"person:{self.person}" if self.person else f"group:{self.group}"

    def check(self) -> None:
        """Raises ValueError."""
        check_owner(self.person, self.group)
        if not self.user:
            raise ValueError("`user` is missing: who logs in")
        if self.provider == "google":
            self._check_google()
        else:
            self._check_dav()
        if wrong := [one for one in self.busy_for if not _VIEWER.fullmatch(one)]:
            raise ValueError(f'`busy_for` has entries such as "person:ann" or "group:family", not {wrong[0]!r}')
        if self.zone:
            _check_zone(self.zone)

    def _check_dav(self) -> None:
        if self.password is None or self.token_file is not None:
            raise ValueError('the password is {file = "…"} or {env = "…"}; `token_file` goes with provider = "google"')
        _check_url(self.url)

    def _check_google(self) -> None:
        if self.token_file is None or self.password is not None:
            raise ValueError("an account of Google has a `token_file`, and neither `url` nor `password`")
        if "@" not in self.user:
            raise ValueError("`user` is the mail address of whoever has signed in to Google")
        if self.url and urlsplit(self.url).hostname not in _LOOPBACK:
            raise ValueError("an account of Google has no `url`, unless tests play it on this machine")


def check_owner(person: str, group: str) -> None:
    """Raises ValueError unless an account has exactly one of the two."""
    if bool(person) == bool(group):
        raise ValueError("say whose account it is: either `person`, an id of a person, or `group`")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("`url` is the https address of the server")
    if parts.username is not None or parts.password is not None:
        raise ValueError("`url` has neither a user nor a password: they are settings of their own")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("`url` sends the password in the clear: use https; http only to this machine")


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"there is no time zone {zone!r}; it is a name such as Europe/Berlin") from error

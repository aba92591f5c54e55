"""Where well-known providers have their calendars and address books, and what password they want. Pure.

`wizard.py` asks which one it is. Addresses are those of the providers' manuals; `docs/accounts.md` says which of them
were never tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

_FOR_PROGRAMS: Final = "It wants a password that is made for programs, not the one with which you log in: "


class Preset(Struct, frozen=True):
    """A provider. `urls` are by kinds of accounts; without them the address is asked for, and `path` is added to it."""

    urls: Mapping[str, str] = {}
    path: str = ""
    asks: str = "the address of the server, such as https://dav.example.org"
    hint: str = ""
    """What to say of the password."""


PRESETS: Final[Mapping[str, Preset]] = {
    "nextcloud": Preset(
        path="/remote.php/dav",
        asks="the address of your Nextcloud, such as https://cloud.example.org",
        hint=_FOR_PROGRAMS + "Settings, Security, Devices & sessions.",
    ),
    "fastmail": Preset(
        {"caldav": "https://caldav.fastmail.com/", "carddav": "https://carddav.fastmail.com/"},
        hint=_FOR_PROGRAMS + "Settings, Privacy & Security, Manage app passwords.",
    ),
    "icloud": Preset(
        {"caldav": "https://caldav.icloud.com/", "carddav": "https://contacts.icloud.com/"},
        hint=_FOR_PROGRAMS + "account.apple.com, Sign-In and Security, App-Specific Passwords.",
    ),
    "mailbox.org": Preset({"caldav": "https://dav.mailbox.org/", "carddav": "https://dav.mailbox.org/"}),
    "radicale": Preset(asks="the address of your Radicale, such as https://radicale.example.org"),
    "other": Preset(),
}


def place_at(preset: Preset, typed: str) -> str:
    """The address of the server, from what a person has typed: with https, and the path of the provider."""
    url = typed if "://" in typed else f"https://{typed}"
    return url.rstrip("/") + preset.path if preset.path and urlsplit(url).path in ("", "/") else url


def other_place(kind: str, url: str) -> str:
    """Where the same account has its things of another kind."""
    return next((one.urls[kind] for one in PRESETS.values() if url in one.urls.values()), url)

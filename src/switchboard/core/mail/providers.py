"""The servers of common mail providers, by the domain of an address. Pure; `connectors/email` offers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.domain.json_values import JsonObject

_HOSTS: Final[Mapping[str, tuple[str, str, int]]] = {
    "aol.com": ("imap.aol.com", "smtp.aol.com", 465),
    "fastmail.com": ("imap.fastmail.com", "smtp.fastmail.com", 465),
    "gmail.com": ("imap.gmail.com", "smtp.gmail.com", 465),
    "gmx.com": ("imap.gmx.com", "mail.gmx.com", 587),
    "gmx.net": ("imap.gmx.net", "mail.gmx.net", 587),
    "icloud.com": ("imap.mail.me.com", "smtp.mail.me.com", 587),
    "mailbox.org": ("imap.mailbox.org", "smtp.mailbox.org", 465),
    "outlook.com": ("outlook.office365.com", "smtp-mail.outlook.com", 587),
    "posteo.de": ("posteo.de", "posteo.de", 465),
    "web.de": ("imap.web.de", "smtp.web.de", 587),
    "yahoo.com": ("imap.mail.yahoo.com", "smtp.mail.yahoo.com", 465),
}
_SAME: Final = {
    "fastmail.fm": "fastmail.com",
    "gmx.at": "gmx.net",
    "gmx.ch": "gmx.net",
    "gmx.de": "gmx.net",
    "googlemail.com": "gmail.com",
    "hotmail.com": "outlook.com",
    "live.com": "outlook.com",
    "mac.com": "icloud.com",
    "me.com": "icloud.com",
    "msn.com": "outlook.com",
    "posteo.net": "posteo.de",
}


def usual_servers(given: JsonObject) -> JsonObject:
    """`imap` and `smtp` for the address in the settings; empty for an unknown provider."""
    domain = str(given.get("address", "")).rpartition("@")[2].strip().lower()
    found = _HOSTS.get(_SAME.get(domain, domain))
    if found is None:
        return {}
    imap, smtp, port = found
    return {"imap": {"host": imap, "port": 993}, "smtp": {"host": smtp, "port": port}}

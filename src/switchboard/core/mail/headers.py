"""The header fields of a mail in `payload.raw`, and their addresses. Strangers wrote both; nothing here raises.

Called by `core/channels/email.py`. Next: `auth.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from switchboard.core.text.lenient import string

_MAX_LINE: Final = 10_000
_QUOTED = re.compile(r'"[^"]*"')
_ANGLED = re.compile(r"<([^<>]*)>")
_BETWEEN = re.compile(r"[\s,;]+")


def headers(raw: object, name: str) -> list[str]:
    """All fields of that name (in lower case), the topmost first; empty if one is not text.

    `headers` in `raw` is an object, or `payload.headers` a list of names and values, as in the Gmail API.
    """
    own = _get(raw, "headers") or _get(_get(raw, "payload"), "headers")
    if isinstance(own, list):
        return [string(_get(pair, "value")) for pair in own if string(_get(pair, "name")).lower() == name]
    if not isinstance(own, Mapping):
        return []
    found: object = next((value for key, value in own.items() if string(key).lower() == name), [])
    return [string(value) for value in (found if isinstance(found, list) else [found])]


def header(raw: object, name: str) -> str:
    """The topmost field of that name; empty if there is none."""
    found = headers(raw, name)
    return found[0] if found else ""


def _get(raw: object, name: str) -> object:
    return raw.get(name) if isinstance(raw, Mapping) else None


def address(value: str) -> str | None:
    """The bare, lower-cased address in `Ann <ann@example.com>`; quoted text is a name, not an address."""
    bare = _QUOTED.sub(" ", value)
    angled = _ANGLED.findall(bare)
    words = _BETWEEN.split(angled[-1] if angled else bare)
    return next((word.lower().rstrip(".") for word in words if "@" in word.strip("@.")), None)


def mailboxes(line: str) -> list[str]:
    """The recipients in a field such as To, each with its name."""
    return _QUOTED.sub(" ", line[:_MAX_LINE]).split(",")


def list_id(line: str) -> str:
    """The id in `News <news.example.com>`, lower-cased."""
    angled = _ANGLED.findall(_QUOTED.sub(" ", line[:_MAX_LINE]))
    return (angled[-1] if angled else line).lower()


def domain_of(mail_address: str) -> str | None:
    """The part after the last `@`, if there is one."""
    return mail_address.rpartition("@")[2] if "@" in mail_address else None


def without_tag(mail_address: str) -> str:
    """`me@example.com` for `me+shop@example.com`."""
    local, at, domain = mail_address.rpartition("@")
    return f"{local.partition('+')[0]}{at}{domain}"


def mailbox_of(endpoint: str) -> str:
    """`me@example.org` for the account `gmail:me@example.org`."""
    own = endpoint.rpartition(":")[2]
    return address(own) or own.strip("<> ").lower()


def is_mailbox(mail_address: str, own: str) -> bool:
    """Whether mail for this address arrives in the mailbox `own`, with or without a tag; both in lower case."""
    return own in {mail_address, without_tag(mail_address)}

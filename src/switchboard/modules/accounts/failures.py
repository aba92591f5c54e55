"""What a failure of a server of calendars or address books means: what is wrong, and what would be right. Pure.

Wizards and syncs tell operators, tools tell whoever has asked. Next: `ports/collection_server.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.ports.collection_server import ServerError, ServerState
from switchboard.transport.dav.kinds import CALDAV, DavKind

_MEANING: Final[Mapping[ServerState, str]] = {
    "later": "the server cannot be reached now, or is busy",
    "login": "the server refuses the user or the password",
    "login_page": "the address leads to a page for people, such as one to log in",
    "forbidden": "the server does not let this user do that",
    "elsewhere": "the server refers to another site, to which no password is sent",
    "quota": "the server has no space left for this user",
    "changed": "somebody else has changed it meanwhile",
    "missing": "the server does not have it, or not any more",
    "too_large": "it is too large",
    "refused": "the server refuses it",
    "unprotected": "the server does not say in which state it is, so a change could undo somebody else's unnoticed",
    "unreadable": "the server gives an answer that makes no sense",
    "unknown": "the connection broke, so nobody can tell whether it was done; look before you try again",
}
_ADDRESS: Final = "give the address of its {protocol} server, which its manual has"
_REMEDIES: Final[Mapping[ServerState, str]] = {
    "later": "check the address; if it is right, try again later",
    "login": "correct them; many providers want a password that is made for programs",
    "login_page": _ADDRESS,
    "forbidden": "give an address that is its own, or only the site",
    "elsewhere": "give the address there",
    "missing": _ADDRESS,
    "unreadable": _ADDRESS,
}
"""What an operator does about it."""


def describe_failure(error: ServerError) -> str:
    """What it means for whoever has asked, and what the server has said."""
    return f"{_MEANING[error.state]} ({error})"


def describe_for_operators(error: ServerError, kind: DavKind | None) -> str:
    """The same for those who have set up the account, with what would be right; None: Google says that itself."""
    if kind is None:
        return describe_failure(error)
    remedy = _REMEDIES.get(error.state, "").format(protocol="CalDAV" if kind is CALDAV else "CardDAV")
    return f"{describe_failure(error)}; {remedy}" if remedy else describe_failure(error)

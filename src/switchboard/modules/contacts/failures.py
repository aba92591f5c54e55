"""What a failure of a server means, in words for people: what is wrong, and what would be right. Pure.

`syncing.py` tells operators, `writing.py` whoever has asked. Next: `ports/collection_server.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.ports.collection_server import ServerError, ServerState

_MEANING: Final[Mapping[ServerState, str]] = {
    "later": "the server cannot be reached now, or is busy; it is tried again",
    "login": "the server refuses the user or the password; correct them in the settings, or in the file of the "
    "password (many providers want one that they issue for programs)",
    "login_page": "the address leads to a page for people; give the address of the CardDAV server",
    "forbidden": "the server does not let this user do that",
    "elsewhere": "the server refers to another site, to which no password is sent; give the address there",
    "quota": "the server has no space left for this user",
    "changed": "somebody else has changed it meanwhile",
    "missing": "the server does not have it any more",
    "too_large": "it is too large",
    "refused": "the server refuses it",
    "unprotected": "the server does not say in which state it is, so a change could undo somebody else's unnoticed",
    "unreadable": "the server gives an answer that makes no sense; is it a CardDAV server?",
    "unknown": "the connection broke, so nobody can tell whether it was done; look before you try again",
}


def describe_failure(error: ServerError) -> str:
    """What it means, and what the server has said."""
    return f"{_MEANING[error.state]} ({error})"

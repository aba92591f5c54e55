"""What a refusal says on a page: to people, who know of no routes, tokens and codes. Pure.

`site.py` shows it for every error of a use case. In: the error; out: a heading and a sentence that says what mends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from switchboard.app.access import Action, AnyRole
from switchboard.domain.errors import Forbidden, SwitchboardError

_HEADINGS: Final[Mapping[int, str]] = {
    401: "You are signed out",
    403: "That is not allowed",
    404: "Not found",
    409: "It has changed meanwhile",
    413: "That is too large",
    429: "That is too much at once",
    503: "Not at the moment",
}
_OTHER_HEADING: Final = "That does not work"
_SENTENCES: Final[Mapping[str, str]] = {
    "invalid_cursor": "This link leads to a place in a list that is not there; open the list again from the menu.",
    "internal_error": "This is a mistake of ours, and it is in the server's log. Try it again; if it stays so, "
    "`switchboard doctor` looks for the cause.",
}
"""In place of those for programs."""
_WHO: Final[Mapping[AnyRole, str]] = {
    "operator": "an operator",
    "approver": "somebody who decides what butlers ask",
    "connector": "a member of the household",
}


class ToldError(Struct, frozen=True):
    """What the page of an error says."""

    heading: str
    sentence: str


def tell_refusal(error: SwitchboardError) -> ToldError:
    """The words for an error."""
    sentence = _SENTENCES.get(error.code, error.message)
    return ToldError(_HEADINGS.get(error.status, _OTHER_HEADING), f"{sentence[:1].upper()}{sentence[1:]}")


def refuse_role(role: AnyRole, needs: Action) -> Forbidden:
    """The error for those whose pages are others."""
    meant = "operators and those who decide what butlers ask" if "approver" in needs.roles else "operators"
    own = _WHO.get(role, "somebody else")
    return Forbidden(
        f"this is for {meant}, and you are signed in as {own}; a link that `switchboard open` prints on the machine of "
        "the server signs in an operator"
    )

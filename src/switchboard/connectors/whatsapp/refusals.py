"""Errors of the Graph API and of statuses: their meaning for a part, and in words. Pure.

Called by `sending.py`, `statuses.py` and `channel.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.connectors.whatsapp.graph import GraphRefusal

WINDOW_IS_OVER: Final = 131047
UNDELIVERABLE: Final = 131026
PAIR_LIMIT: Final = 131056
WRONG_MEDIA: Final = frozenset({131051, 131052, 131053})
_ACCOUNT_LIMITS: Final = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 900.0, 131064: 900.0}
"""Seconds for which the whole account is to wait."""
_AWAY: Final = frozenset({2, 131016, 131057})
"""Meta is away, or the number is being changed."""
UNSURE: Final = frozenset({1, 131000})
"""Something went wrong, and nobody says what."""
_WORDS: Final = {
    190: "Meta does not accept the token: make one of a system user that does not expire",
    368: "Meta has blocked the account for a violation of its policies: see the Business Support Home",
    131026: "WhatsApp cannot deliver to this person, who may have blocked the number or have no WhatsApp",
    131031: "Meta has locked the account: see the Business Support Home",
    131042: "the account has no valid payment method: add one in the WhatsApp Manager",
    131045: "the number is not registered: register it under WhatsApp, API Setup",
    131047: "the person has not written for 24 hours, after which WhatsApp delivers only templates",
    131048: "WhatsApp limits this number, as too many of its messages were blocked or called spam",
    131049: "Meta withholds the message from this person, who gets many of such",
    131053: "WhatsApp cannot use the file",
    133010: "the number is not registered: register it under WhatsApp, API Setup",
}
_PERMISSIONS: Final = (3, 10, *range(200, 300), 131005)
_NEEDS_PERSON: Final = frozenset({190, 368, 131031, 131042, 131045, 133010, *_PERMISSIONS})


def account_limit_s(code: int) -> float | None:
    """For how many seconds the account may send nothing, if the error is a limit of all of it."""
    return _ACCOUNT_LIMITS.get(code)


def is_away(error: GraphRefusal) -> bool:
    """Whether the same request may succeed soon."""
    return error.code in _AWAY or (error.code == 0 and error.status == 429)


def needs_person(error: GraphRefusal) -> bool:
    """Whether nothing can be sent until a person has acted at Meta."""
    return error.code in _NEEDS_PERSON or is_token_refused(error)


def is_token_refused(error: GraphRefusal) -> bool:
    """Whether the token is no good."""
    return error.code == 190 or (error.code == 0 and error.status == 401)


def is_unreachable(code: int) -> bool:
    """Whether nothing can be sent to this person until they write again."""
    return code in (WINDOW_IS_OVER, UNDELIVERABLE)


def words_for(code: int, told: str) -> str:
    """An error in words, with Meta's own behind them."""
    known = _WORDS.get(code)
    if code in _PERMISSIONS:
        known = "the token lacks a permission: it needs whatsapp_business_messaging and whatsapp_business_management"
    said = f"{told} ({code})" if told else f"error {code}"
    return said if known is None else f"{known} (Meta: {said})"


def describe_refusal(error: GraphRefusal) -> str:
    """The same of a request."""
    return words_for(error.code, error.told) if error.code else error.told

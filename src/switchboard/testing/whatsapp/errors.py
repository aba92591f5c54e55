"""What the Graph API refuses, and the faults that it can be told to make. `server.py` carries them out."""

from __future__ import annotations

from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.testing.platform_server import Cut, Hang, Page

_STATUSES: Final = {1: 500, 2: 503, 10: 403, 190: 401, 200: 403, 368: 403, 131000: 500, 131005: 403, 131016: 500}
"""By code; all others are 400, also those of limits."""
_TITLES: Final = {
    1: "An unknown error has occurred.",
    2: "Service temporarily unavailable",
    4: "Application request limit reached",
    10: "Application does not have permission for this action",
    100: "Invalid parameter",
    190: "Invalid OAuth access token - Cannot parse access token",
    200: "You do not have the necessary permissions to send messages on behalf of this WhatsApp Business Account",
    368: "Temporarily blocked for policies violations",
    2200: "Callback verification failed",
    80007: "Rate limit hit",
    130429: "Rate limit hit",
    131000: "Something went wrong",
    131008: "Required parameter is missing",
    131009: "Parameter value is not valid",
    131016: "Service unavailable",
    131026: "Message undeliverable",
    131031: "Account has been locked",
    131042: "Business eligibility payment issue",
    131047: "Re-engagement message",
    131049: "This message was not delivered to maintain healthy ecosystem engagement.",
    131051: "Unsupported message type",
    131053: "Media upload error",
    131056: "(Business Account, Consumer Account) pair rate limit hit",
    132001: "Template name does not exist in the translation",
    133010: "Account not registered",
}
_WITHOUT_NUMBER: Final = frozenset({1, 2, 190})
"""Codes that do not stand before the message."""


class GraphError(Exception):
    """An unsuccessful answer, with the code of its error; `details` say what is wrong with the request."""

    def __init__(self, code: int, details: str = "", *, title: str | None = None, subcode: int | None = None) -> None:
        super().__init__(details)
        self.code, self.details, self.subcode = code, details, subcode
        self.title = title or title_of(code)
        self.status = _STATUSES.get(code, 400)

    def as_json(self) -> JsonObject:
        """The body of the answer."""
        kind = "GraphMethodException" if self.subcode == 33 else "OAuthException"
        bare = self.code in _WITHOUT_NUMBER or self.subcode is not None
        message = self.title if bare else f"(#{self.code}) {self.title}"
        error: JsonObject = {"message": message, "type": kind, "code": self.code}
        if self.details:
            error["error_data"] = {"messaging_product": "whatsapp", "details": self.details}
        if self.subcode is not None:
            error["error_subcode"] = self.subcode
        return {"error": {**error, "fbtrace_id": "AQtestTrace0"}}


Fault = GraphError | Page | Hang | Cut


def title_of(code: int) -> str:
    """Meta's title of an error."""
    return _TITLES.get(code, f"Error {code}")


def unknown_object(name: str) -> GraphError:
    """There is no such object, or the token may not see it."""
    told = (
        f"Unsupported request. Object with ID '{name}' does not exist, cannot be loaded due to missing permissions, "
        "or does not support this operation"
    )
    return GraphError(100, title=told, subcode=33)

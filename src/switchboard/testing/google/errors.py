"""What Google's APIs refuse, and the faults that their server can be told to make. `server.py` carries them out."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.platform_server import Cut, Hang, Page

_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    410: "NOT_FOUND",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Refusal(Struct, frozen=True):
    """An error instead of an answer, as of a limit: nothing is carried out."""

    status: int
    reason: str
    retry_after: str = ""


Fault: TypeAlias = Page | Hang | Cut | Refusal


class GoogleRefusal(Exception):
    """An answer with a status of 400 and more."""

    def __init__(self, status: int, reason: str, message: str = "", retry_after: str = "") -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.message = message or reason
        self.retry_after = retry_after

    def as_calendar(self) -> JsonObject:
        """As the Calendar API has it."""
        domain = "usageLimits" if self.reason.endswith("LimitExceeded") else "global"
        one = {"domain": domain, "reason": self.reason, "message": self.message}
        return {"error": {"errors": [one], "code": self.status, "message": self.message}}

    def as_people(self) -> JsonObject:
        """As the People API has it, with the reason in the details if it is one."""
        error: JsonObject = {"code": self.status, "message": self.message, "status": _STATUSES[self.status]}
        if self.reason.isupper():
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            error["details"] = [{"@type": kind, "reason": self.reason, "domain": "people.googleapis.com"}]
        elif self.reason == "failedPrecondition":
            error["status"] = "FAILED_PRECONDITION"
        return {"error": error}

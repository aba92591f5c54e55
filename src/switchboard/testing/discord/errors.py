"""What Discord refuses, and the faults that it can be told to make. `server.py` carries them out."""

from __future__ import annotations

from typing import Final

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.platform_server import Cut, Hang, Page


class RestError(Exception):
    """An unsuccessful answer: its status, the code of its error and its message.

    `retry_after` in seconds is that of a 429; `is_global`: it is of all routes.
    """

    def __init__(
        self, status: int, code: int, message: str, *, retry_after: float | None = None, is_global: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after, self.is_global = retry_after, is_global


class FormError(RestError):
    """A body that is refused, with what is wrong with which of its fields."""

    def __init__(self, **errors: str) -> None:
        super().__init__(400, 50035, "Invalid Form Body")
        self.errors: JsonMapping = {
            field: {"_errors": [{"code": "INVALID", "message": message}]} for field, message in errors.items()
        }


Fault = RestError | Page | Hang | Cut


def too_many_requests(retry_after: float, *, is_global: bool = False, code: int = 0) -> RestError:
    """A 429; its code is 0 but for limits of a channel (20028)."""
    message = "You are being rate limited."
    return RestError(429, code, message, retry_after=retry_after, is_global=is_global)


UNKNOWN_CHANNEL: Final = RestError(404, 10003, "Unknown Channel")
UNKNOWN_GUILD: Final = RestError(404, 10004, "Unknown Guild")
UNKNOWN_MESSAGE: Final = RestError(404, 10008, "Unknown Message")
MISSING_ACCESS: Final = RestError(403, 50001, "Missing Access")
MISSING_PERMISSIONS: Final = RestError(403, 50013, "Missing Permissions")
CLOSED_TO_BOT: Final = RestError(403, 50007, "Cannot send messages to this user")
ARCHIVED_THREAD: Final = RestError(400, 50083, "Tried to perform an operation on an archived thread")
LOCKED_THREAD: Final = RestError(403, 160005, "Thread is locked")
THREAD_EXISTS: Final = RestError(400, 160004, "A thread has already been created for this message")
INVALID_PRESS: Final = RestError(401, 50027, "Invalid Webhook Token")
UNKNOWN_INTERACTION: Final = RestError(404, 10062, "Unknown interaction")
INTERACTION_HEARD: Final = RestError(400, 40060, "Interaction has already been acknowledged.")
EMPTY_MESSAGE: Final = RestError(400, 50006, "Cannot send an empty message")
TOO_LARGE: Final = RestError(413, 40005, "Request entity too large")

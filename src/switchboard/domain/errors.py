"""The one exception tree.

What is expected is a value (a duplicate, a dead letter, a fenced turn); what is raised is what the caller must hear of.

    SwitchboardError                 code, message, field?, status (as an HTTP door would answer)
    ├── InvalidInput         422     the sender must change something
    ├── TooLarge             413
    ├── Unauthenticated      401
    ├── Forbidden            403
    ├── NotFound             404
    ├── Conflict             409     valid, but not now or not any more
    ├── Overloaded           429     retry_after seconds
    ├── ConfigurationError   500     stops the start: file, line, what would be right
    └── Unavailable          503     the database or another part is not to be reached; retry
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SwitchboardError(Exception):
    """Base of all errors that Switchboard raises on purpose.

    `code` is stable and for machines; `str(error)` is a sentence for people that says what would be right.
    """

    status = 500
    code = "internal_error"
    details: Mapping[str, Any] | None = None
    """More for machines, where one field is not enough; JSON types and frozen values."""

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        if code is not None:
            self.code = code


class InvalidInput(SwitchboardError):
    """The input is not what the contract says; nothing was stored."""

    status = 422
    code = "invalid_input"


class TooLarge(SwitchboardError):
    """The input exceeds a size limit; nothing was stored."""

    status = 413
    code = "too_large"


class Unauthenticated(SwitchboardError):
    """No token, or one that is unknown, revoked or expired."""

    status = 401
    code = "unauthenticated"


class Forbidden(SwitchboardError):
    """The token is good, but not for this."""

    status = 403
    code = "forbidden"


class NotFound(SwitchboardError):
    """There is no such thing, or none that this token may see."""

    status = 404
    code = "not_found"


class Conflict(SwitchboardError):
    """The request is valid, but the thing has moved on."""

    status = 409
    code = "conflict"


class Overloaded(SwitchboardError):
    """The backlog is full; come again after `retry_after` seconds."""

    status = 429
    code = "overloaded"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConfigurationError(SwitchboardError):
    """Something in the installation is wrong; the message says where and how to mend it."""

    code = "configuration"


class Unavailable(SwitchboardError):
    """A part that is needed cannot be reached at the moment."""

    status = 503
    code = "unavailable"

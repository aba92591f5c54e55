"""The one exception tree.

Expected outcomes are values (a duplicate, a dead letter, a fenced turn); exceptions are for what the caller must know.

    SwitchboardError                 code, message, field?, status (of the HTTP response)
    ├── InvalidInput         422     the sender must change something
    │   └── NotJson          400     the body cannot be read at all
    ├── TooLarge             413
    ├── Unauthenticated      401
    ├── Forbidden            403
    ├── NotFound             404
    ├── Conflict             409     valid, but not now or no longer
    │   └── AccountHeld              retry_after seconds
    ├── Overloaded           429     retry_after seconds
    │   ├── SenderOverRate
    │   └── BlobQuota
    ├── ConfigurationError   500     stops the start: file, line, what would be correct
    └── Unavailable          503     the database or another part cannot be reached; retry
"""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.json_values import JsonMapping


class SwitchboardError(Exception):
    """Base of all errors that Switchboard raises on purpose.

    `code` is stable and for machines; `str(error)` is a sentence for people that says what would be correct.
    """

    status = 500
    code = "internal_error"
    details: JsonMapping | None = None
    """Further details for machines, where one field is not enough; JSON types, frozen values."""

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        if code is not None:
            self.code = code


class InvalidInput(SwitchboardError):
    """The input is invalid; nothing was stored."""

    status = 422
    code = "invalid_input"


class NotJson(InvalidInput):
    """The body is not JSON."""

    status = 400
    code = "invalid_json"


class EventMismatch(InvalidInput):
    """The id of the event belongs to another message, `first`; nothing was stored."""

    code = "event_mismatch"

    def __init__(self, first: UUID) -> None:
        super().__init__(
            f"this event id belongs to message {first}, whose text, sender or thread differ; "
            "give a new event an id of its own",
            field="event.external_event_id",
        )
        self.first = first
        self.details = {"request_id": str(first)}


class IdempotencyMismatch(InvalidInput):
    """The key has been used for another message, `first`; nothing was stored."""

    code = "idempotency_mismatch"

    def __init__(self, first: UUID) -> None:
        super().__init__(
            f"this idempotency key belongs to message {first}, whose text, sender, thread or attachments differ; "
            "give a new message a new key",
            field="control.idempotency_key",
        )
        self.details = {"request_id": str(first)}
        self.first = first


class TooLarge(SwitchboardError):
    """The input exceeds a size limit; nothing was stored."""

    status = 413
    code = "too_large"


class Unauthenticated(SwitchboardError):
    """No token, or an unknown, revoked or expired one."""

    status = 401
    code = "unauthenticated"


class Forbidden(SwitchboardError):
    """The token does not permit this."""

    status = 403
    code = "forbidden"


class NotFound(SwitchboardError):
    """It does not exist, or this token may not read it."""

    status = 404
    code = "not_found"


class Conflict(SwitchboardError):
    """The request is valid, but the state has changed."""

    status = 409
    code = "conflict"


class AccountHeld(Conflict):
    """Another instance serves the account; its lease ends in `retry_after` seconds unless it renews it."""

    code = "account_held"

    def __init__(self, holder: str, retry_after: float) -> None:
        super().__init__(f"the account is held by {holder}; lease it to be the next one")
        self.retry_after = retry_after
        self.details = {"instance_id": holder, "retry_after_s": retry_after}


class Overloaded(SwitchboardError):
    """The backlog is full; retry after `retry_after` seconds."""

    status = 429
    code = "overloaded"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SenderOverRate(Overloaded):
    """This sender has sent too much within a minute; others of the same endpoint have not."""

    code = "sender_over_rate"

    def __init__(self, per_minute: int, retry_after: float) -> None:
        super().__init__(
            f"a sender may send {per_minute} messages a minute to one endpoint; nothing was stored",
            retry_after=retry_after,
        )
        self.field = "sender.identity"
        self.details = {"retry_after_s": retry_after}


class BlobQuota(Overloaded):
    """There is no space for the file today, or for any file."""

    code = "blob_quota"

    def __init__(self, limit: str) -> None:
        super().__init__(f"{limit}; nothing was stored, and it may be uploaded later", retry_after=3600)


class TooManyInstances(Overloaded):
    """The maximum number of processes of this account already report; one that falls silent is forgotten."""

    code = "too_many_instances"

    def __init__(self, most: int, forgotten_after: float) -> None:
        super().__init__(
            f"{most} processes of this account report already; give a process the instance_id that it had before, "
            f"or wait: one that is silent for {forgotten_after:.0f} s is forgotten",
            retry_after=forgotten_after,
        )
        self.field = "instance_id"
        self.details = {"retry_after_s": forgotten_after}


class ConfigurationError(SwitchboardError):
    """Something in the installation is wrong; the message says where and how to fix it."""

    code = "configuration"


class Unavailable(SwitchboardError):
    """A required part cannot be reached at the moment."""

    status = 503
    code = "unavailable"

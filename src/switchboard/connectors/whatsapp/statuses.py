"""What Meta reports of our messages: that one was taken, that it was not delivered, what it costs. Pure.

Called by `channel.py` with statuses, each with its surroundings. Next: `refusals.py` for the codes of errors.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from switchboard.connectors.whatsapp.events import sent_s
from switchboard.connectors.whatsapp.refusals import WINDOW_IS_OVER, is_unreachable, words_for
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import LateFailure
from switchboard.ports.raw import at, child, integer, word

_DELIVERED = frozenset({"delivered", "read", "played"})


class MessageStatus(Struct, frozen=True):
    """A report. `key`: that of the part, or what else the message was sent with; `is_billed`: it costs something."""

    wamid: str
    key: str | None
    at: datetime
    is_delivered: bool = False
    is_billed: bool = False
    error: int | None = None
    told: str = ""
    to: JsonObject = {}

    @property
    def failure(self) -> LateFailure | None:
        """The failure to report, if it is one."""
        if self.error is None:
            return None
        reason = words_for(self.error, self.told)
        failure = LateFailure(platform_message_id=self.wamid, reason=reason, at=self.at)
        return replace(failure, because="blocked") if is_unreachable(self.error) else failure

    @property
    def is_too_late(self) -> bool:
        """Whether it failed because the person has not written for a day."""
        return self.error == WINDOW_IS_OVER


def read_status(value: JsonObject, now: datetime) -> MessageStatus | None:
    """The report; None: it names no message."""
    about = child(value, "statuses", 0)
    wamid, status, when = word(about.get("id")), word(about.get("status")), sent_s(about)
    if wamid is None or status is None:
        return None
    error = child(about, "errors", 0)
    pricing = child(about, "pricing")
    to = {"to": word(about.get("recipient_id")), "recipient": word(about.get("recipient_user_id"))}
    has_failed = status == "failed"
    return MessageStatus(
        wamid=wamid,
        key=word(about.get("biz_opaque_callback_data")),
        at=now if when is None else datetime.fromtimestamp(when, UTC),
        is_delivered=status in _DELIVERED,
        is_billed=pricing.get("type") == "regular" or ("type" not in pricing and pricing.get("billable") is True),
        error=int(integer(error.get("code")) or 0) if has_failed else None,
        told=word(at(error, "error_data", "details")) or word(error.get("title")) or "",
        to={name: known for name, known in to.items() if known is not None},
    )

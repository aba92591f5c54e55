"""Notices that a mail of ours was not delivered, as failures of the replies that they are about. Pure.

`channel.py` gives them to the kernel beside the events, which are kept as history. Next: `core/mail/bounce.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from switchboard.core.mail.bounce import reason_of_bounce
from switchboard.core.mail.mime import read_part
from switchboard.ports.connector import Inbound, LateFailure, Unreadable


def late_failures(events: Iterable[Inbound | Unreadable]) -> tuple[LateFailure, ...]:
    """The failures that these mails report."""
    return tuple(_failure_of(one) for one in events if is_bounce(one))


def is_bounce(event: Inbound | Unreadable) -> TypeGuard[Inbound]:
    """Whether it is such a notice, and names the mail."""
    if isinstance(event, Unreadable):
        return False
    about = event.envelope.event
    return about.kind == "bounce" and about.refers_to is not None


def _failure_of(event: Inbound) -> LateFailure:
    """By its own date, if it has one that can be: a notice that is delivered twice, at two times, is one failure."""
    about, reason = event.envelope.event, reason_of_bounce(read_part(event.raw))
    return LateFailure(
        platform_message_id=about.refers_to or "",
        reason=reason.text,
        at=min(about.observed_at, about.sent_at or about.observed_at),
        because="blocked" if reason.is_final else None,
    )

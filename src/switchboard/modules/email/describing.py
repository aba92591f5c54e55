"""What goes wrong with a mailbox, in words for whoever has asked. Pure."""

from __future__ import annotations

from typing import Final

from switchboard.core.text.visible import visible_start
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import SignInRefused

MAILBOX_FAILURES: Final = (ConfigurationError, SignInRefused, OSError)
"""What opening a mailbox, and each of its commands, may raise."""


def describe_mail_failure(error: Exception) -> str:
    """In a sentence without a full stop."""
    if isinstance(error, ConfigurationError):
        return error.message
    if isinstance(error, TimeoutError):
        return "the mail server took too long; ask for fewer days, or for one folder"
    return visible_start(f"{error}", 300) or "the mail server cannot be reached"

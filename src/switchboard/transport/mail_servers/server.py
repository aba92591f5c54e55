"""Where a server of mail listens, and how connections to it are encrypted.

Part of the settings of whatever connects to one. Next: `mailbox.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, model_validator

Tls = Literal["tls", "starttls", "none"]
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_STARTTLS: Final = frozenset({"25", "143", "587"})
"""Ports at which a connection begins in the clear."""


class Server(BaseModel, extra="forbid", frozen=True):
    """Where a mail server listens."""

    host: Annotated[str, Field(min_length=1, description="the help pages of your provider name it")]
    port: Annotated[int, Field(ge=1, le=65535, description="as a rule 993 for IMAP, 465 or 587 for SMTP")]
    tls: Tls = "tls"
    """Unless it is said, `starttls` at the ports where that is usual."""

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, given: object) -> object:
        if isinstance(given, dict) and "tls" not in given and str(given.get("port")) in _STARTTLS:
            return {**given, "tls": "starttls"}
        return given

    @model_validator(mode="after")
    def _require_encryption(self) -> Server:
        if self.tls == "none" and self.host not in _LOOPBACK:
            raise ValueError('`tls = "none"` sends the password in the clear: only to this machine')
        return self

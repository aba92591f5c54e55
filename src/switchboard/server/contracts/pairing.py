"""The shapes of requests and answers about who may write. Next: `app/connectors/pairing.py`."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from switchboard.app.connectors.pairing import HeldMessage, PairingCode
from switchboard.domain.shown import ShownContact
from switchboard.server.contracts.base import Body, ResponseBody, Word

__all__ = ["PairingCode"]


class CodeBody(Body):
    """The endpoint that the code is for; `owner_of`: the butler that its sender will own."""

    channel: Word
    endpoint: Word
    owner_of: Word | None = None


class ContactBody(Body):
    """Who is approved: a person by the platform's id or address, or a group by that of its chat."""

    channel: Word
    endpoint: Word
    identity: Word
    scope: Literal["person", "group"] = "person"


class ContactPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    contacts: list[ShownContact]
    next_cursor: str | None


class HeldPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    messages: list[HeldMessage]
    next_cursor: str | None


class AllowedContact(ResponseBody):
    """Who was approved."""

    contact_id: UUID


class DecidedContact(ResponseBody):
    """`messages` counts those that were released, or forgotten."""

    contact_id: UUID
    messages: int

"""A call of a tool outside turns, as every interface shows it.

`app/calls.py` makes it from what is on record of the message that the call is. Next: `core/calls.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from switchboard.domain.ledger import ReplyFile

CallState = Literal["pending", "done", "failed"]


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call of a tool outside turns, and its result.

    `text`: what the tool has answered, or why there is no result; empty while it is `pending`. `approval_id`: what
    people must decide before it is made.
    """

    call_id: UUID
    system_id: str
    tool: str
    state: CallState = "pending"
    text: str = ""
    files: Sequence[ReplyFile] = ()
    approval_id: UUID | None = None

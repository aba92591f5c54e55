"""The shapes of bodies about what a platform tells a connector unasked: events that it pushes, and late failures.

`server/http` reads and answers with them. Next: `app/connectors/posted.py`.
"""

from __future__ import annotations

from typing import Literal

from switchboard.domain.ledger import OutboxState
from switchboard.server.contracts.base import Body, ResponseBody, Word, Words
from switchboard.server.contracts.dead_letters import Moment


class PushedBody(Body):
    """An event that the platform pushed over a socket; `raw` is base64.

    `mark`: the platform's id of the event. One that waits already is kept only once.
    """

    channel: Word
    endpoint: Word
    mark: Word
    raw: str


class PushedKept(ResponseBody):
    """It is kept, and the platform may be answered."""

    status: Literal["kept"]


class LateFailureBody(Body):
    """The platform did not deliver a message that it had taken: by its id, as a receipt or a part has named it.

    `at`: when it failed, by the platform's clock; the same report again changes nothing. `because`: `blocked`, nothing
    can be sent there until somebody writes there again.
    """

    channel: Word
    endpoint: Word
    platform_message_id: Word
    outcome: Literal["failed"]
    reason: Words
    because: Literal["blocked"] | None = None
    at: Moment


class LateFailureKept(ResponseBody):
    """The state of the reply; null if none has sent the message. If its receipt comes later, it fails then."""

    state: OutboxState | None

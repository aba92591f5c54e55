"""The shapes of bodies about what a platform tells a connector unasked: events that it pushes.

`server/http` reads and answers with them. Next: `app/connectors/posted.py`.
"""

from __future__ import annotations

from typing import Literal

from switchboard.server.contracts.base import Body, ResponseBody, Word


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

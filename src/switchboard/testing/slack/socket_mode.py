"""Socket Mode: which events are to be sent again, and the sockets that they go to.

Called by `server.py`. An event is sent, and if it is not acknowledged within three seconds, once more at once, after a
minute and after five; then it is lost. Each sending is an envelope of its own, on any open socket: Slack does not say
whether a repeated event has the envelope of the first, so nobody may rely on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from starlette.websockets import WebSocket

from switchboard.domain.json_values import JsonObject
from switchboard.testing.slack.workspace import APP

ACKNOWLEDGE_S: Final = 3.0
AGAIN_AFTER_S: Final = (0.0, 60.0, 300.0)
"""How long after a failed sending the next one is made."""


@dataclass(slots=True)
class Delivery:
    """An event on its way. `attempt` counts from 0; `due`: when it is sent or, once `is_sent`, when that has failed.

    `type` is that of its envelope: what is `interactive` is sent once, and whoever pressed sees that nobody heard it.
    """

    payload: JsonObject
    due: float
    type: Literal["events_api", "interactive"] = "events_api"
    attempt: int = 0
    is_sent: bool = False
    envelope_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(slots=True, eq=False)
class Socket:
    """A connection of the app. `is_deaf`: it gets no events, while its pings are answered."""

    web: WebSocket
    is_deaf: bool = False


class Deliveries:
    """The events on their way. Pure, but for the time that it is given."""

    def __init__(self, clock: Callable[[], float], again_after: Sequence[float] = AGAIN_AFTER_S) -> None:
        self._clock, self._again_after = clock, again_after
        self.waiting: list[Delivery] = []
        self.acknowledged: list[JsonObject] = []
        self.lost: list[JsonObject] = []
        """Those that were never acknowledged, and are not sent again."""

    def add(self, payload: JsonObject) -> None:
        """An event that is due now."""
        self.waiting.append(Delivery(payload, self._clock()))

    def add_press(self, payload: JsonObject) -> None:
        """A press of a button, which is due now."""
        self.waiting.append(Delivery(payload, self._clock(), "interactive"))

    def acknowledge(self, envelope_id: str) -> bool:
        """False if that envelope is not waiting for it: its time is over, or it never was."""
        for one in self.waiting:
            if one.is_sent and one.envelope_id == envelope_id:
                self.waiting.remove(one)
                self.acknowledged.append(one.payload)
                return True
        return False

    def next_due(self) -> float | None:
        """When there is something to do, in seconds since 1970."""
        return min((one.due for one in self.waiting), default=None)

    def take_due(self) -> list[Delivery]:
        """Those to be sent now; each must be passed to `note_sent`. Sendings that failed are counted."""
        now = self._clock()
        for one in [one for one in self.waiting if one.is_sent and one.due <= now]:
            self._fail(one, one.due)
        return [one for one in self.waiting if not one.is_sent and one.due <= now]

    def note_sent(self, delivery: Delivery, *, on_socket: bool) -> None:
        """It was sent, or could not be."""
        if on_socket:
            delivery.is_sent, delivery.due = True, self._clock() + ACKNOWLEDGE_S
        else:
            self._fail(delivery, self._clock())

    def _fail(self, delivery: Delivery, at: float) -> None:
        if delivery.attempt == len(self._again_after) or delivery.type == "interactive":
            self.waiting.remove(delivery)
            self.lost.append(delivery.payload)
            return
        delivery.due = at + self._again_after[delivery.attempt]
        delivery.attempt += 1
        delivery.is_sent = False
        delivery.envelope_id = str(uuid.uuid4())


def as_hello(count: int) -> JsonObject:
    """The first frame of a socket; `count` are open."""
    debug = {"host": "applink-1", "build_number": 1, "approximate_connection_time": 18060}
    return {"type": "hello", "num_connections": count, "debug_info": debug, "connection_info": {"app_id": APP}}


def as_disconnect(reason: str) -> JsonObject:
    """The frame that says why the socket will be closed."""
    return {"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-1"}}


def as_envelope(delivery: Delivery) -> JsonObject:
    """The frame with an event."""
    again = {"retry_attempt": delivery.attempt, "retry_reason": "timeout" if delivery.attempt else ""}
    about = {"envelope_id": delivery.envelope_id, "type": delivery.type, "accepts_response_payload": False}
    if delivery.type == "interactive":
        return {**about, "payload": delivery.payload}
    return {**about, "payload": delivery.payload, **again}

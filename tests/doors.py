"""A front door that only remembers what goes through it, and that fails when a test says so."""

from __future__ import annotations

from typing import Literal
from uuid import UUID, uuid4

from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.front_door import Firing, Origin, SubmittedFiring
from switchboard.ports.tools import ToolScope

Fault = Literal["killed before", "killed after", "unavailable", "refused"]


class Killed(BaseException):
    """The process ends here."""


def an_origin(sender: str = "ann", *, conversation: str = "telegram:home:ann") -> Origin:
    return Origin(
        channel="telegram",
        provider="telegram",
        endpoint="home",
        conversation=Conversation(conversation),
        system_id=SystemId("butler"),
        sender=sender,
    )


class RememberingDoor:
    """`FrontDoor` without an installation behind it: a key goes through once."""

    def __init__(self) -> None:
        self.submitted: dict[str, Firing] = {}
        self.faults: list[Fault] = []
        self.closed = ""
        self.reachable: Origin | None = an_origin()
        self._ids: dict[str, UUID] = {}

    @property
    def texts(self) -> list[str]:
        """What went through, in order."""
        return [one.text for one in self.submitted.values()]

    async def origin(self, scope: ToolScope) -> Origin | None:
        return self.reachable if scope.reader is not None else None

    async def obstacle(self, origin: Origin) -> str:
        return self.closed if origin.system_id else "there is no butler"

    async def submit(self, firing: Firing) -> SubmittedFiring:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "unavailable":
            raise Unavailable("the database cannot be reached")
        if fault == "refused":
            raise InvalidInput("no message may have this text")
        if fault == "killed before":
            raise Killed
        self.submitted.setdefault(firing.key, firing)
        duplicate = firing.key in self._ids
        request_id = RequestId(self._ids.setdefault(firing.key, uuid4()))
        if fault == "killed after":
            raise Killed
        return SubmittedFiring(request_id, duplicate)

"""The services behind the interfaces, created once per server. Importing them needs no web framework.

`entrance.py` creates them for a server, and `app.py` for an app without one. Next: the packages of `app/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from switchboard.app.access import Access, Principal
from switchboard.app.messages.blobs import BlobService
from switchboard.app.messages.intake import Intake
from switchboard.app.messages.views import Views
from switchboard.app.metrics import Metrics
from switchboard.app.reach import Reach, reach_of
from switchboard.app.runtime import Switchboard
from switchboard.domain.errors import Unauthenticated
from switchboard.server.polls import Polls

_T = TypeVar("_T")


class ServiceFactory(Generic[_T]):
    """How the service of one topic is made, at its first request. A module of routes that need it declares it."""

    def __init__(self, make: Callable[[Services], _T]) -> None:
        self.make = make


class Services:
    """The services that several interfaces need, created once per app, and `of` for those of one topic."""

    def __init__(self, switchboard: Switchboard) -> None:
        runtime = switchboard.runtime
        database, settings = runtime.database, runtime.settings
        self.switchboard = switchboard
        self.runtime = runtime
        self._made: dict[ServiceFactory[Any], Any] = {}
        self.access = access = Access(database)
        self.metrics = Metrics()
        self.polls = Polls()
        self.blobs = BlobService(database, access, settings)
        self.intake = Intake(switchboard.accept, switchboard.mails, access, self.blobs, self.metrics)
        self.views = Views(runtime, access)

    def of(self, factory: ServiceFactory[_T]) -> _T:
        """The service that this factory makes, the same for every request."""
        if factory not in self._made:
            self._made[factory] = factory.make(self)
        return cast(_T, self._made[factory])

    def reach(self, caller: Principal) -> Reach:
        """The teams whose rules the caller may read."""
        return reach_of(self.runtime, caller)

    async def admits(self, authorization: str | None) -> bool:
        """Whether a token shown earlier is still valid; it is looked up only once in a while."""
        try:
            await self.access.authenticate(authorization)
        except Unauthenticated:
            return False
        return True

"""The models of a process, as engines use them: `switchboard.ports.models.Models` over a dispatcher.

Made by `app/models/dispatcher.py` for a worker and by `turns/models.py` for a program. Next: `dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from switchboard.domain.llm import Report, Request
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.dispatch import Dispatcher, RequestTerms
from switchboard.llm.spec import API_KINDS, RUNNERS
from switchboard.ports.models import NO_CONTEXT, USUAL, Asking, Habits


class OpenModels:
    """The models that can be asked from here. Close it at the end."""

    def __init__(self, sessions: Sessions, dispatcher: Dispatcher) -> None:
        self._sessions = sessions
        self.dispatcher = dispatcher
        self._specs = {spec.name: spec for spec, _ in sessions.models}

    @property
    def names(self) -> Sequence[str]:
        """As in the port, in the given order."""
        return tuple(name for name, spec in self._specs.items() if spec.kind in API_KINDS)

    @property
    def runners(self) -> Sequence[str]:
        """As in the port."""
        return tuple(name for name, spec in self._specs.items() if spec.kind in RUNNERS)

    async def context(self, name: str, unknown: int = NO_CONTEXT) -> int:
        """How many tokens a model can read; an assumption if it cannot be asked from here."""
        spec = self._specs.get(name)
        return unknown if spec is None else await self._sessions.contexts.of(spec, unknown)

    def flaw(self, name: str) -> str | None:
        """What prevents asking it from this machine, as far as known without asking; None: nothing."""
        return flaw(self._specs[name])

    def habits(self, name: str) -> Habits:
        """As in the port."""
        return self._specs[name].habits if name in self._specs else USUAL

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one after the other until one has answered; all of them, if none of the wanted ones still exists."""
        models = [name for name in asking.models if name in self._specs] or self.names
        terms = RequestTerms(**{**asdict(asking), "models": models})
        return await self.dispatcher.run(request, terms)

    async def aclose(self) -> None:
        """Close the clients."""
        await self._sessions.aclose()

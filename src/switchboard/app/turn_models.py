"""The models of the settings for the turns of butlers: nothing of `llm/` is imported before the first is asked.

`app/ops/engines.py` puts a `TurnModels` into the context of engines. Settings enter; a report per request leaves. Next:
`llm/dispatch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from switchboard.app.settings import ModelSettings, Settings
from switchboard.domain.llm import Report, Request
from switchboard.llm.spec import API_KINDS
from switchboard.ports.models import Asking
from switchboard.store.database import Database

if TYPE_CHECKING:
    from switchboard.app.classification.models import OpenModels


class TurnModels:
    """As `switchboard.ports.models.Models`. Close it at the end."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._known = {model.name: model for model in settings.models}
        self._opening = asyncio.Lock()
        self._open: OpenModels | None = None

    @property
    def names(self) -> Sequence[str]:
        """In the order of the settings."""
        return tuple(self._known)

    async def context(self, name: str) -> int:
        """Tokens of question and answer together. A local server is asked, once in ten minutes."""
        return self._known[name].context or await (await self._opened()).context(name)

    def flaw(self, name: str) -> str | None:
        """What is missing here to ask it; None: nothing, as far as is known without asking."""
        from switchboard.app.classification.models import flaw_of

        return flaw_of(self._known[name])

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one after the other until one has answered."""
        return await (await self._opened()).ask(request, asking)

    async def aclose(self) -> None:
        """Close the clients, if any were opened."""
        if self._open is not None:
            await self._open.aclose()

    async def _opened(self) -> OpenModels:
        async with self._opening:
            if self._open is None:
                open_models = await asyncio.to_thread(_imported)
                self._open = open_models(self._settings, self._database)
            return self._open


def _imported() -> Callable[[Settings, Database], OpenModels]:
    """SDKs take a second to import, so a thread does it at the first request."""
    from switchboard.app.classification.models import open_models

    return open_models


def compacting(models: Sequence[ModelSettings], wanted: str | None) -> list[str]:
    """The model that compacts: the wanted one, else the cheapest with an API; none if there is none."""
    if wanted is not None:
        return [wanted]
    able = [model for model in models if model.kind in API_KINDS]
    return [min(able, key=lambda model: (model.price_in or 0.0) + (model.price_out or 0.0)).name] if able else []

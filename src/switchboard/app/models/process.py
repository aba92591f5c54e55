"""The configured models of a process; nothing of `llm/` is imported before the first is needed.

`app/wiring.py` makes one `ProcessModels` for turns, compaction and classification, which thus share breakers, slots and
spending. Settings enter; a report per request leaves. Next: `app/models/dispatcher.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from switchboard.app.settings import Settings
from switchboard.core.planning.start import ROLES, cast
from switchboard.domain.llm import Report, Request
from switchboard.domain.routing import MODEL_ENGINES, Member
from switchboard.llm.port import Kind
from switchboard.llm.spec import API_KINDS, RUNNERS, ModelSpec
from switchboard.ports.models import NO_CONTEXT, USUAL, Asking, Habits
from switchboard.store.database import Database

if TYPE_CHECKING:
    from switchboard.llm.models import OpenModels


class ProcessModels:
    """Implements `switchboard.ports.models.Models`. Close it at the end."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._known = {model.name: model for model in settings.models}
        self._importing = asyncio.Lock()
        self._open: OpenModels | None = None

    @property
    def names(self) -> Sequence[str]:
        """As in the port."""
        return _of_kinds(self._settings, API_KINDS)

    @property
    def runners(self) -> Sequence[str]:
        """As in the port."""
        return _of_kinds(self._settings, RUNNERS)

    async def context(self, name: str, unknown: int = NO_CONTEXT) -> int:
        """Tokens of question and answer together. A local server is asked, once in ten minutes."""
        return self._known[name].context or await (await self._open_once()).context(name, unknown)

    def flaw(self, name: str) -> str | None:
        """What prevents asking it from here, as far as known without asking; None: nothing."""
        from switchboard.app.models.dispatcher import flaw_of

        return flaw_of(self._known[name])

    def habits(self, name: str) -> Habits:
        """As in the port."""
        return self._known[name].habits if name in self._known else USUAL

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one after the other until one has answered."""
        return await (await self._open_once()).ask(request, asking)

    def open(self) -> OpenModels:
        """Open them if necessary, which imports SDKs for a second. Raises ConfigurationError."""
        if self._open is None:
            self._open = _import_models()(self._settings, self._database)
        return self._open

    async def aclose(self) -> None:
        """Close the clients, if any were opened."""
        if self._open is not None:
            await self._open.aclose()

    async def _open_once(self) -> OpenModels:
        async with self._importing:
            if self._open is None:
                await asyncio.to_thread(_import_models)
            return self.open()


def _import_models() -> Callable[[Settings, Database], OpenModels]:
    from switchboard.app.models.dispatcher import open_models

    return open_models


def compacting(models: Sequence[ModelSpec], wanted: str | None) -> list[str]:
    """The model for compaction: the wanted one, otherwise the cheapest with an API; None if there is none."""
    if wanted is not None:
        return [wanted]
    able = [model for model in models if model.kind in API_KINDS]
    return [min(able, key=lambda model: (model.price_in or 0.0) + (model.price_out or 0.0)).name] if able else []


def butlers_of(members: Iterable[Member], settings: Settings) -> Mapping[str, Sequence[str]]:
    """Which butlers may ask each configured model.

    One with the engine `model` that names none may ask all of those with an API; a command-line program must be named.
    One that plans asks those that play its roles.
    """
    asking = [member for member in members if member.active and member.engine in MODEL_ENGINES]
    butlers: dict[str, Sequence[str]] = {model.name: () for model in settings.models}
    return butlers | {
        name: [one.system_id for one in asking if name in _asked_by(one, settings)]
        for name in _of_kinds(settings, (*API_KINDS, *RUNNERS))
    }


def _asked_by(member: Member, settings: Settings) -> Collection[str]:
    able = _of_kinds(settings, API_KINDS)
    if member.engine == "model":
        named = member.options.get("models") or able
        return named if isinstance(named, list | tuple) else ()
    own = {role: name for role in ROLES if isinstance(name := member.options.get(role), str)}
    return cast({**settings.trio.named, **own}, able[0]).names if able else ()


def _of_kinds(settings: Settings, kinds: Sequence[Kind]) -> tuple[str, ...]:
    return tuple(model.name for model in settings.models if model.kind in kinds)

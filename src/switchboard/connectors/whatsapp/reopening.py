"""Asks people to write again, with a template that costs money: everybody at most once a day. Called by `channel.py`.

Who is asked is noted in the cursor, and the template is sent once the server has that: neither a restart nor a lost
answer sends it twice. If the process dies in between, somebody is not asked that day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from switchboard.connectors.kernel.requests import NotWritten
from switchboard.connectors.whatsapp.asked import PeopleAsked
from switchboard.connectors.whatsapp.graph import GraphClient, GraphRefusal
from switchboard.connectors.whatsapp.refusals import UNSURE
from switchboard.connectors.whatsapp.sending import template_message
from switchboard.domain.json_values import JsonMapping

TEMPLATE_KEY: Final = "template:"
"""In place of the key of a part, in what Meta reports of templates."""
_SAVED_S: Final = 5.0
_SENT_S: Final = 20.0


@dataclass(slots=True, eq=False)
class TemplateSender:
    """Sends one template; `asked` is part of the cursor."""

    graph: GraphClient
    template: tuple[str, str]
    asked: PeopleAsked
    noted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if the cursor is to be saved at once."""
    _saved: PeopleAsked = field(default_factory=PeopleAsked)
    _confirmed: asyncio.Event = field(default_factory=asyncio.Event)

    def confirm(self, saved: PeopleAsked) -> None:
        """The server has a cursor with these."""
        self._saved = saved
        self._confirmed.set()
        self._confirmed = asyncio.Event()

    async def ask(self, names: Sequence[str], to: JsonMapping, now: float) -> bool:
        """Ask somebody, unless it was done within a day. False: again soon. Raises GraphRefusal: nothing was sent."""
        if self.asked.was_asked(names, now) or not self.asked.note(names, now):
            return True
        try:
            if await self._is_saved(names, now):
                await self._send(to)
                return True
        except NotWritten:
            pass
        except GraphRefusal as error:
            if error.code in UNSURE:
                return True
            self.asked.forget(names)
            raise
        except OSError:
            return True  # it may have been sent, so it counts
        self.asked.forget(names)
        return False

    async def _is_saved(self, names: Sequence[str], now: float) -> bool:
        """Have the cursor saved, and wait for it."""
        self.noted.set()
        try:
            async with asyncio.timeout(_SAVED_S):
                while not self._saved.was_asked(names, now):
                    await self._confirmed.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, to: JsonMapping) -> None:
        async with asyncio.timeout(_SENT_S):
            await self.graph.post_to_number("messages", template_message(to, self.template, TEMPLATE_KEY))

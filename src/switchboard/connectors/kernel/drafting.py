"""Shows on the platform what is written so far of an answer. `runner.py` runs a `Drafter` beside the `Typist`.

The server is asked only while it says that a butler works on an answer. Drafts are lost without harm: they are neither
recorded nor repeated, and the reply comes by `sending.py` as if there had been none. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from switchboard.connectors.kernel.answers import Overtaken, Unreachable, WrittenText
from switchboard.connectors.kernel.api import Api
from switchboard.connectors.kernel.parts import ReplyDestination, plan
from switchboard.connectors.kernel.typing import REQUEST_S, TurnIndicator
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Capabilities, Later, Refused
from switchboard.tasks import cancel_tasks, refuse_exit

log = structlog.get_logger(__name__)

_MOST: Final = 4000
"""Characters of an answer that are shown: the most hostile take about a tenth of a second to render."""
_MOST_OFF: Final = 1000


@dataclass(slots=True)
class Drafter(TurnIndicator):
    """Shows drafts until cancelled, at most one in `draft_s` seconds in each conversation."""

    api: Api
    capabilities: Capabilities
    _answering: bool = False
    """Whether a butler works on an answer to a direct chat."""
    _shown: dict[int, str] = field(default_factory=dict)
    """By the number of the answer, what is shown of it."""
    _showing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _off: set[str] = field(default_factory=set)
    """The conversations that take no drafts."""
    _over: bool = False
    """Whether no conversation takes any."""
    _pause_s: float = 0.0

    @property
    def wanted(self) -> bool:
        """Whether the server should say where butlers work."""
        return self.capabilities.draft_s > 0 and not self._over

    def take_answer(self, answering: Mapping[str, JsonObject]) -> None:
        """Take the server's answer to a renewal of the lease: where butlers work, and on what."""
        self._answering = any(address.get("group") is not True for address in answering.values())
        if self._answering:
            self._changed.set()

    def note_reply(self, conversation: str) -> None:
        """A reply arrived: a draft that is on its way must not come after it."""
        self._ended[conversation] = self.clock()
        if (showing := self._showing.pop(conversation, None)) is not None:
            showing.cancel()

    async def run(self) -> None:
        """Run until cancelled. Raises nothing."""
        while self.wanted:
            if not self._answering:
                self._shown.clear()
                self._ended.clear()
                self._changed.clear()
                await self._changed.wait()
            asked = self.clock()
            await self._show_all(asked)
            await asyncio.sleep(max(asked + self.capabilities.draft_s + self._pause_s - self.clock(), 0.0))
        await asyncio.Event().wait()

    async def _show_all(self, asked: float) -> None:
        self._pause_s = 0.0
        try:
            written = await self.api.written_texts()
        except (Unreachable, Overtaken):  # the lease tells of both
            return
        except SwitchboardError as error:
            log.warning("no drafts", why=error.message)
            written = None
        if written is None:  # also a server of an earlier release
            self._over = True
            return
        new = [one for one in written if self._is_new(one, asked)]
        self._shown = {one.number: self._shown.get(one.number, "") for one in written}
        showing = {one.conversation: asyncio.create_task(refuse_exit(self._show, one)) for one in new}
        self._showing = dict(showing)
        try:
            if showing:
                await asyncio.wait(showing.values())
        finally:
            self._showing.clear()
            await cancel_tasks(*showing.values())

    def _is_new(self, one: WrittenText, asked: float) -> bool:
        late = self._ended.get(one.conversation, asked - 1.0) >= asked
        words = one.text[:_MOST].strip()
        return bool(words) and not late and one.conversation not in self._off and self._shown.get(one.number) != words

    async def _show(self, one: WrittenText) -> None:
        """Show it; failures are harmless."""
        words = one.text[:_MOST].strip()
        with suppress(Exception):
            part, *_ = plan(words, (), self.capabilities, ReplyDestination(one.address))
            async with self._turns, asyncio.timeout(REQUEST_S):
                self._note(one, words, await self.session.draft(part, one.number))

    def _note(self, one: WrittenText, words: str, outcome: Later | Refused | None) -> None:
        match outcome:
            case None:
                self._shown[one.number] = words
            case Later(seconds):
                self._pause_s = max(self._pause_s, seconds)
            case Refused(reason, because="blocked") if len(self._off) < _MOST_OFF:
                log.info("no drafts in a conversation", why=reason)
                self._off.add(one.conversation)
            case Refused(reason):
                log.info("no drafts", why=reason)
                self._over = True

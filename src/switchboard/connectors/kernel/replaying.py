"""Events that an operator releases from quarantine are read again, submitted, and then removed from it.

`runner.py` runs a `Replayer` alongside the `Receiver`, and notifies it whenever the lease reports events to replay.
Events that fail again stay in quarantine, with their new reason. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from switchboard.connectors.kernel.answers import Declined, NotNow, QuarantinedEvent, Taken, Unreachable
from switchboard.connectors.kernel.api import Api
from switchboard.connectors.kernel.files import Filer
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.intake import Handling, LeftOut, at_home, prepare_envelope
from switchboard.ports.connector import Session, Unreadable

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SessionIntake:
    """What events of a session are submitted with. `handling` is the account's; all intakes of a session share `moved`.

    `moved`: by the thread that a conversation has now, the one under which it is submitted, so that it stays one.
    """

    session: Session
    api: Api
    handling: Handling
    files: Filer
    health: Health
    moved: dict[str, str]


@dataclass(slots=True)
class Replayer(SessionIntake):
    """Replays for one session until cancelled."""

    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def note_replays(self, replays: int) -> None:
        """The lease reports this many events to replay."""
        if replays:
            self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled. Raises Overtaken, ConfigurationError."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                for quarantine_id in await self.api.replays():
                    await self._replay(quarantine_id)
            except Unreachable as error:  # the next renewal of the lease reports it again, along with any others
                log.info("replay waits", why=error.message)

    async def _replay(self, quarantine_id: str) -> None:
        event = await self.api.fetch_quarantined_event(quarantine_id)
        if event is None:
            return
        why = await self._resubmit_event(event)
        match why:
            case None:
                self.health.counters["replayed"] += 1
                await self.api.discard(quarantine_id)
            case NotNow(reason):  # continue with the others
                log.info("replay waits", event_id=event.event_id, why=reason)
            case _:
                await self.api.quarantine(event.event_id, why, event.raw)

    async def _resubmit_event(self, event: QuarantinedEvent) -> NotNow | str | None:
        """Why it fails again; None if it is settled. Raises Unreachable."""
        found = await self.session.read(event.raw)
        if isinstance(found, Unreadable):
            return found.reason
        # Somebody wants an answer, however old the event is.
        found = at_home(found, self.moved)
        made = prepare_envelope(found, self.handling.model_copy(update={"on_stale": "answer"}), datetime.now(UTC))
        if isinstance(made, LeftOut):
            return None
        if self.files.has_files(made, found.files):
            made = await self.files.store_files(made, found.files)
        match (await self.api.ingest([made]))[0]:
            case Taken():
                return None
            case Declined(code, message):
                return f"{code}: {message}"
            case NotNow() as later:
                return later

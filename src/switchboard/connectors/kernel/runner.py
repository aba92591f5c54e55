"""Keeps one account open: signs in, leases, receives, sends, watches, and reopens it when it breaks.

A second process of the same account waits until the lease is free. A silent connection is rebuilt; if it is silent
again, the process ends, so that its supervisor starts another. Next: `receiving.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import httpx2
import structlog
from msgspec import Struct

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.answers import Lease, Overtaken, Unreachable
from switchboard.connectors.kernel.api import AccountPlace, Api
from switchboard.connectors.kernel.drafting import Drafter
from switchboard.connectors.kernel.files import Filer, limits_of
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.limits import Brake, Earlier
from switchboard.connectors.kernel.posted import EventNotKept
from switchboard.connectors.kernel.receiving import Receiver
from switchboard.connectors.kernel.replaying import Replayer
from switchboard.connectors.kernel.sending import ReplySender, brake_keys
from switchboard.connectors.kernel.typing import Typist
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import (
    Busy,
    Capabilities,
    CursorRefused,
    Identity,
    KeepsCounters,
    Session,
    SignInRefused,
)
from switchboard.tasks import first_of, refuse_exit, unless, wait_at_most

log = structlog.get_logger(__name__)

SILENT: Final = 75
"""The exit code of a process whose connections stay silent (EX_TEMPFAIL)."""
_RENEW_S: Final = 5.0
_BEAT_S: Final = 120.0
_LOOK_S: Final = 1.0
_SETTLES_S: Final = 10.0
"""For so long after the start, it is asked every second where turns run."""
_BEHIND_S: Final = 60.0
"""How far behind the platform is worth a heartbeat of its own."""
_WINDOWS: Final = 3
_SIGN_IN_S: Final = 60.0
_SIGN_IN_AGAIN_S: Final = 900.0
_BUSY_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0

Connect = Callable[[Identity], Awaitable[httpx2.AsyncClient]]
"""A client of the server with the token of the account of this identity. Raises Unreachable, ConfigurationError."""


class _Silent(OSError):
    """The connection is open, but nothing arrives."""


class _AtWork(Struct, frozen=True):
    """What shows people that a butler works: it is typing, and what it has written."""

    typist: Typist
    drafter: Drafter

    @property
    def wanted(self) -> bool:
        """Whether the server should say where butlers work."""
        return self.typist.typing_s > 0 or self.drafter.wanted

    def take_answer(self, answering: Mapping[str, JsonObject], asked: float) -> None:
        """Take the server's answer to a request made at that time."""
        self.typist.take_answer(answering, asked)
        self.drafter.take_answer(answering)

    def note_reply(self, conversation: str) -> None:
        """A reply arrived."""
        self.typist.note_reply(conversation)
        self.drafter.note_reply(conversation)


@dataclass(slots=True)
class Runner:
    """Keeps the account of a file open. `clock` returns monotonic seconds.

    `known` is the account's identity from before: only this one is served, and failures are reported for it.
    `instance_id` is unique among running processes; `restarted`: its previous owner is certainly dead.
    """

    configured: Configured
    connect: Connect
    clock: Callable[[], float]
    known: Identity | None = None
    instance_id: str = field(default_factory=lambda: str(uuid4()))
    restarted: bool = False
    health: Health = field(init=False)
    _api: Api | None = None
    _endpoint: str = ""
    _failures: int = 0
    _silences: int = 0
    _forget_cursor: bool = False
    _beaten: float = float("-inf")
    """When the last heartbeat was sent."""
    _told: str | None = None
    """What the log last said of the connection: why there is none; empty: there is one."""

    def __post_init__(self) -> None:
        self.health = Health(self.clock, self.configured.manifest.capabilities.receive_window_s)
        self._endpoint = self.known.endpoint if self.known else ""

    async def run(self, stop: asyncio.Event) -> int:
        """Run until told to stop; returns the exit code. Raises ConfigurationError if only a person can help."""
        while not stop.is_set() and self._silences < 2:
            await self._pause(await self._session(stop), stop)
        await self._release()
        return 0 if stop.is_set() else SILENT

    async def _session(self, stop: asyncio.Event) -> float:
        """One session from sign-in to its end; returns the seconds to wait before the next."""
        session: Session | None = None
        try:
            session = await self._sign_in()
            await self._serve(session, stop)
        except (SwitchboardError, OSError) as error:
            return self._after(error)
        finally:
            if session is not None:
                await _close_session(session)
        return 0.0

    def _after(self, error: SwitchboardError | OSError) -> float:
        """Handle the end of a session; returns how long to wait."""
        match error:
            case ConfigurationError():
                raise error
            case SignInRefused():
                self.health.failed(error.message)
                self._told = error.message
                log.error("sign-in refused", account=self.configured.account.name, why=error.message)
                return _SIGN_IN_AGAIN_S
            case CursorRefused():
                self._forget_cursor = True
            case Unreachable(seconds=float(seconds)):
                return self._note_failure(error.message, seconds)
            case EventNotKept():
                return self._note_failure(str(error), 0.5)
            case Busy() | Overtaken():
                return self._note_failure(error.message, _BUSY_S)
        why = error.message if isinstance(error, SwitchboardError) else error.strerror or str(error)
        return self._note_failure(f"{self.configured.manifest.platform}: {why or type(error).__name__}", 0.5)

    async def _sign_in(self) -> Session:
        if self.known is not None:
            await self._reach(self.known)
        async with asyncio.timeout(_SIGN_IN_S):
            session = await self.configured.manifest.open(self.configured.account)
        if self._endpoint not in {"", session.identity.endpoint}:
            await _close_session(session)
            raise SignInRefused(f"the secret belongs to {session.identity.endpoint}, and not to {self._endpoint}")
        try:
            await self._reach(session.identity)
        except BaseException:
            await _close_session(session)
            raise
        self._endpoint = session.identity.endpoint
        return session

    async def _reach(self, identity: Identity) -> None:
        if self._api is None:
            place = AccountPlace(self.configured.manifest.channel, identity.endpoint, self.instance_id, self.restarted)
            self._api = Api(await self.connect(identity), place)

    async def _serve(self, session: Session, stop: asyncio.Event) -> None:
        api, capabilities = self._api, session.capabilities or self.configured.manifest.capabilities
        self.health.window_s = capabilities.receive_window_s
        if isinstance(session, KeepsCounters):
            self.health.more_counters = lambda: session.counters
        brake = Brake(*capabilities.brake) if capabilities.brake else None
        lease = await self._acquire_lease(api, brake, stop) if api is not None else None
        if api is None or lease is None:
            return
        if brake is not None:
            brake.count_earlier_replies(_earlier(lease.recent, self.clock()))
        cursor = await self._start_at(session, api, lease)
        handling = self._handling(lease)
        limits = limits_of(capabilities, handling)
        files = Filer(session, api, limits, self.health, self.clock)
        intake = session, api, handling, files, self.health, dict(lease.moved)
        receiver, replayer = Receiver(*intake, self.clock), Replayer(*intake)
        replayer.note_replays(lease.replays)
        typist = Typist(session, self.clock, capabilities.typing_s)
        drafter = Drafter(session, self.clock, api, capabilities)
        shown = _AtWork(typist, drafter)
        shown.take_answer(lease.answering, self.clock())
        await first_of(
            refuse_exit(receiver.run, cursor),  # these call the SDK, each in a task of its own
            refuse_exit(replayer.run),
            refuse_exit(self._sender(session, api, capabilities, shown, brake).run),
            refuse_exit(typist.run),
            refuse_exit(drafter.run),
            self._keep_lease(api, receiver, replayer, shown),
            self._report(api),
            self._watch(),
            stop.wait(),
        )

    def _sender(
        self, session: Session, api: Api, capabilities: Capabilities, shown: _AtWork, brake: Brake | None
    ) -> ReplySender:
        on_uncertain = self.configured.handling.on_uncertain or capabilities.on_uncertain
        more = brake, shown.note_reply, self.configured.manifest.platform
        return ReplySender(session, api, capabilities, on_uncertain, self.health, self.clock, *more)

    async def _acquire_lease(self, api: Api, brake: Brake | None, stop: asyncio.Event) -> Lease | None:
        """Wait for the account's lease; None if told to stop."""
        while not stop.is_set():
            typing = self.configured.manifest.capabilities.typing_s > 0
            asked = api.lease(opening=True, answering=typing, recent_s=brake.remembers_s if brake else None)
            lease = await unless(stop.wait(), asked)  # a server that starts, or fails to, may not answer for long
            if lease is None:
                return None
            if isinstance(lease, Lease):
                if lease.heard not in (None, self.configured.handling.heard):
                    await api.lease(heard=self.configured.handling.heard)
                self.health.serving()
                return lease
            if self.health.state != "standby":
                log.info("standing by", account=self.configured.account.name, why=lease)
                self.health.standing_by(lease)
                self._beaten = float("-inf")
            if self.clock() - self._beaten >= _BEAT_S:
                await self._beat(api)
            await wait_at_most(_RENEW_S, stop)
        return None

    def _handling(self, lease: Lease) -> Handling:
        handling = self.configured.handling
        if handling.start != "7d" or handling.history_until is not None:
            return handling
        return handling.model_copy(update={"history_until": lease.since})

    async def _start_at(self, session: Session, api: Api, lease: Lease) -> str | None:
        """Where to begin. The very first start skips existing messages, and saves the cursor at once."""
        if self._forget_cursor:
            self._forget_cursor = False
            return None
        if lease.cursor is not None or self.configured.handling.start != "now":
            return lease.cursor
        cursor = await session.latest()
        if cursor is not None:
            await api.save_cursor(cursor)
        return cursor

    async def _keep_lease(self, api: Api, receiver: Receiver, replayer: Replayer, shown: _AtWork) -> None:
        """Renew the lease every 5 s, and soon after accepting a message, to show that a butler works on it.

        Also soon after the start: turns that were interrupted before begin again about now.
        """
        began = asked = self.clock()
        while True:
            await asyncio.sleep(_LOOK_S)
            soon = shown.wanted and (receiver.accepted_at >= asked or asked - began < _SETTLES_S)
            if self.clock() - asked < _RENEW_S - _LOOK_S / 2 and not soon:
                continue
            asked = self.clock()
            with suppress(Unreachable):  # no other process can take it either
                lease = await api.lease(answering=shown.wanted)
                if not isinstance(lease, Lease):
                    raise Overtaken("another process serves the account")
                replayer.note_replays(lease.replays)
                shown.take_answer(lease.answering, asked)

    async def _report(self, api: Api) -> None:
        """Report every two minutes, on each change of state or reason, and when a lag begins or ends."""
        reported = None
        while True:
            about = self.health.state, self.health.why, (self.health.lag_s(datetime.now(UTC)) or 0.0) > _BEHIND_S
            if about != reported or self.clock() - self._beaten >= _BEAT_S:
                with suppress(Unreachable):
                    await self._beat(api)
                    reported = about  # it may have changed again
            await asyncio.sleep(_LOOK_S)

    async def _beat(self, api: Api) -> None:
        """Send a heartbeat. Raises Unreachable."""
        lag = self.health.lag_s(datetime.now(UTC))
        counters = {**self.health.counters, **self.health.more_counters()}
        await api.heartbeat(self.health.state, self.health.why, counters, lag)
        self._beaten = self.clock()

    async def _watch(self) -> None:
        """Alive means receiving."""
        most = _WINDOWS * self.health.window_s
        self.health.heard = start = self.clock()
        while (silent := self.health.silent_s()) <= most:
            if self.health.heard > start:
                self._failures = self._silences = 0
            if self.health.arrived > start:
                self._tell("")
            await asyncio.sleep(min(_LOOK_S, most / 4))
        self._silences += 1
        raise _Silent(f"nothing came for {silent:.0f} s")

    def _note_failure(self, why: str, pause: float) -> float:
        self._failures += 1
        self.health.trouble("receiving", why)
        self._tell(why)
        doubled: float = pause * 2 ** min(self._failures - 1, 10)
        return min(doubled, _LONGEST_PAUSE_S) * random.uniform(0.8, 1.2)

    def _tell(self, why: str) -> None:
        """Log when the account connects, and when it disconnects or the reason for that changes."""
        before, self._told = self._told, why
        if why == before:
            return
        told = log.bind(account=self.configured.account.name, endpoint=self._endpoint)
        if why:
            told.warning("account not connected", why=why)
        else:
            told.info("account connected")

    async def _pause(self, seconds: float, stop: asyncio.Event) -> None:
        """Wait, while sending heartbeats."""
        while seconds > 0 and not stop.is_set():
            if self._api is not None:
                with suppress(Unreachable, Overtaken):
                    await self._beat(self._api)
            await wait_at_most(min(seconds, _BEAT_S), stop)
            seconds -= _BEAT_S

    async def _release(self) -> None:
        """Release the lease; if the server does not answer, the lease expires on its own."""
        self.health.mark_stopped()
        if self._api is not None:
            with suppress(Unreachable, Overtaken, TimeoutError):
                async with asyncio.timeout(_RENEW_S):
                    await self._api.release()
                    await self._beat(self._api)


def _earlier(recent: Sequence[JsonMapping], now: float) -> Iterator[Earlier]:
    """Replies of earlier processes, with times by our clock."""
    for one in recent:
        to = brake_keys(one["recipient"], one["conversation"])
        sent = None if one["sent_s"] is None else now - one["sent_s"]
        yield Earlier(one["outbox_id"], to, now - one["made_s"], sent, one["failed"])


async def _close_session(session: Session) -> None:
    with suppress(Exception):
        async with asyncio.timeout(_RENEW_S):
            await session.close()

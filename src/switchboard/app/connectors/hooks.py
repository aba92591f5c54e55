"""Webhooks posted to the server: verified, then accepted or quarantined, before the answer.

`server/http/hooks.py` calls `HookService` with what was posted. Next: `hook_accounts.py`, and
`connectors/webhook/manifest.py`.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.app.connectors.accounts import AccountId
from switchboard.app.connectors.arriving import Arriving, Seldom
from switchboard.app.connectors.hook_accounts import HookAccount, HookAccounts
from switchboard.app.connectors.posted import PostedService
from switchboard.app.connectors.quarantine import MAX_RAW, BadEvent, QuarantineService
from switchboard.app.messages.intake import Accepted, Intake, Terms
from switchboard.connectors.kernel.intake import Handling, LeftOut, prepare_envelope
from switchboard.core.posted import Network, client_of, decompress_body, is_packed, read_record, record_of_request
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Forbidden, InvalidInput, NotFound, Overloaded, TooLarge, Unauthenticated
from switchboard.ports.connector import Inbound, Posted, Unreadable

log = structlog.get_logger(__name__)

ANSWER_S: Final = 2.0
"""Seconds in which a webhook is answered once its body is here."""
MAX_CHALLENGE: Final = 1024
"""Bytes of the answer to a GET."""
_BODY_S: Final = 30.0
_MOST_AT_ONCE: Final = 64
_AGAIN_S: Final = 5.0
_UNPACKING: Final = 2
"""Packed bodies that are unpacked at a time: 24 KB of a stranger may become 25 MB."""
_READ_AT_ONCE: Final = 65_536
"""Bytes of a body whose reading nobody notices; 25 MB may take seconds."""
_MOST_REFUSALS_TOLD: Final = 60
"""Lines of the log within `_TELL_S`; a line says how many there were without one before it."""
_TELL_S: Final = 60.0


class NotVerified(Unauthenticated):
    """It is not signed by a permitted sender, or was signed too long ago."""


class HookBusy(Overloaded):
    """In the form that senders of webhooks know: they try again after a 5xx."""

    status = 503


class HookResult(Struct, frozen=True):
    """The outcome of a webhook.

    `quarantined` ones could not be made into a message; operators can replay them. `kept` ones wait for the connector
    of their account.
    """

    status: Literal["accepted", "duplicate", "quarantined", "ignored", "kept"]
    request_id: UUID | None = None
    quarantine_id: UUID | None = None


class HookReply(Struct, frozen=True):
    """The JSON that the package of the account answers with; nothing was stored."""

    body: bytes


class HookService:
    """Receives webhooks for accounts; a message may have `message_bytes`.

    `trusted`: the proxies whose information about the client is trusted.
    """

    def __init__(
        self,
        accounts: HookAccounts,
        intake: Intake,
        quarantine: QuarantineService,
        posted: PostedService,
        message_bytes: int,
        trusted: Sequence[Network] = (),
    ) -> None:
        self._accounts = accounts
        self._intake = intake
        self._quarantine = quarantine
        self._posted = posted
        self._message_bytes = message_bytes
        self._trusted = trusted
        self._arriving = Arriving(_MOST_AT_ONCE, _BODY_S)
        self._refusals = Seldom(_MOST_REFUSALS_TOLD, _TELL_S)
        self._unpacking = asyncio.Semaphore(_UNPACKING)
        self._late: set[asyncio.Task[HookResult]] = set()

    async def receive(
        self, name: str, headers: Mapping[str, str], body: Callable[[], Awaitable[bytes]], peer: str
    ) -> HookResult | HookReply:
        """Answer within `ANSWER_S` of the last byte; if it is stored later, a repetition is a duplicate.

        Raises NotFound, NotVerified, InvalidInput, TooLarge, HookBusy, Unavailable.
        """
        account = self._accounts.find(name)
        try:
            async with self._arriving.place():
                posted = Posted(await body(), headers)
        except TimeoutError:
            raise HookBusy("the body did not arrive in time", retry_after=_AGAIN_S) from None
        end = asyncio.get_running_loop().time() + ANSWER_S
        plain = await self._verify_body(account, posted, peer, end)
        reply = account.hook.reply
        if reply is not None and (wanted := reply(account.configured.account, plain)) is not None:
            return HookReply(wanted)
        if account.hook.read is None:
            return await self._in_time(self._keep(account, plain), end)
        return await self._in_time(self._settle(account, plain, account.configured.handling), end)

    async def answer_challenge(
        self, name: str, parameters: Mapping[str, str], headers: Mapping[str, str], peer: str
    ) -> str:
        """The answer to a platform that asks whether the URL is ours. Raises NotFound, Unavailable, Forbidden."""
        account = self._accounts.find(name)
        if account.hook.challenge is None:
            raise NotFound(f"the account {name} answers no GET; webhooks are posted")
        said = account.hook.challenge(account.configured.account, parameters, datetime.now(UTC))
        if said is None or len(said.encode()) > MAX_CHALLENGE:
            self._log_refusal(account, headers, peer, "a GET that is not from the platform")
            raise Forbidden("this request cannot be verified")
        return said

    async def replay(self, caller: Principal, quarantine_id: UUID) -> None:
        """Submit a quarantined webhook again, and discard it; if it fails again, it stays with the new reason.

        Events that a connector submits again are left to it. Raises NotFound, HookBusy, Unavailable.
        """
        event = await self._quarantine.get(caller, quarantine_id)
        found = read_record(b64decode(event.raw))
        if found is None:
            return
        account, posted = self._accounts.find(found[0]), found[1]
        if (account.caller.channel, account.caller.endpoint) != (event.channel, event.endpoint):
            return
        if account.hook.read is None:
            return
        handling = account.configured.handling.model_copy(update={"on_stale": "answer"})
        try:
            settled = await self._settle(account, posted, handling)
        except InvalidInput:  # it was quarantined by an earlier release, and stays for an operator
            return
        if settled.status != "quarantined":
            await self._quarantine.discard(caller, quarantine_id)

    async def _verify_body(self, account: HookAccount, posted: Posted, peer: str, end: float) -> Posted:
        """The posted body, decompressed without making others wait, since anybody may post."""
        plain, why = (
            await self._verify_in_thread(account, posted, end)
            if is_packed(posted)
            else _unpack_and_verify(account, posted)
        )
        if why is not None:
            self._log_refusal(account, posted.headers, peer, why)
            raise NotVerified(f"this webhook cannot be verified: {why}")
        return plain

    def _log_refusal(self, account: HookAccount, headers: Mapping[str, str], peer: str, why: str) -> None:
        client = client_of(peer, headers.get("x-forwarded-for", ""), self._trusted)
        if (untold := self._refusals.turn(asyncio.get_running_loop().time())) is not None:
            log.warning("a webhook was refused", account=account.name, client=client, why=why, untold=untold)

    async def _verify_in_thread(self, account: HookAccount, posted: Posted, end: float) -> tuple[Posted, str | None]:
        """As `_unpack_and_verify`, a few at a time. Raises HookBusy."""
        try:
            async with asyncio.timeout_at(end):
                await self._unpacking.acquire()
        except TimeoutError:
            raise HookBusy("too many packed webhooks wait", retry_after=_AGAIN_S) from None
        try:
            return await asyncio.to_thread(_unpack_and_verify, account, posted)
        finally:
            self._unpacking.release()

    async def _keep(self, account: HookAccount, posted: Posted) -> HookResult:
        channel, endpoint = account.configured.manifest.channel, account.hook.endpoint
        try:
            await self._posted.put(AccountId(channel, endpoint), posted.body)
        except Overloaded as error:
            raise HookBusy(error.message, retry_after=error.retry_after) from error
        return HookResult("kept")

    async def _settle(self, account: HookAccount, posted: Posted, handling: Handling) -> HookResult:
        read = await _read(account, posted)
        if isinstance(read, Unreadable):
            if read.refusal is not None:
                log.warning("a webhook cannot be read", account=account.name, why=read.reason)
                raise read.refusal
            return await self._set_aside(account, posted, read.event_id, read.reason)
        envelope = prepare_envelope(read, handling, datetime.now(UTC))
        if isinstance(envelope, LeftOut):
            return HookResult("ignored")
        try:
            id_for = None if read.id_for_s is None else timedelta(seconds=read.id_for_s)
            accepted = await self._submit_message(account.caller, envelope, Terms("event", id_for))
        except (InvalidInput, TooLarge) as error:
            return await self._set_aside(account, posted, envelope.event.external_event_id, error.message)
        except Overloaded as error:
            raise HookBusy(error.message, retry_after=error.retry_after) from error
        return HookResult("duplicate" if accepted.duplicate else "accepted", accepted.request_id)

    async def _submit_message(self, caller: Principal, envelope: Envelope, terms: Terms) -> Accepted:
        """The submitted message, without original JSON that is too large or too deep for it."""
        whole = msgspec.json.encode(envelope)
        if len(whole) <= self._message_bytes:
            try:
                return await self._intake.message(caller, whole, terms=terms)
            except InvalidInput as error:
                if error.code != "too_deep":
                    raise
        return await self._intake.message(caller, msgspec.json.encode(_without_raw(envelope)), terms=terms)

    async def _set_aside(self, account: HookAccount, posted: Posted, event_id: str, reason: str) -> HookResult:
        channel, raw = account.configured.manifest.channel, record_of_request(account.name, posted)
        event = BadEvent(channel, account.hook.endpoint, event_id, reason[:4000], raw)
        put = await self._quarantine.put(account.caller, event)
        log.warning("a webhook is in quarantine", account=account.name, event_id=event_id, why=reason)
        return HookResult("quarantined", quarantine_id=put.quarantine_id)

    async def _in_time(self, settling: Awaitable[HookResult], end: float) -> HookResult:
        task = asyncio.ensure_future(settling)
        done, _ = await asyncio.wait([task], timeout=max(end - asyncio.get_running_loop().time(), 0.0))
        if done:
            return task.result()
        self._late.add(task)
        task.add_done_callback(self._ended_late)
        raise HookBusy(f"it was not stored within {ANSWER_S:.0f} s", retry_after=_AGAIN_S)

    def _ended_late(self, task: asyncio.Task[HookResult]) -> None:
        self._late.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a webhook failed after it was answered with 503", why=str(error))


async def _read(account: HookAccount, posted: Posted) -> Inbound | Unreadable:
    """The message that the account makes of it. A large one does not delay others."""
    read = account.hook.read
    assert read is not None  # noqa: S101 - otherwise a connector reads it
    now = datetime.now(UTC)
    if len(posted.body) <= _READ_AT_ONCE:
        return read(account.configured.account, posted, now)
    return await asyncio.to_thread(read, account.configured.account, posted, now)


def _unpack_and_verify(account: HookAccount, posted: Posted) -> tuple[Posted, str | None]:
    """The decompressed body, and why it is not verified: signatures are made before or after compression."""
    plain, now = decompress_body(posted, MAX_RAW), datetime.now(UTC)
    why = account.hook.verify(account.configured.account, posted, now)
    if why is not None and plain is not posted:
        why = account.hook.verify(account.configured.account, plain, now)
    return plain, why


def _without_raw(envelope: Envelope) -> Envelope:
    control = envelope.control
    if control.ingestion_tier == "full":
        control = replace(control, ingestion_tier="metadata")
    return replace(envelope, payload=replace(envelope.payload, raw=None), control=control)

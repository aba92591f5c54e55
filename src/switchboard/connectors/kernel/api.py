"""The server's HTTP interface, as far as connectors need it.

`receiving.py`, `sending.py` and `runner.py` call it. In: values; out: the server's answers. Next: `answers.py`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Final, Literal

import httpx2
import msgspec
from msgspec import Struct

from switchboard import __version__
from switchboard.connectors.kernel.answers import (
    Declined,
    FilesWanted,
    IntakeAnswer,
    Lease,
    NotNow,
    Overtaken,
    QuarantinedEvent,
    ReplyToSend,
    Unreachable,
    UploadedFile,
    WrittenText,
    lease_of,
    refusal_of,
    reply_of,
    verdict_of,
)
from switchboard.connectors.kernel.wire import submitted_form
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import LateFailure

MAX_RAW: Final = 25_000_000
"""Bytes of an event that quarantine keeps."""
_BATCH: Final = 200
_BATCH_BYTES: Final = 8_000_000
_LONG_POLL_S: Final = 20.0
_FAULT: Final = 500
"""The status of a server that has a fault, and may have none with other requests."""
_GONE: Final = 404
_NO_ROOM: Final = "blob_quota"
_UPLOAD_S: Final = 60.0
_KEEP_S: Final = 10.0
"""By then the platform has given up waiting for its answer, and pushes the event again."""
_LONGEST_ID: Final = 512
_encoder: Final = msgspec.json.Encoder()

ReportedState = Literal["starting", "healthy", "degraded", "failed", "standby", "stopped"]
ReportedPartState = Literal["intent", "sent", "refused", "later"]


class AccountPlace(Struct, frozen=True):
    """An account and the server that serves it."""

    channel: str
    endpoint: str
    instance_id: str
    restarted: bool = False
    """The last process with this `instance_id` is certainly dead."""

    def body(self) -> JsonObject:
        """The fields by which requests name the account."""
        return {"channel": self.channel, "endpoint": self.endpoint}


class Api:
    """Sends requests for one account. `http` has the server's address and the account's token."""

    def __init__(self, http: httpx2.AsyncClient, place: AccountPlace) -> None:
        self._http = http
        self.place = place
        self.lease_number: int | None = None
        self._accepts: Collection[str] = ()
        self._began = False
        self._missed = False
        """An answer with replies may have been lost."""

    async def lease(
        self,
        *,
        opening: bool = False,
        answering: bool = False,
        recent_s: float | None = None,
        heard: int | None = None,
    ) -> Lease | str:
        """Take or renew the account's lease; a string names its present holder.

        `opening`: replies that we do not know of are free again. `heard`: how many messages of a group butlers hear
        from now on; only for servers whose lease tells it. Raises Unreachable.
        """
        wanted = {"answering": answering, "recent_s": recent_s}
        body = {**self.place.body(), "instance_id": self.place.instance_id, **wanted}
        if heard is not None:
            body |= {"heard": heard}
        if opening:
            body |= {"restarted": self.place.restarted and not self._began, "reconnected": self._began}
        try:
            got = await self._ask("POST", "/v1/connectors/lease", body)
        except Overtaken as error:
            self.lease_number = None
            return error.message
        lease = lease_of(got)
        self.lease_number, self._began, self._missed = lease.number, True, self._missed and not opening
        self._accepts = lease.accepts
        return lease

    async def release(self) -> None:
        """Release the lease so that another process can take the account at once. Raises Unreachable, Overtaken."""
        if self.lease_number is not None:
            number, self.lease_number = self.lease_number, None
            account = {**self.place.body(), "lease": str(number)}
            await self._ask("DELETE", "/v1/connectors/lease", b"", params=account)

    async def save_cursor(self, cursor: str) -> None:
        """Save where to continue. Raises Unreachable, Overtaken."""
        await self._ask("PUT", "/v1/connectors/cursor", {**self._body_with_lease(), "cursor": cursor})

    async def posted(self, after: int, wait_s: float) -> list[tuple[int, bytes]]:
        """Events that the platform posted for the account after this number. Raises Unreachable."""
        wanted = {**self.place.body(), "after": after, "wait_s": wait_s}
        got = await self._ask("POST", "/v1/connectors/posted/next", wanted, timeout=wait_s + 30)
        return [(int(event["posted_id"]), base64.b64decode(event["raw"])) for event in got["events"]]

    async def keep_posted(self, raw: bytes, mark: str) -> None:
        """Have an event kept that the platform pushed to us. Raises Unreachable."""
        kept = {**self.place.body(), "mark": mark, "raw": base64.b64encode(raw).decode("ascii")}
        await self._ask("POST", "/v1/connectors/posted", kept, timeout=_KEEP_S)

    async def settle_posted(self, upto: int) -> None:
        """Mark posted events up to this number as no longer needed. Raises Unreachable, Overtaken."""
        settled = {name: str(value) for name, value in self._body_with_lease().items()} | {"upto": str(upto)}
        await self._ask("DELETE", "/v1/connectors/posted", b"", params=settled)

    async def move(self, old: str, new: str) -> None:
        """Record that a conversation continues in another thread. Raises Unreachable, Overtaken."""
        await self._ask("POST", "/v1/connectors/moves", {**self._body_with_lease(), "old": old, "new": new})

    async def ingest(self, envelopes: Sequence[Envelope]) -> list[IntakeAnswer]:
        """Submit as many messages as fit into one request; returns the result of each. Raises Unreachable."""
        taken, size = list[bytes](), 0
        for envelope in envelopes[:_BATCH]:
            encoded = submitted_form(envelope, self._accepts)
            size += len(encoded)
            if taken and size > _BATCH_BYTES:
                break
            taken.append(encoded)
        return await self._submit(taken)

    async def _submit(self, taken: Sequence[bytes]) -> list[IntakeAnswer]:
        """Submit one by one if the server refuses the batch, or fails on it."""
        try:
            got = await self._ask("POST", "/v1/ingest/batch", b'{"envelopes":[' + b",".join(taken) + b"]}")
        except (Overtaken, ConfigurationError):
            raise
        except SwitchboardError as error:
            if isinstance(error, Unreachable) and error.status != _FAULT:
                raise
            if len(taken) == 1:
                is_fault = isinstance(error, Unreachable)
                return [NotNow(error.message, counts=True) if is_fault else Declined(error.code, error.message)]
            return [verdict for one in taken for verdict in await self._submit([one])]
        return [verdict_of(result) for result in got["results"]]

    async def ask_files_wanted(self, envelope: Envelope) -> FilesWanted | None:
        """Whether to fetch the files of a message; None if the message itself will be refused.

        Raises Unreachable.
        """
        try:
            got = await self._ask("POST", "/v1/ingest/files", submitted_form(envelope, self._accepts))
        except ConfigurationError:
            raise
        except SwitchboardError as error:
            if isinstance(error, Unreachable) and error.status != _FAULT:
                raise
            return None
        return FilesWanted(int(got["most_bytes"]), got["reason"])

    async def upload(self, pieces: AsyncIterable[bytes], media_type: str) -> UploadedFile | Declined:
        """Store a file piece by piece. Raises Unreachable, and what `pieces` raises."""
        headers = {"content-type": media_type}
        try:
            response = await self._http.request("POST", "/v1/blobs", content=pieces, headers=headers, timeout=_UPLOAD_S)
        except httpx2.TransportError as error:
            raise _no_answer(error) from error
        if not response.is_success:
            refusal = _refusal(response)
            if isinstance(refusal, ConfigurationError) or (
                isinstance(refusal, Unreachable) and refusal.code != _NO_ROOM
            ):
                raise refusal
            return Declined(refusal.code, refusal.message)
        got = _json(response)
        return UploadedFile(str(got["blob"]), int(got["size_bytes"]), str(got["media_type"]))

    async def quarantine(self, event_id: str, reason: str, raw: bytes) -> None:
        """Keep an unusable event, to be shown and replayed. Raises Unreachable."""
        encoded = base64.b64encode(raw[:MAX_RAW]).decode("ascii")
        why = sayable(reason)[:4000]
        body = {**self.place.body(), "event_id": _quarantine_id(event_id), "reason": why, "raw": encoded}
        await self._ask("POST", "/v1/quarantine", body)

    async def replays(self) -> list[str]:
        """The ids of quarantined events to submit again, oldest first. Raises Unreachable."""
        wanted = {**self.place.body(), "replay": "true", "limit": "500"}
        got = await self._ask("GET", "/v1/quarantine", b"", params=wanted)
        return [str(event["quarantine_id"]) for event in reversed(got["events"])]

    async def fetch_quarantined_event(self, quarantine_id: str) -> QuarantinedEvent | None:
        """One event; None if it no longer exists. Raises Unreachable."""
        got = await self._unless_gone("GET", f"/v1/quarantine/{quarantine_id}")
        return QuarantinedEvent(quarantine_id, got["event_id"], base64.b64decode(got["raw"])) if got else None

    async def discard(self, quarantine_id: str) -> None:
        """Remove an event from quarantine. Raises Unreachable."""
        await self._unless_gone("DELETE", f"/v1/quarantine/{quarantine_id}")

    async def _unless_gone(self, method: str, path: str, body: JsonMapping | bytes = b"") -> Any:
        try:
            return await self._ask(method, path, body, timeout=60.0)
        except SwitchboardError as error:
            if error.status == _GONE:
                return None
            raise

    async def replies(self, *, lease_s: float) -> list[ReplyToSend]:
        """The next reply of each conversation, also if an answer was lost. Raises Unreachable, Overtaken."""
        if self._missed and not isinstance(await self.lease(opening=True), Lease):
            raise Overtaken("another process serves the account")
        self._missed = True
        wanted = {"limit": 100, "wait_s": _LONG_POLL_S, "lease_s": lease_s, "parts": True}
        body = {**self._body_with_lease("account_lease"), **wanted}
        got = await self._ask("POST", "/v1/outbox/next", body, timeout=_LONG_POLL_S + 30)
        self._missed = False
        return [reply_of(some) for some in got["replies"]]

    async def written_texts(self) -> list[WrittenText] | None:
        """What butlers have written so far in direct chats; None: the server does not tell. Raises Unreachable."""
        got = await self._unless_gone("POST", "/v1/connectors/written", self.place.body())
        return None if got is None else msgspec.convert(got["texts"], list[WrittenText])

    async def read_file(self, reply: ReplyToSend, n: int) -> AsyncIterator[bytes]:
        """The bytes of a reply's file, exactly as many as announced. Raises OSError (retry) or ValueError (never)."""
        path, left = f"/v1/outbox/{reply.outbox_id}/files/{n}", reply.files[n].size_bytes
        try:
            async with self._http.stream("GET", path, timeout=30.0) as response:
                if response.status_code == _GONE:
                    raise ValueError("the file is not there any more")
                if not response.is_success:
                    raise OSError(f"the switchboard answered {response.status_code}")
                async for piece in response.aiter_bytes():
                    left -= len(piece)
                    if left < 0:
                        break
                    yield piece
        except httpx2.HTTPError as error:
            raise OSError(f"the switchboard does not answer: {type(error).__name__} {error}".strip()) from error
        if left:
            raise ValueError("the file is another one by now")

    async def part(self, reply: ReplyToSend, index: int, of: int, state: ReportedPartState, **more: str | None) -> str:
        """Record the state of a part and extend the lease of the reply; returns the recorded state.

        Raises Unreachable, Overtaken.
        """
        known = {name: value for name, value in more.items() if value is not None}
        body = {"lease": reply.lease, "part": index, "of": of, "state": state, **known}
        got = await self._ask(
            "POST", f"/v1/outbox/{reply.outbox_id}/parts", {**body, "account_lease": self.lease_number}
        )
        return str(got["state"])

    async def receipt(self, reply: ReplyToSend, outcome: str, **more: str | float | None) -> None:
        """Report the final result of a reply. Raises Unreachable, Overtaken."""
        known = {name: value for name, value in more.items() if value is not None}
        await self._ask(
            "POST", f"/v1/outbox/{reply.outbox_id}/receipt", {"lease": reply.lease, "outcome": outcome, **known}
        )

    async def report_late_failure(self, late: LateFailure) -> None:
        """Report that a message was not delivered after all; servers of earlier releases do not know it.

        Raises Unreachable.
        """
        message, why = sayable(late.platform_message_id), sayable(late.reason)[:1000]
        about = {"platform_message_id": message, "outcome": "failed", "reason": why, "at": late.at.isoformat()}
        body = {**self.place.body(), **about, **({} if late.because is None else {"because": late.because})}
        await self._unless_gone("POST", "/v1/outbox/late", body)

    async def heartbeat(
        self, state: ReportedState, why: str, counters: Mapping[str, int], lag_s: float | None = None
    ) -> None:
        """Report how this process serves the account, and how far it lags behind. Raises Unreachable."""
        body = {
            **self.place.body(),
            "instance_id": self.place.instance_id,
            "version": __version__,
            "state": state,
            "error_message": why[:4000] or None,
            "counters": dict(counters),
            "lag_s": lag_s,
        }
        await self._ask("POST", "/v1/connectors/heartbeat", body)

    def _body_with_lease(self, name: str = "lease") -> JsonObject:
        if self.lease_number is None:
            raise Overtaken("the lease of the account is not held")
        return {**self.place.body(), name: self.lease_number}

    async def _ask(
        self,
        method: str,
        path: str,
        body: JsonMapping | bytes,
        *,
        timeout: float = 30.0,
        params: Mapping[str, str] | None = None,
    ) -> Any:
        content = body if isinstance(body, bytes) else _encoder.encode(body)
        headers = {"content-type": "application/json"} if content else None
        try:
            response = await self._http.request(
                method, path, content=content or None, headers=headers, params=params, timeout=timeout
            )
        except httpx2.TransportError as error:
            raise _no_answer(error) from error
        if not response.is_success:
            raise _refusal(response)
        return _json(response)


def _no_answer(error: httpx2.TransportError) -> Unreachable:
    return Unreachable(f"the switchboard does not answer: {type(error).__name__} {error}".strip())


def _refusal(response: httpx2.Response) -> SwitchboardError:
    return refusal_of(response.status_code, response.content, response.headers.get("retry-after"))


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json() if response.content else {}
    except ValueError as error:
        raise Unreachable("what answers is not a switchboard: it did not send JSON") from error


def sayable(text: str) -> str:
    """The text without characters that requests cannot contain: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _quarantine_id(event_id: str) -> str:
    """The platform's id of an event, or its hash if the server would not accept the id."""
    if event_id and len(event_id) <= _LONGEST_ID and sayable(event_id) == event_id:
        return event_id
    return f"sha256:{hashlib.sha256(event_id.encode('utf-8', 'surrogatepass')).hexdigest()}"

"""Input of every interface: parsed, checked against the token, handed to the accept leg, answered.

HTTP and MCP call `Intake` with the exact bytes and the caller's `Principal`; errors are SwitchboardErrors, and in a
batch values. Next: `journey/accept.py`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from switchboard.app.access import CONNECTOR, Access, Action, Principal, foreign_endpoint, owns_endpoint
from switchboard.app.messages.blobs import BlobService
from switchboard.app.metrics import Metrics
from switchboard.core.envelope import read as wire
from switchboard.core.envelope.strict import strict
from switchboard.core.files.blobs import NOT_LET_IN, PREFIX
from switchboard.domain.envelope import Attachment, Control, Envelope
from switchboard.domain.errors import BlobQuota, InvalidInput, Overloaded, SwitchboardError, TooLarge, Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.message import OtherContent
from switchboard.domain.routing import Decision
from switchboard.journey.accept import AcceptLeg, NoFiles, Submission
from switchboard.store.messages.inbox import Acceptance
from switchboard.transport.mail_reading import MailReader, mail_name

INGEST: Final = Action("ingest", CONNECTOR)

MAIL = "message/rfc822"
_AT_A_STRETCH: Final = 0.05
"""Seconds of parsing after which everyone else has a turn: a worker that does not beat for long loses its lanes."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The message is stored. The triage fields are present unless it is a duplicate.

    `pending`: not decided yet; `held`: its sender has not been approved.
    """

    request_id: UUID
    duplicate: bool
    status: Literal["accepted"] = "accepted"
    triage_decision: Literal["routed", "dead_letter", "pending", "held", "history"] | msgspec.UnsetType = msgspec.UNSET
    triage_target: str | msgspec.UnsetType = msgspec.UNSET
    """The butlers that get it, or the team whose dead letter it is; several are joined by commas."""


class Terms(msgspec.Struct, frozen=True):
    """When a submitted event is the same as another one; see `Submission`."""

    other: OtherContent
    id_for: timedelta | None = None


class ErrorDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stable code, a sentence that says what would be right, and the dotted path of the field if one is at fault.

    `details` is present where one field is not enough, as for all problems of a rule.
    """

    code: str
    message: str
    field: str | None = None
    details: JsonMapping | None = None


class IntakeRefused(msgspec.Struct, frozen=True):
    """The answer of every interface to a refused message."""

    error: ErrorDetail


def refusal_from_error(error: SwitchboardError) -> IntakeRefused:
    """An error in its wire format."""
    return IntakeRefused(ErrorDetail(error.code, error.message, error.field, error.details))


class Intake:
    """Accepts messages for a caller."""

    def __init__(
        self, accept: AcceptLeg, mails: MailReader, access: Access, blobs: BlobService, metrics: Metrics
    ) -> None:
        self._accept = accept
        self._mails = mails
        self._access = access
        self._blobs = blobs
        self._metrics = metrics

    async def message(
        self, caller: Principal, raw: bytes, key: str | None = None, terms: Terms | None = None
    ) -> Accepted:
        """One `ingest.v1` envelope as received; `key` fills `control.idempotency_key`.

        `terms`: when it is the same event as another one; by default as suits the role of the caller.

        Raises the errors of `accept`.
        """
        started = time.perf_counter()
        try:
            envelope = _with_key(wire.read_envelope(raw), key)
            wire.check_envelope(envelope, datetime.now(UTC))
            submission = _submission(caller, envelope, raw, terms)
            return await self._take(caller, submission, started)
        except SwitchboardError as error:
            self._metrics.refused.labels(error.code).inc()
            raise

    async def needs_no_files(self, caller: Principal, raw: bytes) -> NoFiles | None:
        """Why the files of an envelope need not be fetched. Raises InvalidInput, Forbidden, Unavailable."""
        envelope = wire.parse_envelope(raw, now=datetime.now(UTC))
        source = envelope.source
        await self._access.check_endpoint(caller, INGEST, source.channel, source.endpoint_identity)
        return await self._accept.needs_no_files(Submission(envelope, raw))

    async def mail(
        self, caller: Principal, raw: bytes, *, endpoint: str, provider: str, key: str | None = None
    ) -> Accepted:
        """One mail, byte for byte, received by `endpoint`. Raises InvalidInput and the errors of `accept`."""
        started = time.perf_counter()
        try:
            # A caller who may not submit it must not cause costs either.
            await self._access.check_endpoint(caller, INGEST, "email", endpoint.strip())
            mail = await self._mails.read(raw, endpoint=endpoint, provider=provider, now=datetime.now(UTC))
            by_operator = caller.role == "operator"
            envelope = await self._with_files(caller, _with_key(mail.envelope, key), raw)
            submission = Submission(envelope, mail.raw, MAIL, by_operator=by_operator)
            return await self._take(caller, submission, started)
        except SwitchboardError as error:
            self._metrics.refused.labels(error.code).inc()
            raise

    async def _with_files(self, caller: Principal, envelope: Envelope, raw: bytes) -> Envelope:
        """The envelope of a mail with its attachments stored, if there is room and the sender is not a stranger."""
        attachments = envelope.payload.attachments
        needless = await self._accept.needs_no_files(Submission(envelope, raw, MAIL)) if attachments else "history"
        if needless == "history":
            return envelope
        if needless == "stranger":
            kept = [replace(one, unavailable=NOT_LET_IN) for one in attachments]
        else:
            name = mail_name(raw)
            kept = [
                await self._with_file(caller, one, await self._mails.file(raw, n, name))
                for n, one in enumerate(attachments)
            ]
        return replace(envelope, payload=replace(envelope.payload, attachments=tuple(kept)))

    async def _with_file(self, caller: Principal, attachment: Attachment, data: bytes | None) -> Attachment:
        if data is None:
            return replace(attachment, unavailable="it could not be read out of the mail")
        try:
            stored = await self._blobs.upload(caller, _once(data), attachment.media_type)
        except (TooLarge, BlobQuota) as error:
            return replace(attachment, unavailable=error.message)
        ref = f"{PREFIX}{stored.blob}"
        return replace(attachment, media_type=stored.media_type, size_bytes=stored.size_bytes, storage_ref=ref)

    async def batch(self, caller: Principal, items: Sequence[bytes]) -> list[Accepted | IntakeRefused]:
        """Many envelopes: for each, in order, its answer or its error; valid ones are kept.

        Raises Overloaded or Unavailable when nothing at all was taken for that reason.
        """
        started, now = time.perf_counter(), datetime.now(UTC)
        parsed = await _parse_all(caller, items, now)
        foreign = sum(isinstance(p, SwitchboardError) and p.code == "forbidden" for p in parsed)
        if foreign:
            await self._access.record_refusal(caller, INGEST, {"foreign_envelopes": foreign})
        good = [p for p in parsed if isinstance(p, Submission)]
        taken = iter(await self._accept.accept_all(good))
        outcomes = [next(taken) if isinstance(p, Submission) else p for p in parsed]
        if turned_away := _turned_away(outcomes):
            self._metrics.refused.labels(turned_away.code).inc()
            raise turned_away
        self._count(parsed, outcomes)
        self._metrics.seconds.observe(time.perf_counter() - started)
        return [_answer_for_acceptance(o) if isinstance(o, Acceptance) else refusal_from_error(o) for o in outcomes]

    async def _take(self, caller: Principal, submission: Submission, started: float) -> Accepted:
        source = submission.envelope.source
        await self._access.check_endpoint(caller, INGEST, source.channel, source.endpoint_identity)
        acceptance = await self._accept.accept(submission)
        self._metrics.seconds.observe(time.perf_counter() - started)
        if acceptance.duplicate:
            self._metrics.duplicates.inc()
        else:
            self._metrics.accepted_from(source.channel).inc()
        if acceptance.same_id:
            self._metrics.same_ids.inc()
        return _answer_for_acceptance(acceptance)

    def _count(
        self, given: Sequence[Submission | SwitchboardError], outcomes: Sequence[Acceptance | SwitchboardError]
    ) -> None:
        """Increment each meter once: one at a time, they took longer than the answers themselves."""
        accepted: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        duplicates = 0
        for one, outcome in zip(given, outcomes, strict=True):
            if isinstance(outcome, SwitchboardError):
                errors[outcome.code] += 1
            elif outcome.duplicate:
                duplicates += 1
            elif isinstance(one, Submission):
                accepted[one.envelope.source.channel] += 1
        if same_ids := sum(isinstance(outcome, Acceptance) and outcome.same_id for outcome in outcomes):
            self._metrics.same_ids.inc(same_ids)
        for channel, count in accepted.items():
            self._metrics.accepted_from(channel).inc(count)
        for code, count in errors.items():
            self._metrics.refused.labels(code).inc(count)
        if duplicates:
            self._metrics.duplicates.inc(duplicates)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _turned_away(outcomes: Sequence[Acceptance | SwitchboardError]) -> SwitchboardError | None:
    """Nothing of a batch was accepted, since we are overloaded or have no database: that must not look like success."""
    if outcomes and all(isinstance(error, (Overloaded, Unavailable)) for error in outcomes):
        return cast(SwitchboardError, outcomes[0])
    return None


def encode_batch(envelopes: Sequence[object]) -> list[bytes]:
    """Envelopes received over MCP as bytes, 1 to 200; see `encode_envelope`. Raises InvalidInput."""
    wire.check_batch(envelopes)
    return [encode_envelope(envelope) for envelope in envelopes]


def encode_envelope(envelope: object) -> bytes:
    """An envelope received as bytes unchanged; a decoded one as compact JSON.

    Values that JSON does not permit stay unchanged, for the validator to refuse: NaN, Infinity, a lone surrogate as an
    escape.
    """
    if isinstance(envelope, bytes):
        return envelope
    try:
        return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(envelope).encode()
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply", code="too_deep") from None


async def _parse_all(caller: Principal, items: Sequence[bytes], now: datetime) -> list[Submission | SwitchboardError]:
    parsed: list[Submission | SwitchboardError] = []
    since = time.perf_counter()
    for raw in items:
        parsed.append(_parse(caller, raw, now))
        if time.perf_counter() - since > _AT_A_STRETCH:
            await asyncio.sleep(0)
            since = time.perf_counter()
    return parsed


def _parse(caller: Principal, raw: bytes, now: datetime) -> Submission | SwitchboardError:
    try:
        envelope = wire.parse_envelope(raw, now=now)
    except SwitchboardError as error:
        return error
    if not owns_endpoint(caller, envelope.source.channel, envelope.source.endpoint_identity):
        return foreign_endpoint(caller)
    return _submission(caller, envelope, raw, None)


def _submission(caller: Principal, envelope: Envelope, raw: bytes, terms: Terms | None) -> Submission:
    """Connectors deliver again what their platform has changed since; another program that reuses an id errs."""
    by_operator = caller.role == "operator"
    if terms is None:
        return Submission(envelope, raw, by_operator=by_operator, other="refused" if by_operator else "duplicate")
    return Submission(envelope, raw, by_operator=by_operator, other=terms.other, id_for=terms.id_for)


def _with_key(envelope: Envelope, key: str | None) -> Envelope:
    """The HTTP header and the envelope's field mean the same; two different keys are an error."""
    if key is None:
        return envelope
    filled = _checked_key(key)
    own = envelope.control.idempotency_key
    if own is not None and own != filled:
        raise InvalidInput(
            "the header Idempotency-Key and control.idempotency_key differ; send only one of them, or "
            "the same value in both",
            code="conflicting_idempotency_keys",
            field="control.idempotency_key",
        )
    return replace(envelope, control=replace(envelope.control, idempotency_key=filled))


def _checked_key(key: str) -> str:
    try:
        filled = strict(Control, {"idempotency_key": key}).idempotency_key
    except ValueError:
        filled = None
    if filled is None:
        raise InvalidInput(
            "the header Idempotency-Key must have 1 to 512 characters", code="invalid_value", field="Idempotency-Key"
        )
    return filled


def _answer_for_acceptance(acceptance: Acceptance) -> Accepted:
    if acceptance.held:
        return Accepted(acceptance.request_id, duplicate=False, triage_decision="held")
    if acceptance.waits:
        return Accepted(acceptance.request_id, duplicate=False, triage_decision="pending")
    if acceptance.decision is None:
        return Accepted(acceptance.request_id, acceptance.duplicate)
    return _answer_for_decision(acceptance.request_id, acceptance.decision)


def _answer_for_decision(request_id: UUID, decision: Decision) -> Accepted:
    if decision.chosen:
        return Accepted(
            request_id,
            duplicate=False,
            triage_decision="routed",
            triage_target=",".join(chosen.system_id for chosen in decision.chosen),
        )
    if not decision.unrouted:
        return Accepted(request_id, duplicate=False, triage_decision="history", triage_target="")
    teams = ",".join(branch.team_id for branch in decision.unrouted)
    return Accepted(request_id, duplicate=False, triage_decision="dead_letter", triage_target=teams)

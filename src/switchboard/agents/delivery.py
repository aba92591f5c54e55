"""The format for programs and webhooks: `delivery.v1` out, one of three answers back.

`command.py` and `http.py` call it with a turn; it reads the answer into a `TurnResult`. No process and no network here.
Next: `journey/turn.py`, which settles the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeVar, get_args
from uuid import UUID

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, Field, PositiveFloat, ValidationError, field_validator
from pydantic_core import ErrorDetails

from switchboard.core.files.blobs import PREFIX, UNKNOWN
from switchboard.core.files.reply_files import reply_name
from switchboard.core.passages.own import passages_of
from switchboard.core.text.problems import after, path_of, wrong
from switchboard.core.text.storable import storable_text
from switchboard.core.text.words import near, or_list
from switchboard.domain.envelope import Attachment, Envelope, Passage
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Member
from switchboard.ports.engine import (
    Answer,
    EngineFailure,
    Journal,
    NoEffect,
    NoReply,
    Refusal,
    StepFailed,
    Turn,
    TurnResult,
)
from switchboard.ports.tools import Audience

SCHEMA_VERSION: Final = "delivery.v1"

DeliveryEffect = Literal["idempotent", "effectful"]


class EngineOptions(BaseModel, extra="forbid", frozen=True):
    """The options that every external engine knows; all but `effect` are read by the leg as well."""

    timeout: PositiveFloat | None = None
    """Seconds per attempt; None: only the leg's own limit."""
    on_dead: str | None = None
    reply_to_automatic: bool = False
    effect: DeliveryEffect = "idempotent"
    grants: dict[Audience, tuple[str, ...]] = Field(default_factory=dict)
    """Who may have the butler use which tools. By default owners may use all, others those of memory."""
    owners: tuple[str, ...] = ()
    """Who owns the butler: `telegram:5488`, a channel and a sender, or `person:ann`."""
    modules: dict[str, JsonObject] = Field(default_factory=dict)
    """The modules of this butler, each with what it may do with it; a list of names grants all of each."""

    @field_validator("modules", mode="before")
    @classmethod
    def _names_are_tables(cls, given: object) -> object:
        """`modules/kernel/grants.py` reads both forms, and checks them."""
        names = isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
        return {name: {} for name in given} if names and isinstance(given, list | tuple) else given


Options = TypeVar("Options", bound=EngineOptions)


class SaidFile(msgspec.Struct, frozen=True):
    """A file of the reply: the `blob` returned by the upload, or that of an attachment of the message."""

    blob: str
    filename: str = ""

    @property
    def attachment(self) -> Attachment:
        """The attachment for the turn's result; the store adds its size and type."""
        ref = PREFIX + storable_text(self.blob).lower()[:64]
        return Attachment(media_type=UNKNOWN, filename=reply_name(self.filename), size_bytes=0, storage_ref=ref)


class _JsonAnswer(msgspec.Struct, frozen=True):
    """The JSON answer; exactly one of the first three is given. `files` go with a reply."""

    reply: str | None = None
    no_reply: bool = False
    refuse: str | None = None
    reason: str = ""
    files: tuple[SaidFile, ...] = ()


def read_options(model: type[Options], member: Member) -> Options:
    """The member's options, checked. Raises `EngineFailure` (not retryable) that names each wrong one."""
    try:
        return model.model_validate(dict(member.options))
    except ValidationError as error:
        problems = "; ".join(after(path_of(p["loc"]), _describe_problem(model, p)) for p in error.errors())
        message = f"the options of {member.system_id} are wrong: {problems}"
        raise EngineFailure(message, error_class="validation", retryable=False) from error


def _describe_problem(model: type[BaseModel], problem: ErrorDetails) -> str:
    """What is wrong with an option, and what would be correct."""
    *outer, name = map(str, problem["loc"]) if problem["loc"] else ("",)
    if problem["type"] != "extra_forbidden":
        return wrong(problem)
    there = _options_of(model, outer)
    meant = near(name, there)
    return f"unknown option; {f'did you mean {or_list(meant)}?' if meant else 'there are: ' + ', '.join(there)}"


def _options_of(model: type[BaseModel], outer: Sequence[str]) -> Sequence[str]:
    """The names of the options nested below these."""
    for name in outer:
        kind = model.model_fields[name].annotation if name in model.model_fields else None
        inner = (one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, BaseModel))
        model = next(inner, BaseModel)
    return list(model.model_fields)


def delivery_json(turn: Turn, idempotency_key: UUID, files: Sequence[JsonMapping], upload_url: str = "") -> bytes:
    """`delivery.v1`: the work, the envelope without `payload.raw` and reply address, and for a notice its dead letter.

    `files`: where to read the bytes of attachments; `upload_url`: where to send files for the answer. In a digest,
    `dead_letter` also has `dead_letters` (their number), `categories` (the number of each) and `digest` (the first
    200); the envelope is that of the first.
    """
    delivery: JsonObject = {
        "schema_version": SCHEMA_VERSION,
        "kind": "delivery" if turn.dead_letter is None else "notice",
        "request_id": turn.request_id,
        "conversation": turn.conversation,
        "system_id": turn.member.system_id,
        "team_id": turn.team_id,
        "segment": turn.segment,
        "attempt": turn.attempt,
        "idempotency_key": idempotency_key,
        "received_at": turn.received_at,
        "envelope": envelope_for_butler(turn.envelope),
    }
    if turn.dead_letter is not None:
        delivery["dead_letter"] = turn.dead_letter
    if files:
        delivery["files"] = files
    if upload_url:
        delivery["upload_url"] = upload_url
    return msgspec.json.encode(delivery)


def envelope_for_butler(envelope: Envelope) -> Envelope:
    """The envelope for a butler: without what only the connector needs, and with whose words its parts are."""
    payload = replace(envelope.payload, raw=None, passages=told_apart(envelope))
    return replace(envelope, event=replace(envelope.event, reply_address=None), payload=payload)


def told_apart(envelope: Envelope) -> tuple[Passage, ...]:
    """The passages of a message with their texts, unfolded; none if the sender has written all of it."""
    passages = passages_of(envelope)
    return passages if any(one.kind != "own" for one in passages) else ()


def parse_said(body: bytes, files: Sequence[Attachment] = ()) -> TurnResult:
    """Read `{"reply": text, "files"?}`, `{"no_reply": true, "reason"?}` or `{"refuse": reason}`.

    An empty reply without files counts as none; `files` are additional files.

    Raises `EngineFailure` (not retryable): another attempt would give the same answer.
    """
    try:
        said = msgspec.json.decode(body, type=_JsonAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_understood(str(error)) from error
    if (said.reply is not None) + said.no_reply + (said.refuse is not None) != 1:
        raise _not_understood('exactly one of "reply", "no_reply": true and "refuse" must be there')
    if said.refuse is not None:
        return refusal(said.refuse)
    if said.reply is None:
        return NoReply(storable_text(said.reason))
    return text_result(said.reply, (*(one.attachment for one in said.files), *files))


def _not_understood(problem: str) -> EngineFailure:
    return EngineFailure(f"the answer is invalid: {problem}", retryable=False)


def text_result(text: str, files: Sequence[Attachment] = ()) -> TurnResult:
    """Plain text as an answer, with files; whitespace without files is no reply."""
    stripped = storable_text(text).strip()
    return Answer(stripped, tuple(files)) if stripped or files else NoReply()


def refusal(reason: str) -> Refusal:
    """The reason of a refusal, never empty."""
    return Refusal(storable_text(reason).strip() or "no reason was given")


async def run_step(
    turn: Turn, journal: Journal, name: str, act: Callable[[UUID], Awaitable[TurnResult]], effect: DeliveryEffect
) -> TurnResult:
    """Run `act(idempotency_key)` as a journaled step.

    If an effectful step raises `NoEffect`, that is recorded as its end, so that the next attempt begins a new step
    (`name/2`) instead of finding one whose outcome is unknown. Raises what `act` and the journal raise.
    """

    async def recorded(key: UUID) -> JsonObject:
        try:
            return _to_record(await act(key))
        except NoEffect as error:
            if effect == "idempotent":
                raise
            failed = {"failed": storable_text(str(error)), "error_class": error.error_class, "attempt": turn.attempt}
            raise StepFailed(failed) from error

    path, n = name, 1
    while True:
        try:
            return _from_record(await journal.step(path, recorded, effect=effect))
        except StepFailed as error:
            if error.result["attempt"] == turn.attempt:
                raise EngineFailure(error.result["failed"], error_class=error.result["error_class"]) from error
        n += 1
        path = f"{name}/{n}"


def _to_record(result: TurnResult) -> JsonObject:
    match result:
        case Answer(text, files):
            return {"reply": text} | ({"files": msgspec.to_builtins(files)} if files else {})
        case NoReply(reason):
            return {"no_reply": True, "reason": reason}
        case Refusal(reason):
            return {"refuse": reason}
        case _:
            raise TypeError(f"a program cannot end a turn with {result!r}")


def _from_record(record: JsonMapping) -> TurnResult:
    if "reply" in record:
        return Answer(record["reply"], msgspec.convert(record.get("files", ()), tuple[Attachment, ...]))
    return Refusal(record["refuse"]) if "refuse" in record else NoReply(record["reason"])

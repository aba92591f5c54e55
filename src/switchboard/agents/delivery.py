"""What a program or a webhook is handed and may say: `delivery.v1` out, one of three answers back.

`command.py` and `http.py` call it with a turn; a step of the journal enters, a `TurnResult` leaves. No process and no
network here. Next: `journey/turn.py`, which settles the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar
from uuid import UUID

import msgspec
from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from switchboard.core.stored import stored_json
from switchboard.domain.routing import Member
from switchboard.journey.turn import Answer, EngineFailure, ErrorClass, NoReply, Refusal, Turn, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.store.database import storable_text, to_json

SCHEMA_VERSION: Final = "delivery.v1"

Effect = Literal["idempotent", "effectful"]


class EngineOptions(BaseModel):
    """The options of a member that every outside engine knows; `timeout` and `on_dead` belong to the leg as well."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout: PositiveFloat | None = None
    """Seconds of one attempt; None: only the leg's own limit."""
    on_dead: str | None = None
    effect: Effect = "idempotent"


Options = TypeVar("Options", bound=EngineOptions)


class NoEffect(EngineFailure):
    """It failed, and surely nothing has happened: it may be tried again even where repeating is not allowed."""


class Said(msgspec.Struct, frozen=True):
    """The JSON that comes back; exactly one of the first three is given."""

    reply: str | None = None
    no_reply: bool = False
    refuse: str | None = None
    reason: str = ""


def read_options(model: type[Options], member: Member) -> Options:
    """The member's options, checked. Raises `EngineFailure` (not retryable) that names each wrong one."""
    try:
        return model.model_validate(dict(member.options))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors(include_url=False))
        message = f"the options of {member.system_id} are wrong: {problems}"
        raise EngineFailure(message, error_class="validation", retryable=False) from error


def delivery_json(turn: Turn, idempotency_key: UUID) -> bytes:
    """`delivery.v1`: the work, the envelope without `payload.raw`, and for a notice its dead letter.

    A digest is a notice whose `dead_letter` also has `letters`, how many there are, `categories`, how many of each, and
    `digest`, the first 200 of them; the envelope is that of the first.
    """
    work = turn.work
    delivery: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "delivery" if work.dead_letter is None else "notice",
        "request_id": work.request_id,
        "conversation": work.conversation,
        "system_id": work.system_id,
        "team_id": work.team_id,
        "segment": work.segment,
        "attempt": turn.attempt,
        "idempotency_key": idempotency_key,
        "received_at": work.received_at,
        "envelope": msgspec.Raw(stored_json(work.envelope)),
    }
    if work.dead_letter is not None:
        delivery["dead_letter"] = work.dead_letter
    return to_json(delivery).encode()


def parse_said(body: bytes) -> TurnResult:
    """Read `{"reply": text}`, `{"no_reply": true, "reason"?}` or `{"refuse": reason}`; an empty reply is none.

    Raises `EngineFailure` (not retryable): asking again would give the same.
    """
    try:
        said = msgspec.json.decode(body, type=Said)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_understood(str(error)) from error
    if (said.reply is not None) + said.no_reply + (said.refuse is not None) != 1:
        raise _not_understood('exactly one of "reply", "no_reply": true and "refuse" must be there')
    if said.refuse is not None:
        return refusal(said.refuse)
    return text_result(said.reply) if said.reply is not None else NoReply(storable_text(said.reason))


def _not_understood(problem: str) -> EngineFailure:
    return EngineFailure(f"the answer is not understood: {problem}", retryable=False)


def text_result(text: str) -> TurnResult:
    """Plain text as an answer; nothing but space is no reply."""
    stripped = storable_text(text).strip()
    return Answer(stripped) if stripped else NoReply()


def refusal(reason: str) -> Refusal:
    """A refusal always has a reason to show."""
    return Refusal(storable_text(reason).strip() or "no reason was given")


async def run_step(
    turn: Turn, journal: Journal, name: str, act: Callable[[UUID], Awaitable[TurnResult]], effect: Effect
) -> TurnResult:
    """Run `act(idempotency_key)` as a journaled step.

    An effectful one that raises `NoEffect` has that on record as the end of its step, so that the next attempt begins a
    new step instead of finding one whose outcome is unknown. Raises what `act` and the journal raise.
    """

    async def recorded(key: UUID) -> dict[str, Any]:
        try:
            return _to_record(await act(key))
        except NoEffect as error:
            if effect == "idempotent":
                raise
            return {"failed": storable_text(str(error)), "error_class": error.error_class, "attempt": turn.attempt}

    while True:
        record = await journal.step(name, recorded, effect=effect)
        if "failed" not in record:
            return _from_record(record)
        if record["attempt"] == turn.attempt:
            error_class: ErrorClass = record["error_class"]
            raise EngineFailure(record["failed"], error_class=error_class)


def _to_record(result: TurnResult) -> dict[str, Any]:
    match result:
        case Answer(text):
            return {"reply": text}
        case NoReply(reason):
            return {"no_reply": True, "reason": reason}
        case Refusal(reason):
            return {"refuse": reason}


def _from_record(record: Mapping[str, Any]) -> TurnResult:
    if "reply" in record:
        return Answer(record["reply"])
    return Refusal(record["refuse"]) if "refuse" in record else NoReply(record["reason"])

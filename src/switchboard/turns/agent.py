"""The agent of a context: it stores a message, claims its lane for this process, and runs the turn there.

`hosting.py` makes a `ButlerAgent`; `process_message` calls `run`. Next: `engine.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.envelope.read import parse_envelope
from switchboard.core.memory.notes import MOST_NOTES
from switchboard.core.people.readers import directory_among
from switchboard.core.text.storable import storable_text
from switchboard.core.text.tokens import estimate_tokens
from switchboard.core.turns.images import EXTENSIONS, MOST_IMAGE_BYTES, MOST_IMAGES, reference
from switchboard.domain.envelope import Attachment, Control, Event, Payload
from switchboard.domain.errors import ConfigurationError, InvalidInput, NotFound, Unavailable
from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.llm import Image
from switchboard.domain.message import RequestId
from switchboard.domain.routing import SWITCHBOARD, Member, SystemId
from switchboard.journey.accept import AcceptLeg, Submission
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.turn import TurnLeg
from switchboard.lanes.kinds import Claim
from switchboard.lanes.notifier import Notifier, settled_topic
from switchboard.ports.engine import EngineFailure, Fenced, Parked
from switchboard.store.database import Database
from switchboard.store.work import embedded_turns as store
from switchboard.store.work import lanes
from switchboard.store.work.lanes import Settlement
from switchboard.tasks import cancel_tasks, wait_at_most
from switchboard.tools.inbox import keep_image
from switchboard.tools.workspace import ToolRefusal
from switchboard.turns.context import MessageContext, NewMessage, ProcessedMessage, ProviderError
from switchboard.turns.engine import Calls, SessionEngine
from switchboard.turns.registration import Registration
from switchboard.turns.session import (
    envelope_of,
    key_of_request,
    reader_of_session,
    require_request_id,
    require_session_key,
)

log = structlog.get_logger(__name__)

_LOOK_EVERY_S: Final = 0.1
_LOOK_AT_LEAST_EVERY_S: Final = 1.0
"""A waiting call checks its message less and less often, but at least at this interval (seconds)."""
_PAUSE_S: Final = 1.0
"""Seconds before a turn that failed because of a defect is tried again."""
_COMPACTING: Final = 2
"""Maximum of sessions that are compacted at the same time."""


class AgentParts(Struct, frozen=True):
    """The parts that an agent needs to run turns."""

    database: Database
    notifier: Notifier
    rule_book: RuleBook
    engine: SessionEngine
    accept: AcceptLeg
    leg: TurnLeg
    registration: Registration
    calls: Calls


class ButlerAgent:
    """Implements `switchboard.turns.Agent` with one butler of the engine `model`."""

    def __init__(self, butler: SystemId, parts: AgentParts) -> None:
        self._butler = butler
        self._parts = parts
        self._compacting: set[asyncio.Task[None]] = set()

    async def prompt(self) -> str:
        """As in the protocol: the options `prompt` and `prompt_file`. Raises NotFound, ConfigurationError."""
        with _blaming_configuration():
            return await asyncio.to_thread(self._parts.engine.prompt_of, self._member)

    async def get_model(self, override: str | None = None) -> Sequence[str]:
        """As in the protocol: the option `models`, else all. Also raises NotFound, ConfigurationError."""
        with _blaming_configuration():
            names = self._parts.engine.models_of(self._member)
        if override is None:
            return names
        if override not in names:
            raise InvalidInput(
                f"{self._butler} has no model {override}; it has: {', '.join(names)}", field="model_override"
            )
        return (override,)

    async def run(self, ctx: MessageContext, message: NewMessage) -> ProcessedMessage:
        """As in the protocol. Raises NotFound and ConfigurationError if it cannot answer; then nothing is stored."""
        self.require_butler()
        require_session_key(message.session_key)
        require_request_id(message.request_id or "")
        with _blaming_configuration():
            self._parts.engine.models_of(self._member)
        call = await self._parts.engine.call_of(ctx, message)
        named = () if message.model_override is None else call.models or ()
        if (tokens := estimate_tokens(message.user_context)) > MOST_NOTES:
            raise InvalidInput(f"{tokens} tokens; at most {MOST_NOTES} are told to a model", field="user_context")
        submission, asked_as = await self._submission_of(message, named), self._parts.registration.claim.worker
        accepted = await self._parts.accept.accept(submission)
        with self._parts.calls.waiting(accepted.request_id, call):
            await self._parts.registration.ask_if_new(asked_as, accepted.request_id)
            answer = await self._wait_for_answer(accepted.request_id)
        self._start_compacting(ctx, message.session_key)
        return answer

    async def finish_compacting(self, within: float) -> None:
        """Wait up to `within` seconds for running compactions; one that is not finished then changes nothing."""
        if self._compacting:
            _, late = await asyncio.wait(self._compacting, timeout=within)
            await cancel_tasks(*late)

    def require_butler(self) -> None:
        """Raises NotFound if there is no such butler, and ConfigurationError if it has another engine."""
        if (engine := self._member.engine) != "model":
            raise ConfigurationError(f"{self._butler} has the engine {engine or 'none'}; programs ask the engine model")

    @property
    def _member(self) -> Member:
        member = self._parts.rule_book.rules.members.get(self._butler)
        if member is None or not member.active:
            raise NotFound(f"there is no active butler {self._butler}")
        return member

    async def _submission_of(self, message: NewMessage, named: Sequence[str]) -> Submission:
        """The message as it is stored. If one model is `named`, a process that takes over the turn asks the same one.

        A request id belongs to its session. Raises InvalidInput.
        """
        payload = Payload(normalized_text=message.content, attachments=await self._attach_images(message))
        now = datetime.now(UTC)
        event = Event(
            external_event_id=message.request_id or str(uuid4()),
            observed_at=now,
            external_thread_id=message.session_key,
        )
        key = key_of_request(message.session_key, message.request_id) if message.request_id else None
        control = Control(idempotency_key=key, pinned_target=self._butler, model=named[0] if len(named) == 1 else None)
        draft = envelope_of(self._butler, message.channel_name, event, payload, control)
        envelope = parse_envelope(msgspec.to_builtins(draft), now=now)
        return Submission(envelope, msgspec.json.encode(envelope))

    async def _attach_images(self, message: NewMessage) -> tuple[Attachment, ...]:
        """References to the images, which are kept before the message is stored. Raises InvalidInput."""
        _check_images(message.images)
        if not message.images:
            return ()
        reader = reader_of_session(self._butler, message.channel_name, message.session_key)
        readers = directory_among(reader)
        kept = None if readers is None else self._parts.engine.kept_for(self._member, readers)
        return tuple([await asyncio.to_thread(_keep_image, kept, image) for image in message.images])

    async def _wait_for_answer(self, request_id: RequestId) -> ProcessedMessage:
        ring = asyncio.Event()
        pause = _LOOK_EVERY_S
        with self._parts.notifier.subscribe(settled_topic(request_id), ring.set):
            while (found := await self._find_delivery(request_id)).state == "pending":
                if await self._run_next_item(found):
                    pause = _LOOK_EVERY_S
                else:
                    await wait_at_most(pause, ring)
                    ring.clear()
                    pause = min(pause * 1.5, _LOOK_AT_LEAST_EVERY_S)
            return _processed_message(found)

    async def _find_delivery(self, request_id: RequestId) -> store.FoundDelivery:
        database = self._parts.database
        found = await store.find(database, request_id, self._butler)
        found = found or await store.find(database, request_id, SWITCHBOARD)
        if found is None:
            raise NotFound(f"message {request_id} was not delivered to {self._butler}")
        return found

    async def _run_next_item(self, found: store.FoundDelivery) -> bool:
        """Run the next item of the lane, if it is free. Raises `ProviderError` if it must be tried later."""
        claim = self._parts.registration.claim
        item = await self._claim_item(found.lane, claim)
        if item is None and found.delayed:
            raise ProviderError(found.error or "this turn, or one before it in its session, is tried again later")
        if item is not None:
            await self._run(item, claim)
        return item is not None

    async def _claim_item(self, lane: LaneKey, claim: Claim) -> Item | None:
        """Claim the next item of a lane; None if it is not free. If the caller leaves meanwhile, it stays free."""
        claiming = asyncio.create_task(store.claim_lane(self._parts.database, claim.worker, lane))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.shield(self._free_claim(claiming, claim))
            raise

    async def _free_claim(self, claiming: asyncio.Task[Item | None], claim: Claim) -> None:
        try:
            item = await claiming
        except Unavailable:  # it may have been claimed anyway
            self._parts.registration.lose()
            return
        if item is not None:
            await self._leave_item(item, claim)

    async def _leave_item(self, item: Item, claim: Claim) -> None:
        """The caller is gone: free the item, and do not count this as an attempt."""
        await self._put_back(replace(item, attempts=item.attempts - 1), claim, "the caller has gone", 0.0)

    async def _run(self, item: Item, claim: Claim) -> None:
        """Run the turn of an item. Whatever ends it early, the lane is free again."""
        try:
            await self._parts.leg(item, claim)
        except Fenced:
            return
        except Parked as parked:  # a worker began this turn: those of programs do not ask people
            await claim.steps.park(item, parked.keys)
        except asyncio.CancelledError:
            await asyncio.shield(self._leave_item(item, claim))
            raise
        except Unavailable:
            self._parts.registration.lose()
            raise
        except Exception as error:
            log.exception("turn failed unexpectedly", lane=str(item.lane), seq=item.seq)
            what = "".join(traceback.format_exception_only(error)).strip()
            await self._put_back(item, claim, storable_text(what)[:2000], _PAUSE_S)

    async def _put_back(self, item: Item, claim: Claim, why: str, pause: float) -> None:
        failed = Settlement(item, "failed", None, None, error_class="internal", error=why)
        try:
            await lanes.retry(self._parts.database, claim.worker, failed, pause)
        except Unavailable:
            self._parts.registration.lose()

    def _start_compacting(self, ctx: MessageContext, session_key: str) -> None:
        """Start a compaction, but only a few at a time; the next turn of the session also tries to."""
        if len(self._compacting) < _COMPACTING:
            task = asyncio.create_task(_compact_quietly(ctx, session_key))
            self._compacting.add(task)
            task.add_done_callback(self._compacting.discard)


def _check_images(images: Sequence[Image]) -> None:
    if len(images) > MOST_IMAGES:
        raise InvalidInput(f"a message has at most {MOST_IMAGES} images", field="images")
    for image in images:
        if image.media_type not in EXTENSIONS:
            raise InvalidInput(f"an image is one of {', '.join(EXTENSIONS)}, not {image.media_type}", field="images")
        if not 0 < len(image.data) <= MOST_IMAGE_BYTES:
            raise InvalidInput(f"an image has 1 to {MOST_IMAGE_BYTES} bytes, not {len(image.data)}", field="images")


def _keep_image(readers: Path | None, image: Image) -> Attachment:
    """Keep an image, and return its attachment, even if it cannot be kept: the same request gives the same message.

    The model is told if an image is missing.
    """
    attachment = reference(image)
    if readers is not None:
        try:
            keep_image(readers, attachment.filename or "", image)
        except (ToolRefusal, OSError) as error:
            log.warning("an image could not be kept", error=str(error))
    return attachment


async def _compact_quietly(ctx: MessageContext, session_key: str) -> None:
    try:
        await ctx.memory().compact(session_key)
    except Exception:
        log.exception("compaction failed", session=session_key)


@contextlib.contextmanager
def _blaming_configuration() -> Iterator[None]:
    """Turns failures of the engine into ConfigurationError: an option of the butler is wrong."""
    try:
        yield
    except EngineFailure as error:
        raise ConfigurationError(str(error)) from error


def _processed_message(found: store.FoundDelivery) -> ProcessedMessage:
    """The result of a settled turn. Raises `ProviderError` for a turn without an answer."""
    if found.state not in {"answered", "declined"}:
        raise ProviderError(found.error or f"the turn is {found.state}")
    usage = found.usage
    return ProcessedMessage(
        found.text or "",
        usage[-1].model if usage else "",
        sum(one.input_tokens for one in usage),
        sum(one.output_tokens for one in usage),
        found.stop_reason or "end",
        found.files,
        found.taken_over,
    )

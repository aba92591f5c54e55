"""From the outbox to the platform: in order per conversation, with a record of each part.

`runner.py` runs a `ReplySender` for each session. The intent is recorded before a part is sent, the outcome after it;
so a crash neither repeats parts nor loses any. A part with an intent but no outcome is uncertain: it is looked up, sent
again under its key, or treated as `on_uncertain` says. Next: `limits.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import inf, isfinite
from typing import Final, NoReturn

import structlog

from switchboard.connectors.kernel.answers import Overtaken, ReplyToSend, Unreachable
from switchboard.connectors.kernel.api import Api
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.held import LEASE_S, HeldReply, reason_for_server
from switchboard.connectors.kernel.limits import Brake, Limiter
from switchboard.connectors.kernel.parts import (
    ReplyDestination,
    is_verbatim,
    mark_as_resent,
    plain,
    plan,
    takes_text,
    unanswering,
    without_files,
)
from switchboard.connectors.kernel.patience import Patience
from switchboard.lanes.faults import point
from switchboard.ports.channel import SendFailure
from switchboard.ports.connector import (
    SEND_S,
    Capabilities,
    Later,
    OnUncertain,
    Outcome,
    Part,
    Refused,
    Sent,
    Session,
    Uncertain,
)
from switchboard.tasks import cancel_tasks, refuse_exit, wait_at_most

log = structlog.get_logger(__name__)

RENEW_S: Final = 20.0
REQUEST_S: Final = SEND_S
"""Nothing is sent unless more than this is left of the lease, which is renewed while files are sent."""
_ANSWER_S: Final = 10.0
"""After which the account says that the platform does not answer; a part with files has as much longer as it may take.
"""
_HOLD_S: Final = 15.0
"""For longer than this a reply is given back: an intent is taken back with it, and is no doubt after a crash."""
_HOLD_DOUBT_S: Final = 3600.0
"""The same for one with a part that may have been sent, whose intent must not be taken back."""
_KEY_AGAIN_S: Final = 1.0
_LONGEST_S: Final = 86_400.0
_BRAKED_S: Final = 3600.0
"""For so long the account says that no more replies are sent to somebody."""
_LONG: Final = 4000
"""Characters of a text that is rendered in a thread: a hostile one takes a second or more."""
_DRAIN_S: Final = 10.0
"""How long replies that are being sent may take when we are told to stop."""


_RECORDED: Final = Sent("")
"""The server knows the part as sent already."""


class _GivenBack(Exception):
    """Return the reply to the server, to be sent after this many seconds."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(reason)
        self.seconds = seconds
        self.reason = reason


class _LeftToLease(Exception):
    """Report nothing: when the lease expires, the reply returns with the recorded state of its parts."""


class _Stopped(Exception):
    """The reply is not sent unless a person sends it again."""

    def __init__(self, because: SendFailure, reason: str) -> None:
        super().__init__(reason)
        self.because = because


class _Unknown(Exception):
    """A part may have been sent, and a person must decide what to do."""


@dataclass(slots=True)
class ReplySender:
    """Sends for one session until cancelled, or until the lease of the account ends."""

    session: Session
    api: Api
    capabilities: Capabilities
    on_uncertain: OnUncertain
    health: Health
    clock: Callable[[], float]
    brake: Brake | None = None
    begun: Callable[[str], None] = lambda _: None
    """Called with the conversation of each reply that comes."""
    platform: str = "this platform"
    """As people call it."""
    _limiter: Limiter = field(init=False)
    _busy: set[asyncio.Task[None]] = field(default_factory=set)
    _rendering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _patience: Patience = field(init=False)
    _slowed: dict[str, float] = field(default_factory=dict)
    """To whom replies wait for the brake, and until when."""
    _unanswered: datetime | None = None
    """Since when the platform has not taken, or refused, anything that it was given."""

    def __post_init__(self) -> None:
        self._limiter = Limiter(self.capabilities)
        self._patience = Patience(self.health, "outbox")

    async def run(self) -> None:
        """Run until cancelled. Raises Overtaken when another process serves the account."""
        try:
            while True:
                await self._fetch()
        finally:
            await self._drain()

    async def _drain(self) -> None:
        self._ending.set()
        if busy := list(self._busy):
            await asyncio.wait(busy, timeout=_DRAIN_S)
            await cancel_tasks(*busy)

    async def _fetch(self) -> None:
        try:
            asked = self.clock()
            replies = await self.api.replies(lease_s=LEASE_S)
        except Unreachable as error:
            await self._patience.wait(error)
            return
        self._patience.over()
        if replies:
            point("connector_fetched")
        # The lease began between our request and the answer; only the time of the request is safe.
        until = max(asked, self.clock() - 1.0) + LEASE_S
        for reply in replies:
            self.begun(reply.conversation)
            task = asyncio.create_task(self._serve(reply, until))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)

    async def _serve(self, reply: ReplyToSend, until: float) -> None:
        """Serve one reply up to its receipt. If the server fails, the expired lease shows what is uncertain."""
        try:
            await refuse_exit(self._send_all, reply, until)
        except _GivenBack as back:
            seconds = min(max(back.seconds, 0.0), _LONGEST_S)
            with suppress(Unreachable, Overtaken):
                await self.api.receipt(reply, "later", error=reason_for_server(back.reason), retry_after_s=seconds)
        except _Stopped as stopped:
            with suppress(Unreachable, Overtaken):
                await self.api.receipt(reply, "failed", error=reason_for_server(str(stopped)), because=stopped.because)
                self.health.counters["failed"] += 1
                if self.brake is not None and stopped.because == "braked":
                    self.brake.note_stopped_reply(reply.outbox_id)
        except _Unknown as unknown:
            with suppress(Unreachable, Overtaken):
                await self.api.receipt(reply, "uncertain", error=reason_for_server(str(unknown)))
        except (Unreachable, Overtaken) as error:
            log.warning("reply left to its lease", outbox_id=reply.outbox_id, why=error.message)
        except Exception as error:
            self.health.trouble("replies", str(error) or type(error).__name__)
            log.exception("reply left to its lease", outbox_id=reply.outbox_id)
        else:
            self.health.well("replies")

    async def _send_all(self, reply: ReplyToSend, until: float) -> None:
        if reply.unreachable:
            raise _Stopped("blocked", "not tried, as nothing can be sent there until somebody writes there again")
        held = HeldReply(reply, self.api, self.clock, until)
        held.parts = await self._plan_parts(held)
        self._apply_brake(reply)
        outcomes, blocked = list[Sent | Refused](), False
        for index in range(len(held.parts)):
            outcomes.append(await self._once(held, index))
            if blocked := self._note_if_unreachable(reply, outcomes[-1]):
                break
        self.health.counters[await held.receipt(outcomes, "blocked" if blocked else None)] += 1

    async def _plan_parts(self, held: HeldReply) -> tuple[Part, ...]:
        """Plan the parts of a reply, without blocking other replies even if its text is long and hostile."""
        reply = held.reply
        to = ReplyDestination(reply.address, reply.reply_to, self.platform, reply.choices)
        make = partial(plan, reply.text, held.files(), self.capabilities, to)
        if len(reply.text) <= _LONG:
            return make()
        async with self._rendering:
            return await asyncio.to_thread(make)

    def _note_if_unreachable(self, reply: ReplyToSend, outcome: Sent | Refused) -> bool:
        """Whether the conversation is unreachable, so that there is no point in trying the other parts."""
        if isinstance(outcome, Sent) or outcome.because != "blocked":
            return False
        self.health.counters["unreachable"] += 1
        log.warning("conversation unreachable", outbox_id=reply.outbox_id, why=outcome.reason)
        return True

    async def _once(self, held: HeldReply, index: int) -> Sent | Refused:
        """Send one part, unless it is recorded as sent or refused."""
        recorded = held.reply.parts.get(index, {})
        match recorded.get("state"):
            case "sent":
                return Sent(str(recorded.get("platform_message_id") or ""))
            case "refused":
                return Refused(str(recorded.get("error") or "refused"))
            case "intent" | "uncertain":
                held.doubts[index] = held.until - LEASE_S - float(recorded.get("age_s", inf))
                return await self._decide(held, index, held.parts[index], "the connector ended while it was sending")
        return await self._attempt(held, index, held.parts[index])

    async def _attempt(self, held: HeldReply, index: int, part: Part, *, again: bool = False) -> Sent | Refused:
        """Try until the platform reports an outcome of the part; `again`: it may have been sent before."""
        while isinstance(outcome := await self._send(held, index, part), Later):
            await self._put_off(held, index, outcome)
        match outcome:
            case Refused(because="markup") if part.rendered is not None or part.choices is not None:
                return await self._attempt(held, index, plain(part), again=again)
            case Refused(because="target") if part.reply_to is not None:
                return await self._attempt(held, index, unanswering(part), again=again)
            case Refused(reason, because="other" | "markup" | "gone" as because) if part.files and not is_verbatim(
                part.address
            ):
                self.health.counters["files_refused"] += 1
                why = reason if because == "gone" else f"{self.platform} does not take it: {reason}"
                return await self._attempt(held, index, without_files(part, why, self.capabilities), again=again)
            case Uncertain(reason):
                return await self._decide(held, index, part, reason, again=again)
        if outcome is not _RECORDED:
            await held.record(index, outcome)
        return outcome

    async def _send(self, held: HeldReply, index: int, part: Part) -> Outcome:
        """Wait for our turn, record the intent, and send while we certainly hold the lease."""
        await self._turn(held)
        if await held.intend(index) == "sent":
            return _RECORDED
        began = self.clock()
        if held.until - began <= REQUEST_S:
            raise Overtaken("too little is left of the lease to send a part")
        point("connector_intended")
        outcome = await self._answer(held, index, part)
        point("connector_sent")
        if isinstance(outcome, Uncertain):
            held.doubts.setdefault(index, began)
            if self._knows_key(held, index):  # sending the same part again creates no second one
                return Later(_KEY_AGAIN_S, outcome.reason)
        return outcome

    async def _answer(self, held: HeldReply, index: int, part: Part) -> Outcome:
        """The platform's answer; a missing answer shows in the account's health."""
        asked, late = datetime.now(UTC), part.patience_s - SEND_S + _ANSWER_S
        silence = f"{self.platform} has not reported the outcome of a reply"
        silent = asyncio.get_running_loop().call_later(late, self._report_no_answer, asked, silence)
        try:
            async with asyncio.timeout(part.patience_s):
                outcome = await self._send_part(held, index, part)
        except Exception as error:
            outcome = Uncertain(f"{type(error).__name__}: {error}")
        finally:
            silent.cancel()
        outcome = held.unless_unread(outcome)
        match outcome:
            case Uncertain(reason):
                self._report_no_answer(asked, reason)
            case Sent() | Refused(because="markup" | "target" | "blocked" | "other"):
                self._clear_no_answer()
        return outcome

    def _report_no_answer(self, since: datetime, why: str) -> None:
        """Report since when the platform has not answered, until it does."""
        self._unanswered = self._unanswered or since
        self.health.trouble("sending", f"since {self._unanswered:%Y-%m-%d %H:%M:%S} UTC: {why}")

    def _clear_no_answer(self) -> None:
        self._unanswered = None
        self.health.well("sending")

    async def _send_part(self, held: HeldReply, index: int, part: Part) -> Outcome:
        """The session's result; the lease is renewed while it sends files. Raises Overtaken when the lease is lost."""
        if not part.files:
            return await self.session.send(part, held.key(index))
        sending = asyncio.ensure_future(self.session.send(part, held.key(index)))
        try:
            while not (await asyncio.wait((sending,), timeout=RENEW_S))[0]:
                with suppress(Unreachable):
                    await held.renew(index)
            return sending.result()
        finally:
            await cancel_tasks(sending)

    async def _turn(self, held: HeldReply) -> None:
        """Wait until the platform's limits permit a part. The slot is taken first, so others queue behind it."""
        conversation, reason = held.reply.conversation, "the limits of the platform"
        group, now = held.reply.address.get("group") is True, self.clock()
        pause = self._limiter.wait(conversation, now, group=group)
        self._require_time(held, pause, reason)
        self._limiter.sent(conversation, now + pause, group=group)
        await self._wait(held, pause, reason)
        while (pause := self._limiter.paused_s(self.clock())) > 0:  # since we took the slot
            await self._wait(held, pause, "a limit of the whole account")

    def _require_time(self, held: HeldReply, seconds: float, reason: str) -> None:
        """Give a reply back, instead of renewing its lease, if none of it is on its way."""
        if held.intended is None and seconds > held.until - self.clock() - REQUEST_S:
            raise _GivenBack(seconds, reason)

    async def _wait(self, held: HeldReply, seconds: float, reason: str) -> None:
        """A pause that our own limits require, or the platform, for which the lease is renewed.

        A reply still waiting when the session ends is given back, as none of it is on its way.
        """
        self._require_time(held, seconds, reason)
        ends = self.clock() + seconds
        while (left := ends - self.clock()) > 0:
            await wait_at_most(min(left, RENEW_S), self._ending)
            if self._ending.is_set():
                raise _LeftToLease(reason) if held.doubts else _GivenBack(left, reason)
            if held.intended is not None and self.clock() > held.until - LEASE_S + RENEW_S:
                await held.intend(held.intended)

    async def _put_off(self, held: HeldReply, index: int, later: Later) -> None:
        if later.account:
            self._limiter.pause_account(later.seconds, self.clock())
        else:
            self._limiter.later(held.reply.conversation, later.seconds, self.clock())
        self.health.counters["later"] += 1
        held.put_off_s += later.seconds
        # A reply given back counts as certainly not sent, which is not true of an uncertain part.
        if index in held.doubts and held.put_off_s > _HOLD_DOUBT_S:
            raise _LeftToLease(later.reason)
        if index not in held.doubts and held.put_off_s > _HOLD_S:
            self._report_no_answer(datetime.now(UTC), f"replies wait: {later.reason}")
            raise _GivenBack(later.seconds, later.reason)
        if index not in held.doubts:
            await held.take_back(index)
        await self._wait(held, later.seconds, later.reason)

    def _apply_brake(self, reply: ReplyToSend) -> None:
        """Apply the brake; a reply that was begun continues."""
        if self.brake is None or is_verbatim(reply.address):
            return
        if any(part.get("state") == "sent" for part in reply.parts.values()):
            return
        now = self.clock()
        both = brake_keys(reply.recipient, reply.conversation)
        pause = max(self.brake.wait(whom, reply.outbox_id, now) for whom in both)
        self._slowed = {whom: until for whom, until in self._slowed.items() if until > now}
        if pause > 0:
            self._slow(reply, pause, now)
        for whom in both:
            self.brake.note_sent_reply(whom, reply.outbox_id, now)
        if not self._slowed:
            self.health.well("brake")

    def _slow(self, reply: ReplyToSend, pause: float, now: float) -> NoReturn:
        """Report why the reply waits, or is left to a person."""
        why = f"{reply.recipient} has had {self.brake.most if self.brake else 0} replies within minutes"
        if reply.recipient not in self._slowed:
            self.health.counters["braked"] += 1
            log.warning("reply braked", outbox_id=reply.outbox_id, seconds=pause)
        self._slowed[reply.recipient] = now + min(pause, _BRAKED_S)
        self.health.trouble("brake", f"{why}; the next one waits" if isfinite(pause) else f"{why}; no more are sent")
        if isfinite(pause):
            raise _GivenBack(pause, f"{why}; it waits")
        raise _Stopped("braked", f"{why}: perhaps a program answers; to send this one: switchboard outbox resend")

    def _knows_key(self, held: HeldReply, index: int) -> bool:
        """Whether the platform still recognises the key of a part that may have been sent."""
        if self.capabilities.idempotency != "key":
            return False
        patience = held.parts[index].patience_s
        return self.clock() - held.doubts[index] + patience < self.capabilities.key_window_s

    async def _decide(
        self, held: HeldReply, index: int, part: Part, reason: str, *, again: bool = False
    ) -> Sent | Refused:
        """Decide about a part that may have been sent; it is repeated at most once."""
        if self._knows_key(held, index):
            return await self._attempt(held, index, part)
        if self.capabilities.idempotency != "none" and (found := await self._look_up_part(held, index, part)):
            self._clear_no_answer()
            await held.record(index, found)
            return found
        self.health.counters["uncertain"] += 1
        log.warning("part may have been sent", outbox_id=held.reply.outbox_id, part=index + 1, why=reason)
        match "ask" if is_verbatim(part.address) else self.on_uncertain:
            case "resend_marked" if not again and takes_text(part.files, self.capabilities):
                self.health.counters["repeats"] += 1
                return await self._attempt(held, index, mark_as_resent(part, self.capabilities), again=True)
            case "drop":
                refused = Refused(f"not sent again, as it may have been sent: {reason}")
                await held.record(index, refused)
                return refused
        raise _Unknown(f"part {index + 1} of {len(held.parts)} may have been sent: {reason}")

    async def _look_up_part(self, held: HeldReply, index: int, part: Part) -> Sent | None:
        """The part, if the platform has it. A failed look-up proves nothing, so it is repeated later."""
        try:
            async with asyncio.timeout(REQUEST_S):
                return await self.session.find(part, held.key(index))
        except Exception as error:
            raise _LeftToLease(f"the platform does not say whether it has part {index + 1}: {error}") from error


def brake_keys(recipient: str, conversation: str) -> tuple[str, str]:
    """The names under which the brake counts a reply."""
    return f"to {recipient}", f"in {conversation}"

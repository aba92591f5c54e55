"""The loop of a turn as a state machine: what comes next, and what a reply or a result changes. Pure.

`agents/turns/talk.py` does what `next_step` says, journals the outcome, and passes that back; so a resumed turn takes
the same course from the same records. Next: `frozen.py`, what a turn begins with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from msgspec import Struct, field, structs

from switchboard.core.text.lenient import json_value, sanitize_error
from switchboard.core.turns.limits import CompletedCall, LoopLimits, TurnUsage, find_reached_limit
from switchboard.domain.llm import ChatMessage, Image, Reply, ToolCall, ToolResult
from switchboard.ports.engine import StopReason

EMPTY: Final = "The model gave no answer. Please ask again, perhaps in other words."
_TEMPLATES: Final[dict[StopReason, str]] = {
    "limit:requests": "I have stopped here: this took more steps than I may take for one message.",
    "limit:tool_calls": "I have stopped here: this took more steps than I may take for one message.",
    "limit:tokens": "I have stopped here: this took more text than I may read and write for one message.",
    "limit:money": "I have stopped here: this cost as much as I may spend on one message.",
    "limit:time": "I have stopped here: this took longer than I may work on one message.",
    "limit:repeats": "I have stopped here: I did the same thing again and again without getting any further.",
}
DAY_SPENT: Final = "I have stopped here: what may be spent in a day is used up. Please ask again tomorrow."
CUT_OFF: Final = (
    "Your answer was cut off at its length limit, so none of its tool calls was carried out. "
    "Answer more briefly, or do the work in smaller steps."
)
AS_TEXT: Final = (
    "You wrote a call of a tool as text, or with arguments that do not fit, so it was not carried out. "
    "Call the tool as it was described to you, or answer in words."
)
NOTHING_SAID: Final = "You wrote nothing. Make the call that comes next, or tell the person in words what was done."
REPEATED: Final = (
    "You have made this call before, and the result is the same. Answer, or make the call that comes next."
)
_DONE: Final = "The model wrote no answer. This was done:"
_MOST_DONE: Final = 10
_MOST_SHOWN: Final = 100
_NOT_RUN: Final = "not carried out: the limit of tool calls for this message is reached"


class SendRequest(Struct, frozen=True):
    """Send request number `n`. `tools`: whether the model may call the tools that it is shown."""

    n: int
    messages: tuple[ChatMessage, ...]
    tools: bool = True


class PlannedCall(Struct, frozen=True):
    """A call to carry out as the step `path`."""

    path: str
    made: ToolCall


class Run(Struct, frozen=True):
    """Carry out these calls, and pass all their results back together, in this order."""

    calls: tuple[PlannedCall, ...]


class TurnEnd(Struct, frozen=True):
    """The turn is over."""

    text: str
    stop_reason: StopReason


class LoopProgress(Struct, frozen=True):
    """How far a turn has come. `messages` are those of this turn, including the first."""

    messages: tuple[ChatMessage, ...]
    used: TurnUsage = field(default_factory=TurnUsage)
    done: tuple[CompletedCall, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    empty: bool = False
    """Whether the last reply was empty."""
    sent_back: bool = False
    """Whether the last reply was sent back, because it had calls as text."""
    end: TurnEnd | None = None


def begin(opening: str, images: Sequence[Image] = ()) -> LoopProgress:
    """The turn before its first request."""
    return LoopProgress((ChatMessage("user", opening, images=tuple(images)),))


def next_step(progress: LoopProgress, limits: LoopLimits) -> SendRequest | Run | TurnEnd:
    """What to do next."""
    if progress.end is not None:
        return progress.end
    if progress.pending:
        return Run(_paths(progress, limits))
    return SendRequest(progress.used.requests + 1, progress.messages, tools=stopping(progress, limits) is None)


def stopping(progress: LoopProgress, limits: LoopLimits) -> StopReason | None:
    """The limit that makes the next request the last one."""
    return find_reached_limit(limits, progress.used, progress.done)


def apply_reply(
    progress: LoopProgress, reply: Reply, limits: LoopLimits, *, seconds: float = 0.0, micros: int = 0
) -> LoopProgress:
    """After a reply: its text ends the turn, or its calls must be carried out.

    If its usage is not reported and generated tokens are limited, the caller fills in what was reserved.
    """
    stop = stopping(progress, limits)
    used = structs.replace(
        progress.used,
        requests=progress.used.requests + 1,
        tokens=progress.used.tokens + reply.usage.tokens,
        micros=progress.used.micros + micros,
        seconds=progress.used.seconds + seconds,
        generated=progress.used.generated + reply.usage.output_tokens,
    )
    after = structs.replace(progress, used=used)
    if stop is not None:
        return structs.replace(after, end=ended_at(stop, reply.text))
    if reply.unmade == "cut_off" or (reply.stop_reason == "length" and (reply.calls or not reply.text.strip())):
        return _reject_reply(after, reply, CUT_OFF)
    if reply.unmade and not progress.sent_back:
        return structs.replace(_reject_reply(after, reply, AS_TEXT), sent_back=True)
    if reply.calls:
        said = replace(reply.message, calls=_assign_call_ids(reply.calls, used.requests))
        messages = (*progress.messages, said)
        return structs.replace(after, messages=messages, pending=said.calls, empty=False, sent_back=False)
    if text := reply.text.strip():
        end = TurnEnd(text, "length" if reply.stop_reason == "length" else "end")
    elif progress.empty or reply.unmade:
        end = TurnEnd(empty_answer(progress.done), "error")
    else:  # asked the same again, a model that answers a request always alike says nothing again
        return structs.replace(_reject_reply(after, reply, NOTHING_SAID), empty=True)
    return structs.replace(after, end=end)


def empty_answer(done: Sequence[CompletedCall]) -> str:
    """What a person is told if a model gives no answer: what was done, if anything was."""
    if not any(call.ok for call in done):
        return EMPTY
    lines = [_line(call) for call in done[-_MOST_DONE:]]
    more = [f"- (before that, {len(done) - len(lines)} more calls)"] if len(done) > len(lines) else []
    return "\n".join((_DONE, *more, *lines))


def _line(call: CompletedCall) -> str:
    given = json_value(call.arguments)
    words = (f"{name}: {_short(value)}" for name, value in given.items()) if isinstance(given, dict) else ()
    said = ", ".join(words)
    failed = "" if call.ok else " (this failed)"
    return f"- {call.name.replace('_', ' ')}{f' ({said})' if said else ''}{failed}"


def _short(value: object) -> str:
    text = sanitize_error(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def end_if_at_limit(progress: LoopProgress, limits: LoopLimits) -> LoopProgress | None:
    """After a failed request: the end with a template if it was the last one, at a limit; otherwise None."""
    stop = stopping(progress, limits)
    return None if stop is None else structs.replace(progress, end=ended_at(stop))


def ended_at(stop: StopReason, text: str = "") -> TurnEnd:
    """The end at a limit, with the text so far or, if there is none, a template."""
    return TurnEnd(text.strip() or _TEMPLATES[stop], stop)


def day_spent(progress: LoopProgress) -> LoopProgress:
    """After a request that was not sent because it could exceed the day's budget: the end of the turn."""
    return structs.replace(progress, end=TurnEnd(DAY_SPENT, "limit:money"))


def carried_out(progress: LoopProgress, results: Sequence[ToolResult], *, seconds: float = 0.0) -> LoopProgress:
    """After the calls: results in the order of `Run`, fewer than calls if a limit was reached first."""
    calls = progress.pending
    missing = (ToolResult(call.id or "", _NOT_RUN, ok=False) for call in calls[len(results) :])
    done = tuple(
        CompletedCall(call.name, canonical_arguments(call), f"{result.ok} {result.text}", ok=result.ok)
        for call, result in zip(calls, results, strict=False)
    )
    used = structs.replace(
        progress.used,
        tool_calls=progress.used.tool_calls + len(results),
        seconds=progress.used.seconds + seconds,
    )
    told = (
        _tell_repeat(result) if call in progress.done else result for call, result in zip(done, results, strict=True)
    )
    message = ChatMessage("user", results=(*told, *missing))
    return structs.replace(
        progress, messages=(*progress.messages, message), pending=(), used=used, done=(*progress.done, *done)
    )


def _tell_repeat(result: ToolResult) -> ToolResult:
    """Small models make the same call again when its result does not say what comes next."""
    return structs.replace(result, text=f"{result.text}\n{REPEATED}")


def canonical_arguments(call: ToolCall) -> str:
    """The arguments of a call as JSON, always the same for equal arguments."""
    return json.dumps(dict(call.arguments), ensure_ascii=False, sort_keys=True)


def _reject_reply(progress: LoopProgress, reply: Reply, why: str) -> LoopProgress:
    """After a reply that is no answer and of which no call is made: the model is told why."""
    said = ChatMessage("assistant", reply.text.strip() or "…")
    return structs.replace(progress, messages=(*progress.messages, said, ChatMessage("user", why)), empty=False)


def _assign_call_ids(calls: tuple[ToolCall, ...], n: int) -> tuple[ToolCall, ...]:
    """The calls, each with an id that identifies its result; small servers provide none."""
    return tuple(call if call.id else structs.replace(call, id=f"call_{n}_{i}") for i, call in enumerate(calls, 1))


def _paths(progress: LoopProgress, limits: LoopLimits) -> tuple[PlannedCall, ...]:
    """The calls that may still be made, each with its own path, because models sometimes repeat ids."""
    left = progress.pending[: limits.tool_calls - progress.used.tool_calls]
    found: dict[str, PlannedCall] = {}
    for call in left:
        name = f"tool:{progress.used.requests}:{(call.id or '')[:100]}"
        paths = (name if n == 1 else f"{name}#{n}" for n in count(1))
        path = next(one for one in paths if one not in found)
        found[path] = PlannedCall(path, call)
    return tuple(found.values())

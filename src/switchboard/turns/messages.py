"""The functions of the facade: one call per message. Next: `context.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from switchboard.domain.llm import Image
from switchboard.ports.engine import Delta
from switchboard.tasks import cancel_tasks
from switchboard.turns.context import CompactedSession, MessageContext, NewMessage, ProcessedMessage


async def process_message(  # noqa: PLR0913 - the arguments of one call, most of them by name
    ctx: MessageContext,
    session_key: str,
    channel_name: str,
    content: str,
    *,
    user_context: str | None = None,
    model_override: str | None = None,
    request_id: str | None = None,
    images: Sequence[Image] = (),
    on_delta: Callable[[Delta], None] | None = None,
) -> ProcessedMessage:
    """Let the agent answer one message of a session; `on_delta` gets the answer while it is written.

    `model_override` names one of the agent's models. `images` are at most four, of up to 5 MB each; models with
    `vision` see them in this turn. The session key is the sender: rules, owners and facts know the person by it. Raises
    ConfigurationError if the butler or the context cannot answer, and the errors of storing a message, before it is
    stored; `ProviderError` afterwards.
    """
    message = NewMessage(
        session_key, channel_name, content, user_context or "", model_override, request_id, images, on_delta
    )
    return await ctx.agent().run(ctx, message)


process_message_non_streaming = process_message


async def stream_message(  # noqa: PLR0913 - as above
    ctx: MessageContext,
    session_key: str,
    channel_name: str,
    content: str,
    *,
    user_context: str | None = None,
    model_override: str | None = None,
    request_id: str | None = None,
    images: Sequence[Image] = (),
) -> AsyncGenerator[Delta | ProcessedMessage]:
    """`process_message` as an iterator: the answer while it is written, and finally the result.

    The folded deltas equal the content, whichever process runs the turn. Closing the iterator early ends the attempt;
    the message is kept, and the same `request_id` continues it. Raises what `process_message` raises.
    """
    told: asyncio.Queue[Delta | None] = asyncio.Queue()
    message = NewMessage(
        *(session_key, channel_name, content, user_context or "", model_override, request_id, images), told.put_nowait
    )
    call = asyncio.create_task(ctx.agent().run(ctx, message))
    call.add_done_callback(lambda _: told.put_nowait(None))
    text = ""
    try:
        while (delta := await told.get()) is not None:
            text = text[: delta.offset] + delta.text
            yield delta
        answer = await call
        if text != answer.content:
            yield Delta(0, answer.content)
        yield answer
    finally:
        await cancel_tasks(call)


async def compact_session_if_needed(ctx: MessageContext, session_key: str) -> CompactedSession:
    """Replace the oldest 20 entries of a session that has 40 by a summary and a few facts, and say so, or why not.

    `process_message` starts this after each turn, and does not wait for it. A failure is logged, changes nothing, and
    the compaction is tried again after later turns. Raises `Unavailable`.
    """
    return await ctx.memory().compact(session_key)

"""The workers' engine for the calls of a program: the context of a call overrides the installation's prompt and models.

`hosting.py` makes it for the leg, `agent.py` registers the calls. A turn whose call was made in another process is run
as a worker would run it. Next: `agents/model/engine.py`.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog
from msgspec import Struct

from switchboard.agents.model.engine import ModelEngine
from switchboard.domain.errors import ConfigurationError, InvalidInput, NotFound, SwitchboardError, Unavailable
from switchboard.domain.message import RequestId
from switchboard.ports.engine import Delta, EngineContext, EngineFailure, Journal, Turn, TurnResult
from switchboard.ports.history import Entry, SaidEntry, WantedHistory
from switchboard.store.memory.history import StoredHistory
from switchboard.turns.context import MessageContext, NewMessage

log = structlog.get_logger(__name__)

_T = TypeVar("_T")
_OnDelta = Callable[[Delta], None]


class EngineCall(Struct, frozen=True, eq=False):
    """A call that waits for its answer. Compared by identity.

    `prompt` and `models`: what its context said before the message was stored; None: it failed, and is asked in the
    turn, whose failure this is if it fails again.
    """

    ctx: MessageContext
    message: NewMessage
    prompt: str | None = None
    models: Sequence[str] | None = None


class Calls:
    """The waiting calls of this process, by the message that each has stored."""

    def __init__(self) -> None:
        self._calls: defaultdict[RequestId, list[EngineCall]] = defaultdict(list)

    @contextlib.contextmanager
    def waiting(self, request_id: RequestId, call: EngineCall) -> Iterator[None]:
        """Register a call within this block, while it waits for its answer."""
        self._calls[request_id].append(call)
        try:
            yield
        finally:
            self._calls[request_id].remove(call)
            if not self._calls[request_id]:
                del self._calls[request_id]

    def asked(self) -> list[RequestId]:
        """The messages whose answers are waited for."""
        return list(self._calls)

    def of(self, request_id: RequestId) -> EngineCall | None:
        """The first call that waits for a message; None if it was made elsewhere."""
        return next(iter(self._calls.get(request_id, ())), None)


class SessionEngine(ModelEngine):
    """A `ModelEngine` that asks the context of the call."""

    def __init__(self, context: EngineContext, calls: Calls) -> None:
        super().__init__(context)
        self._known = context.models
        self._calls = calls

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """As in the port."""
        if (call := self._calls.of(turn.request_id)) is not None:
            told = call.message.on_delta
            told = turn.on_delta if told is None else _unless_it_fails(told)
            turn = replace(turn, on_delta=told, user_context=call.message.user_context)
        return await super().run(turn, journal)

    async def prompt_for(self, turn: Turn) -> str:
        """The prompt from the context's agent."""
        if (call := self._calls.of(turn.request_id)) is None:
            return await super().prompt_for(turn)
        return await _of_program(call.ctx.agent().prompt()) if call.prompt is None else call.prompt

    async def models_for(self, turn: Turn) -> Sequence[str]:
        """The models from the context's agent."""
        if (call := self._calls.of(turn.request_id)) is None:
            return await super().models_for(turn)
        if call.models is not None:
            return call.models
        return await _of_program(self._named_models(call.ctx, call.message))

    async def call_of(self, ctx: MessageContext, message: NewMessage) -> EngineCall:
        """A call, before its message is stored. Raises ConfigurationError, NotFound, and InvalidInput for the model."""
        refused = (ConfigurationError, NotFound, *(() if message.model_override is None else (InvalidInput,)))
        models = await _unless_it_breaks(self._named_models(ctx, message), refused)
        prompt = await _unless_it_breaks(ctx.agent().prompt(), (ConfigurationError, NotFound))
        return EngineCall(ctx, message, prompt, models)

    async def _named_models(self, ctx: MessageContext, message: NewMessage) -> Sequence[str]:
        """The models that the context names. Raises ConfigurationError if there are no such models, or none works."""
        names = await ctx.agent().get_model(message.model_override)
        known = () if self._known is None else (*self._known.names, *self._known.runners)
        if not names or not set(names) <= set(known):
            raise ConfigurationError(
                f"the agent of the program names the models {list(names)}; there are: {', '.join(known)}"
            )
        flaws = {name: self._known.flaw(name) for name in names} if self._known is not None else {}
        if all(flaws.values()):
            raise ConfigurationError("; ".join(f"{name}: {flaw}" for name, flaw in flaws.items()))
        return names


class SessionHistory(Struct, frozen=True):
    """A `History` that asks the memory of the call's context."""

    calls: Calls
    stored: StoredHistory

    async def load(self, turn: Turn) -> Sequence[Entry]:
        """As in the port."""
        if (call := self.calls.of(turn.request_id)) is None:
            return await self.stored.load(turn)
        message = call.message
        return await _of_program(call.ctx.memory().get_history(message.session_key, channel_name=message.channel_name))

    async def search(self, turn: Turn, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """As in the port: a program is not asked, so this finds what our own memory has."""
        return await self.stored.search(turn, wanted)


def _unless_it_fails(on_delta: _OnDelta) -> _OnDelta:
    """Call the program's callback until it first raises, which is not a failure of the turn or of its model."""
    failed = False

    def tell(delta: Delta) -> None:
        nonlocal failed
        if failed:
            return
        try:
            on_delta(delta)
        except Exception:
            failed = True
            log.exception("on_delta of the program failed; it is not called again in this turn")

    return tell


async def _unless_it_breaks(answer: Awaitable[_T], refused: tuple[type[SwitchboardError], ...]) -> _T | None:
    """What the context says before a message is stored; None if it fails, except as `refused`."""
    try:
        return await answer
    except refused:
        raise
    except Exception as error:
        log.warning("the context of the program failed; it is asked again in the turn", error=repr(error))
        return None


async def _of_program(answer: Awaitable[_T]) -> _T:
    """A result from the context. Its errors fail the turn, like errors of an engine."""
    try:
        return await answer
    except (EngineFailure, Unavailable):
        raise
    except SwitchboardError as error:
        raise EngineFailure(error.message, error_class="validation", retryable=False) from error
    except Exception as error:
        raise EngineFailure(f"the context of the program failed: {error!r}") from error

"""Engine `mcp`: a remote butler answers, through the tool `route.execute` of its MCP server.

`journey/turn.py` calls `McpEngine.run`; the delivery leaves as the arguments of the tool (`route.v1`), its result
(`route_response.v1`) comes back. Next: `mcp_session.py`, which speaks MCP and is imported when the first call is made.

Options of the member: `url`, `token_env` or `token_file`, `tool`, `timeout` (seconds, 30), `allow_private`,
`max_response` (bytes), `effect`, and for the registry `beats` and `announces_endpoint`. Each attempt shows the same
idempotency key, so a call whose end nobody saw is made again; of an `effectful` butler only one that surely did not get
as far as the tool.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, Protocol
from uuid import UUID

import msgspec
from pydantic import Field, PositiveInt

from switchboard.agents.delivery import EngineOptions, NoEffect, read_options, refusal, run_step, text_result
from switchboard.agents.signed_post import check_url, read_secret
from switchboard.core.remote import read_response
from switchboard.domain.errors import ConfigurationError, InvalidInput, Unavailable
from switchboard.domain.remote import (
    Route,
    RouteContext,
    RouteError,
    RouteInput,
    RouteResponse,
    RouteResult,
    RouteSender,
    RouteTarget,
    SourceMetadata,
    Subrequest,
)
from switchboard.domain.routing import Member, SystemId
from switchboard.journey.turn import Engine, EngineFailure, ErrorClass, NoReply, Turn, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.store import presence
from switchboard.store.database import Database, storable_text

TOOL: Final = "route.execute"
_SESSION: Final = "switchboard.agents.mcp_session"
_TIMEOUT_S: Final = 30.0
_SHOWN: Final = 500


class McpOptions(EngineOptions):
    """The options of a member with this engine."""

    url: str | None = None
    token_env: str | None = None
    token_file: Path | None = None
    tool: Annotated[str, Field(min_length=1, max_length=200)] = TOOL
    allow_private: bool = False
    max_response: PositiveInt = 1_048_576
    beats: bool | None = None
    """True: he says that he lives, so silence counts from the start; False: silence never counts."""
    announces_endpoint: bool = False
    """Whether he may say himself where he is."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Where to call which tool; `timeout` in seconds is for all of it, `max_response` in bytes for each answer."""

    url: str
    tool: str = TOOL
    token: bytes | None = field(default=None, repr=False)
    timeout: float = _TIMEOUT_S
    allow_private: bool = False
    max_response: int = 1_048_576


@dataclass(frozen=True, slots=True)
class Called:
    """What the tool gave. `failed`: it is marked as an error."""

    structured: object
    texts: tuple[str, ...]
    failed: bool


class CallFailed(Exception):
    """The tool gave nothing. `reached` False: surely it was not even called."""

    def __init__(
        self,
        message: str,
        error_class: ErrorClass = "target_unavailable",
        *,
        retryable: bool = True,
        reached: bool = True,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retryable = retryable
        self.reached = reached


class Register(Protocol):
    """What the engine asks and tells of remote butlers."""

    async def endpoint_of(self, member: Member) -> str | None:
        """The URL to call at this moment."""
        ...

    async def seen(self, system_id: SystemId) -> None:
        """He has just answered."""
        ...


class StoredRegister:
    """The register in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def endpoint_of(self, member: Member) -> str | None:
        """The URL to call at this moment. Raises Unavailable."""
        return await presence.endpoint_of(self._database, member)

    async def seen(self, system_id: SystemId) -> None:
        """He has just answered; not worth losing the answer for."""
        with contextlib.suppress(Unavailable):
            await presence.seen(self._database, system_id)


def engine(database: Database) -> Engine:
    """The entry point `mcp` of `switchboard.engines`."""
    return McpEngine(StoredRegister(database))


class McpEngine:
    """Calls the tool with `route.v1` and reads `route_response.v1`."""

    def __init__(self, register: Register) -> None:
        self._register = register

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option, a missing token included."""
        options = read_options(McpOptions, member)
        if options.url is None and not options.announces_endpoint:
            raise _wrong(f"the options of {member.system_id} are wrong: url is needed, or announces_endpoint")
        _checked(options.url)
        _token(options)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; a wrong option or a missing token is not retryable."""
        options = read_options(McpOptions, turn.member)

        async def act(key: UUID) -> TurnResult:
            to = await self._remote(turn.member, options)
            response = _response(await _call(to, route_request(turn, key, to.tool)), turn)
            await self._register.seen(turn.member.system_id)
            return _result(response)

        return await run_step(turn, journal, "mcp", act, options.effect)

    async def _remote(self, member: Member, options: McpOptions) -> Remote:
        url = await self._register.endpoint_of(member)
        if url is None:
            raise NoEffect(f"{member.system_id} has not yet said where it is", error_class="target_unavailable")
        _checked(url)
        limits = options.timeout or _TIMEOUT_S, options.allow_private, options.max_response
        return Remote(url, options.tool, _token(options), *limits)


def _wrong(message: str) -> EngineFailure:
    return EngineFailure(message, error_class="validation", retryable=False)


def _checked(url: str | None) -> None:
    try:
        if url is not None:
            check_url(url)
    except ConfigurationError as error:
        raise _wrong(error.message) from error


def _token(options: McpOptions) -> bytes | None:
    if options.token_env is None and options.token_file is None:
        return None
    try:
        return read_secret(options.token_env, options.token_file)
    except ConfigurationError as error:
        raise _wrong(error.message.replace("secret_", "token_").replace("secret", "token")) from error


def route_request(turn: Turn, idempotency_key: UUID, tool: str) -> Route:
    """`route.v1`; of a message that a model split, `input.prompt` is the part for this butler."""
    work, envelope = turn.work, turn.work.envelope
    source, event, sender = envelope.source, envelope.event, envelope.sender
    return Route(
        kind="delivery" if work.dead_letter is None else "notice",
        idempotency_key=idempotency_key,
        attempt=turn.attempt,
        request_context=RouteContext(
            request_id=work.request_id,
            received_at=work.received_at,
            conversation=work.conversation,
            source_channel=source.channel,
            source_endpoint_identity=source.endpoint_identity,
            source_sender_identity=sender.identity,
            source_thread_identity=event.external_thread_id,
        ),
        input=RouteInput(
            prompt=envelope.payload.normalized_text,
            context=None if work.dead_letter is None else {"dead_letter": work.dead_letter},
            attachments=msgspec.to_builtins(envelope.payload.attachments),
        ),
        sender=RouteSender(
            identity=sender.identity,
            display_name=sender.display_name,
            chat_type=sender.chat_type,
            participants=sender.participants,
        ),
        target=RouteTarget(butler=turn.member.name, system_id=work.system_id, team_id=work.team_id, tool=tool),
        source_metadata=SourceMetadata(
            channel=source.channel,
            provider=source.provider,
            identity=source.endpoint_identity,
            external_event_id=event.external_event_id,
            observed_at=event.observed_at,
            policy_tier=envelope.control.policy_tier,
        ),
        subrequest=Subrequest(segment=work.segment) if work.segment else None,
        trace_context=envelope.control.trace_context,
    )


async def _call(to: Remote, route: Route) -> Called:
    session: Any = await asyncio.to_thread(import_module, _SESSION)
    try:
        called: Called = await session.call_tool(to, route.model_dump(mode="json", exclude_none=True))
    except CallFailed as error:
        message = storable_text(str(error))
        if not error.retryable:
            raise EngineFailure(message, error_class=error.error_class, retryable=False) from error
        failure = EngineFailure if error.reached else NoEffect
        raise failure(message, error_class=error.error_class) from error
    return called


def _response(called: Called, turn: Turn) -> RouteResponse:
    try:
        response = read_response(called.structured, called.texts)
    except InvalidInput as error:
        if called.failed:
            said = storable_text(" ".join(called.texts))[:_SHOWN]
            raise EngineFailure(f"the tool failed: {said}") from error
        raise EngineFailure(storable_text(error.message), retryable=False) from error
    answered = response.request_context
    if answered is not None and answered.request_id != turn.work.request_id:
        raise EngineFailure(f"the answer is to another request, {answered.request_id}", retryable=False)
    return response


def _result(response: RouteResponse) -> TurnResult:
    """Exactly one of the two is there."""
    if response.error is not None:
        raise _failure(response.error)
    result = response.result or RouteResult(no_reply=True)
    if result.refuse is not None:
        return refusal(result.refuse)
    return text_result(result.reply) if result.reply is not None else NoReply(storable_text(result.reason))


def _failure(error: RouteError) -> EngineFailure:
    """Of what can be tried again at all, `overload` and `target_unavailable` say that nothing was done."""
    message = f"{error.error_class}: {storable_text(error.message)}"
    untouched = error.retryable and error.error_class in {"overload", "target_unavailable"}
    failure = NoEffect if untouched else EngineFailure
    return failure(message, error_class=error.error_class, retryable=error.retryable)

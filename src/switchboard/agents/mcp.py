"""Engine `mcp`: a remote butler answers, through the tool `route.execute` of its MCP server.

`journey/turn.py` calls `McpEngine.run`; the delivery is sent as the arguments of the tool (`route.v1`), whose result
is `route_response.v1`. Next: `mcp_session.py`, which speaks MCP and is imported when the first call is made.

Options of the member: `url`, `token_env` or `token_file`, `tool`, `timeout` (seconds, 30), `allow_private`,
`max_response` (bytes), `effect`, and for remote agents `beats` and `announces_endpoint`. Each attempt sends the same
idempotency key, so a call with an unknown outcome is repeated; for an `effectful` butler only if the call certainly
did not reach the tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Struct
from pydantic import Field, PositiveInt

from switchboard.agents.delivery import (
    EngineOptions,
    SaidFile,
    read_options,
    refusal,
    run_step,
    text_result,
    told_apart,
)
from switchboard.agents.files import link_files, upload_url
from switchboard.core.remote_agents import (
    RouteContext,
    RouteDocument,
    RouteError,
    RouteFile,
    RouteInput,
    RouteResponse,
    RouteResult,
    RouteSender,
    RouteTarget,
    SourceMetadata,
    Subrequest,
    read_response,
)
from switchboard.core.text.storable import storable_text
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Member
from switchboard.ports.engine import (
    Engine,
    EngineContext,
    EngineFailure,
    Files,
    Journal,
    NoEffect,
    NoReply,
    RemoteAgents,
    Turn,
    TurnResult,
)
from switchboard.transport.mcp_call import Called, CallFailed, Remote
from switchboard.transport.signed_post import check_url, read_secret

TOOL: Final = "route.execute"
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
    """True: it sends heartbeats, so silence counts from the start; False: silence never counts."""
    announces_endpoint: bool = False
    """Whether it may announce its own URL."""


def engine(context: EngineContext) -> Engine:
    """The entry point `mcp` of `switchboard.engines`."""
    return McpEngine(context.remote_agents, context.files)


class McpEngine:
    """Calls the tool with `route.v1` and reads `route_response.v1`."""

    def __init__(self, remote_agents: RemoteAgents, files: Files | None = None) -> None:
        self._remote_agents = remote_agents
        self._files = files

    def check(self, member: Member) -> None:
        """Raise `EngineFailure` that names each wrong option, including a missing token."""
        options = read_options(McpOptions, member)
        if options.url is None and not options.announces_endpoint:
            raise _wrong_option(f"the options of {member.system_id} are wrong: url is needed, or announces_endpoint")
        _check_place(options.url)
        _read_token(options)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; a wrong option or a missing token is not retryable."""
        options = read_options(McpOptions, turn.member)

        async def act(key: UUID) -> TurnResult:
            to = await self._remote_of(turn.member, options)
            carried = Carried(await link_files(self._files, turn), await upload_url(self._files, turn))
            route = route_request(turn, key, to.tool, carried)
            response = _response_of(await _call_route(to, route), turn)
            await self._remote_agents.seen(turn.member.system_id)
            return _result_of(response)

        return await run_step(turn, journal, "mcp", act, options.effect)

    async def _remote_of(self, member: Member, options: McpOptions) -> Remote:
        url = await self._remote_agents.endpoint_of(member)
        if url is None:
            raise NoEffect(f"{member.system_id} has not yet said where it is", error_class="target_unavailable")
        _check_place(url)
        limits = options.timeout or _TIMEOUT_S, options.allow_private, options.max_response
        return Remote(url, options.tool, _read_token(options), *limits)


def _wrong_option(message: str) -> EngineFailure:
    return EngineFailure(message, error_class="validation", retryable=False)


def _check_place(url: str | None) -> None:
    try:
        if url is not None:
            check_url(url)
    except ConfigurationError as error:
        raise _wrong_option(error.message) from error


def _read_token(options: McpOptions) -> bytes | None:
    if options.token_env is None and options.token_file is None:
        return None
    try:
        return read_secret(options.token_env, options.token_file)
    except ConfigurationError as error:
        raise _wrong_option(error.message.replace("secret_", "token_").replace("secret", "token")) from error


class Carried(Struct, frozen=True):
    """The files of the message, as links, and where to send those of the answer."""

    files: Sequence[JsonMapping] = ()
    upload_url: str = ""


def route_request(turn: Turn, idempotency_key: UUID, tool: str, carried: Carried) -> RouteDocument:
    """`route.v1`; if a model split the message, `input.prompt` is the part for this butler."""
    envelope = turn.envelope
    source, event, sender = envelope.source, envelope.event, envelope.sender
    return RouteDocument(
        kind="delivery" if turn.dead_letter is None else "notice",
        idempotency_key=idempotency_key,
        attempt=turn.attempt,
        request_context=RouteContext(
            request_id=turn.request_id,
            received_at=turn.received_at,
            conversation=turn.conversation,
            source_channel=source.channel,
            source_endpoint_identity=source.endpoint_identity,
            source_sender_identity=sender.identity,
            source_thread_identity=event.external_thread_id,
        ),
        input=RouteInput(
            prompt=envelope.payload.normalized_text,
            passages=msgspec.to_builtins(told_apart(envelope)) or None,
            context=None if turn.dead_letter is None else {"dead_letter": turn.dead_letter},
            attachments=msgspec.to_builtins(envelope.payload.attachments),
            files=tuple(RouteFile(**one) for one in carried.files) or None,
            upload_url=carried.upload_url or None,
        ),
        sender=RouteSender(
            identity=sender.identity,
            display_name=sender.display_name,
            chat_type=sender.chat_type,
            participants=sender.participants,
        ),
        target=RouteTarget(butler=turn.member.name, system_id=turn.member.system_id, team_id=turn.team_id, tool=tool),
        source_metadata=SourceMetadata(
            channel=source.channel,
            provider=source.provider,
            identity=source.endpoint_identity,
            external_event_id=event.external_event_id,
            observed_at=event.observed_at,
            policy_tier=envelope.control.policy_tier,
        ),
        subrequest=Subrequest(segment=turn.segment) if turn.segment else None,
        trace_context=envelope.control.trace_context,
    )


async def _call_route(to: Remote, route: RouteDocument) -> Called:
    call_tool = await asyncio.to_thread(_import_sdk)
    try:
        return await call_tool(to, route.model_dump(mode="json", exclude_none=True))
    except CallFailed as error:
        message = storable_text(str(error))
        if not error.retryable:
            raise EngineFailure(message, error_class=error.error_class, retryable=False) from error
        failure = EngineFailure if error.reached else NoEffect
        raise failure(message, error_class=error.error_class) from error


def _import_sdk() -> Callable[[Remote, JsonObject], Awaitable[Called]]:
    """The SDK takes most of a second to import, so a thread does it at the first call."""
    from switchboard.transport.mcp_session import call_tool

    return call_tool


def _response_of(called: Called, turn: Turn) -> RouteResponse:
    try:
        response = read_response(called.structured, called.texts)
    except InvalidInput as error:
        if called.failed:
            said = storable_text(" ".join(called.texts))[:_SHOWN]
            raise EngineFailure(f"the tool failed: {said}") from error
        raise EngineFailure(storable_text(error.message), retryable=False) from error
    answered = response.request_context
    if answered is not None and answered.request_id != turn.request_id:
        raise EngineFailure(f"the answer is to another request, {answered.request_id}", retryable=False)
    return response


def _result_of(response: RouteResponse) -> TurnResult:
    """The result of the turn. Raises the failure that the response reports."""
    if response.error is not None:
        raise _failure_of(response.error)
    result = response.result or RouteResult(no_reply=True)
    if result.refuse is not None:
        return refusal(result.refuse)
    if result.reply is None:
        return NoReply(storable_text(result.reason))
    return text_result(result.reply, [SaidFile(one.blob, one.filename).attachment for one in result.files])


def _failure_of(error: RouteError) -> EngineFailure:
    """Among retryable errors, `overload` and `target_unavailable` say that nothing was done."""
    message = f"{error.error_class}: {storable_text(error.message)}"
    untouched = error.retryable and error.error_class in {"overload", "target_unavailable"}
    failure = NoEffect if untouched else EngineFailure
    return failure(message, error_class=error.error_class, retryable=error.retryable)

"""One call of one tool over streamable HTTP, with the official SDK under our own rules for the network.

`agents/mcp.py` imports it late and calls `call_tool`, which returns the tool's result or raises `CallFailed`. Next:
`signed_post.py`.

The SDK says little about what went wrong on the wire, so our own transport sits below it: it connects only to checked
addresses, follows no redirects, cuts off answers that are too long, and records what happened. Each call is a session
of its own; the server may be stateful or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx2
import msgspec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    TextContent,
)

from switchboard import __version__
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import FailureClass
from switchboard.transport.mcp_call import Called, CallFailed, Remote
from switchboard.transport.signed_post import RETRYABLE, CheckedTransport, PostError, SendTrace, limits, per_loop

_GOODBYE_S: Final = 2.0
"""Limit for ending a session on a stateful server, which may hang as well."""
_CLASSES: Final[Mapping[int, FailureClass]] = {408: "timeout", 429: "overload", 503: "overload", 504: "timeout"}
_SHOWN: Final = 300
_SHOWN_TOOLS: Final = 10


async def call_tool(to: Remote, arguments: JsonObject) -> Called:
    """Call it once. Raises `CallFailed`."""
    wire = _Wire(to)
    host = httpx2.URL(to.url).host
    try:
        async with asyncio.timeout(to.timeout), _make_client(to, wire) as client:
            return await _call_tool(client, wire, to.tool, arguments)
    except TimeoutError as error:
        raise _too_slow(host, wire) from error
    except Exception as error:  # the SDK raises many types, such as exception groups and validation errors
        raise _failure_of(host, wire, _innermost_of(error)) from error


def _make_client(to: Remote, wire: _Wire) -> Client:
    headers = {"User-Agent": "switchboard", "Accept-Encoding": "identity", "Connection": "close"}
    if to.token is not None:
        headers["Authorization"] = f"Bearer {to.token.decode()}"
    http = httpx2.AsyncClient(transport=wire, headers=headers, timeout=limits(to.timeout), trust_env=False)
    transport = streamable_http_client(to.url, http_client=http, max_sse_event_size=to.max_response)
    return Client(transport, cache=None, client_info=Implementation(name="switchboard", version=__version__))


async def _call_tool(client: Client, wire: _Wire, tool: str, arguments: JsonObject) -> Called:
    # Not `client.call_tool`: after the call it lists all tools, to validate the answer by their schemas.
    request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
    wire.calling = True
    try:
        result = await client.session.send_request(request, CallToolResult)
    except MCPError:
        if wire.status < 300 or wire.status in {400, 404}:
            await _look_for(client, wire, tool)
        raise
    texts = tuple(part.text for part in result.content if isinstance(part, TextContent))
    if result.is_error and result.structured_content is None:
        await _look_for(client, wire, tool)
    return Called(result.structured_content, texts, result.is_error)


async def _look_for(client: Client, wire: _Wire, tool: str) -> None:
    """Raises `CallFailed` if the server has no such tool; passes if the server does not list its tools."""
    before = wire.status, wire.problem
    try:
        names = [one.name for one in (await client.list_tools()).tools]
    except MCPError:
        wire.status, wire.problem = before
        return
    if tool not in names:
        offered = ", ".join(names[:_SHOWN_TOOLS])[:_SHOWN] or "none"
        raise CallFailed(f"there is no tool {tool!r}; there are: {offered}", retryable=False, reached=False)
    wire.status, wire.problem = before


def _failure_of(host: str, wire: _Wire, error: BaseException) -> CallFailed:
    """What happened on the wire says more than the SDK's own error."""
    if isinstance(error, CallFailed):
        return error
    if wire.too_long:
        return CallFailed(f"the answer is longer than {wire.to.max_response} bytes", "internal", retryable=False)
    if wire.problem is not None:
        return _broken_answer(host, wire, wire.problem)
    if wire.status >= 300:
        return _refused_status(host, wire, str(error)[:_SHOWN])
    if isinstance(error, MCPError):
        return _protocol_failure(host, wire, error)
    message = f"{host} does not answer as an MCP server does: {str(error)[:_SHOWN]}"
    return CallFailed(message, "internal", retryable=False, reached=wire.reached)


def _protocol_failure(host: str, wire: _Wire, error: MCPError) -> CallFailed:
    """A protocol error: the server's, or one that the SDK made of something unreadable."""
    message = f"{host}: {str(error)[:_SHOWN]}"
    code = error.error.code
    if code == CONNECTION_CLOSED:
        return CallFailed(f"{host} ended the answer before it was complete", reached=wire.reached)
    if code in {PARSE_ERROR, INVALID_REQUEST}:
        message = f"{host} does not answer as an MCP server does: {str(error)[:_SHOWN]}"
        return CallFailed(message, "internal", retryable=False, reached=wire.reached)
    if code in {INVALID_PARAMS, METHOD_NOT_FOUND}:
        return CallFailed(message, "validation", retryable=False, reached=wire.reached)
    return CallFailed(message, "internal", reached=wire.reached)


def _innermost_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _broken_answer(host: str, wire: _Wire, problem: Exception) -> CallFailed:
    if isinstance(problem, PostError):
        retryable = problem.kind != "forbidden"
        return CallFailed(str(problem), retryable=retryable, reached=wire.reached)
    if isinstance(problem, httpx2.ReadTimeout):  # it may expire before the limit of the whole call
        return _too_slow(host, wire)
    error_class: FailureClass = "timeout" if isinstance(problem, httpx2.TimeoutException) else "target_unavailable"
    message = f"{host}: {type(problem).__name__} {problem}".strip()
    return CallFailed(message, error_class, reached=wire.reached)


def _too_slow(host: str, wire: _Wire) -> CallFailed:
    return CallFailed(f"{host} took longer than {wire.to.timeout:g} s", "timeout", reached=wire.reached)


def _refused_status(host: str, wire: _Wire, said: str) -> CallFailed:
    """A status other than success. 404 in an open session means that the server was restarted meanwhile."""
    status = wire.status
    if status < 400:
        message = f"{host} answered {status}, a redirect, which is not followed"
        return CallFailed(message, retryable=False, reached=False)
    retryable = status in RETRYABLE or status >= 500 or (status == 404 and wire.calling)
    hint = "it does not take our token" if status in {401, 403} else said
    message = f"{host} answered {status}: {hint}"
    return CallFailed(message, _CLASSES.get(status, "target_unavailable"), retryable=retryable, reached=wire.reached)


class _TooLongError(httpx2.StreamError):
    """More bytes than are accepted."""


class _Sent(msgspec.Struct, frozen=True):
    method: str = ""


class _Wire(httpx2.AsyncBaseTransport):
    """The wire of one call. `status`: that of the last response; `calling`: the tool is being called."""

    def __init__(self, to: Remote) -> None:
        self.to = to
        self.calling = False
        self._sending = SendTrace()
        """Whether sending the tool call itself has begun; other requests of the SDK do not count."""
        self.status = 0
        self.problem: Exception | None = None
        self.too_long = False

    @property
    def reached(self) -> bool:
        """Whether the call of the tool may have arrived."""
        return self._sending.begun

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx2.Response(405, request=request)  # we do not listen for unsolicited messages of the server
        if request.method == "DELETE":
            return await self._answer_goodbye(request)
        self.status, self.problem = 0, None
        request.extensions["allow_private"] = self.to.allow_private
        if _is_call(request):
            request.extensions["trace"] = self._sending
        try:
            response = await _network().handle_async_request(request)
        except (PostError, httpx2.HTTPError) as error:
            self.problem = error
            raise
        self.status = response.status_code
        return httpx2.Response(
            response.status_code,
            headers=_harmless_headers(response.headers),
            stream=_Limited(self, response),
            request=request,
        )

    async def _answer_goodbye(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions["allow_private"] = self.to.allow_private
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), _GOODBYE_S)
        try:
            async with asyncio.timeout(_GOODBYE_S):
                response = await _network().handle_async_request(request)
                await response.aclose()
        except (PostError, httpx2.HTTPError, TimeoutError):
            pass  # the session expires by itself
        return httpx2.Response(204, request=request)


def _is_call(request: httpx2.Request) -> bool:
    return msgspec.json.decode(request.content or b"{}", type=_Sent).method == "tools/call"


def _harmless_headers(headers: httpx2.Headers) -> list[tuple[str, str]]:
    """The headers without redirects and without compression, which could hide an endless answer."""
    hidden = {"location", "content-encoding", "content-length"}
    return [(name, value) for name, value in headers.multi_items() if name.lower() not in hidden]


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer, up to the limit."""

    def __init__(self, wire: _Wire, response: httpx2.Response) -> None:
        self._wire = wire
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        got = 0
        try:
            async for chunk in self._response.aiter_raw():
                got += len(chunk)
                if got > self._wire.to.max_response:
                    self._wire.too_long = True
                    raise _TooLongError("too long")
                yield chunk
        except httpx2.HTTPError as error:
            self._wire.problem = error
            raise

    async def aclose(self) -> None:
        await self._response.aclose()


# As in `signed_post.py`: loading certificates costs 25 ms. No connection is kept, so nothing needs closing.
_network = per_loop(CheckedTransport)

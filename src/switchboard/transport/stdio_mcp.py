"""A session with an MCP server that is a program, with the official SDK over a transport of our own.

`tools/mcp_server.py` imports it late, starts one `StdioServer` for each server and calls its tools. In: a program and
arguments; out: the server's tools and results, as text, or `ServerFailure` with a sentence. Next: `kept.py`.

The SDK's own transport keeps a line of any length, and copies all of it for each 64 KiB that arrive; so ours reads
lines up to a limit, passes on only answers and requests, and gives up a server that sends too much else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, Self
from uuid import UUID

import anyio
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    Implementation,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    PingRequest,
    ResourceLink,
    TextContent,
    TextResourceContents,
    jsonrpc_message_adapter,
)

from switchboard import __version__
from switchboard.core.mcp_tools import shallow_json
from switchboard.core.text.outside import outside_json
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.mcp import ListedTool
from switchboard.tasks import wait_at_most
from switchboard.transport.kept import KeptProgram, LongProgram, start
from switchboard.transport.mcp_call import McpToolResult, ServerFailure

MOST_LINE: Final = 8_388_608
"""Maximum bytes of one message."""
MOST_UNASKED: Final = 16_777_216
"""Maximum bytes of messages that answer nothing, and of other output, since the last answer."""
LEAST_UNASKED: Final = 512
"""Bytes that each of these counts for, however short, since reading it takes time."""
MOST_REQUESTS: Final = 100
"""Maximum of requests by the server since its last answer; each is refused as unsupported."""
MOST_TOOLS: Final = 200
KEY: Final = "switchboard/idempotency_key"
"""Key in `_meta` of a call; its value is the same whenever the same call is repeated."""
_GRACE_S: Final = 2.0
"""Seconds for a server to end when its input is closed."""
_END_S: Final = 0.5
"""Seconds for a server whose output has ended to end by itself."""
_PING_S: Final = 5.0
_SHOWN: Final = 500
_DEEPEST: Final = 100
"""Arrays and objects inside each other that are read of a message; about 200 are too many for the parser."""
_US: Final = Implementation(name="switchboard", version=__version__)


def _listed_tool(tool: object) -> ListedTool:
    """A tool; what is not of its type is empty, and then nobody is offered it."""
    said = tool if isinstance(tool, dict) else {}
    name, description, schema = said.get("name"), said.get("description"), said.get("inputSchema")
    return ListedTool(
        name if isinstance(name, str) else "",
        description if isinstance(description, str) else "",
        schema if isinstance(schema, dict) else {},
    )


class StdioServer:
    """A running server. Made by `open_server`; `over` is set when it has ended or is abandoned."""

    def __init__(self, client: ClientSession, lines: _Lines) -> None:
        self._client = client
        self._lines = lines

    @property
    def over(self) -> asyncio.Event:
        """Set when nothing more comes from it."""
        return self._lines.over

    @property
    def answers(self) -> int:
        """The number of its answers so far."""
        return self._lines.answers

    @property
    def changed(self) -> bool:
        """Whether the server has announced a change of its tools since they were listed."""
        return self._lines.changed

    async def tools(self) -> list[ListedTool]:
        """The tools that it offers, at most 200. Raises `ServerFailure`."""
        self._lines.changed = False
        found: list[ListedTool] = []
        cursor: str | None = None
        with _turning_failures(self._lines):
            while len(found) < MOST_TOOLS:
                request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
                page = await self._client.send_request(request, ListToolsResult)
                listed = self._lines.take_listed()
                found += map(_listed_tool, listed)
                cursor = page.next_cursor
                if cursor is None or not listed:
                    break
        return found[:MOST_TOOLS]

    async def call(self, tool: str, arguments: JsonMapping, key: UUID) -> McpToolResult:
        """Call a tool once. Raises `ServerFailure`. If cancelled, the server is notified."""
        params = CallToolRequestParams.model_validate(
            {"name": tool, "arguments": dict(arguments), "_meta": {KEY: f"{key}"}}
        )
        with _turning_failures(self._lines):
            # Not `call_tool`: that lists all tools to validate the answer by their schemas.
            result = await self._client.send_request(CallToolRequest(params=params), CallToolResult)
        return McpToolResult(said_in(result), not result.is_error)

    async def alive(self, seconds: float) -> bool:
        """Whether it answers a ping within `seconds`, at most five."""
        try:
            async with asyncio.timeout(min(seconds, _PING_S)):
                with _turning_failures(self._lines):
                    await self._client.send_request(PingRequest(), EmptyResult)
        except (TimeoutError, ServerFailure):
            return False
        return True

    def give_up(self, why: str) -> None:
        """Abandon the server: it gets no more requests, and is ended."""
        self._lines.give_up(why)


@asynccontextmanager
async def open_server(program: LongProgram, seconds: float) -> AsyncIterator[StdioServer]:
    """Start a server and open a session within `seconds`; at the end nothing of it runs. Raises `ServerFailure`.

    Enter and leave it in the same task.
    """
    try:
        kept = start(program)
    except (OSError, ValueError) as error:
        raise ServerFailure(f"it cannot be started: {error}", reached=False) from error
    lines = _Lines(kept)
    try:
        async with AsyncExitStack() as stack:
            client = await ClientSession(lines, lines, client_info=_US).__aenter__()
            # Not by `async with`: errors raised here would leave it as an exception group.
            stack.push_async_callback(client.__aexit__, None, None, None)
            await _greet_server(client, kept, lines, seconds)
            yield StdioServer(client, lines)
    finally:
        await kept.end(0.0 if lines.why else _GRACE_S)


async def _greet_server(client: ClientSession, kept: KeptProgram, lines: _Lines, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            with _turning_failures(lines):
                await client.initialize()
    except TimeoutError as error:
        lines.give_up(f"it did not answer as an MCP server in {seconds:g} s")
        raise ServerFailure(lines.why, reached=False, errors=kept.errors) from error
    except ServerFailure as failure:
        lines.give_up(f"{failure}")
        # A closed input or output may be noticed before the end of the program, whose status says more.
        await wait_at_most(_END_S, kept.exited)
        why = f"the server has ended, status {kept.status}" if kept.exited.is_set() else f"{failure}"
        await kept.end(0.0)
        raise ServerFailure(why, reached=False, errors=kept.errors) from failure


@contextmanager
def _turning_failures(lines: _Lines) -> Iterator[None]:
    """Turn any failure of the SDK into a `ServerFailure`."""
    try:
        yield
    except MCPError as error:
        if error.error.code == CONNECTION_CLOSED:
            raise ServerFailure(lines.why) from error
        what = outside_json(f"{error.error.message}"[:_SHOWN])
        raise ServerFailure(f"the server answers with an error: {what}") from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise ServerFailure(lines.why or "the server reads no more") from error
    except (ValueError, RuntimeError) as error:
        # The error quotes the server.
        what = outside_json(f"{error}"[:_SHOWN])
        raise ServerFailure(f"the server does not answer as MCP servers do: {what}") from error


class _Lines:
    """Messages as lines in both directions: it serves as the SDK's two streams.

    `why` says why nothing more is read.
    """

    def __init__(self, program: KeptProgram) -> None:
        self.over = asyncio.Event()
        self.changed = False
        self.answers = 0
        self.why = ""
        self._program = program
        self._buffer = bytearray()
        self._writing = asyncio.Lock()
        self._asked: set[int | str] = set()
        self._listed: list[object] = []
        self._unasked = 0
        self._requests = 0

    def give_up(self, why: str) -> None:
        """Stop reading. The first reason counts."""
        self.why = self.why or why
        self.over.set()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises BrokenResourceError."""
        message = item.message
        match message:
            case JSONRPCRequest():
                self._asked.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": int() | str() as given_up}):
                self._asked.discard(given_up)
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        whole = False
        async with self._writing:
            try:
                if self.over.is_set():
                    raise anyio.BrokenResourceError
                await self._program.write(data)
                whole = True
            except OSError as error:
                raise anyio.BrokenResourceError from error
            finally:
                if not whole:  # anything after half a line would not be a valid message
                    self.give_up("the server reads no more")

    async def receive(self) -> SessionMessage:
        """The next answer or request. Raises EndOfStream."""
        while True:
            if (line := await self._next_line()) is None:
                raise anyio.EndOfStream
            if (message := self._hear_line(line)) is not None:
                return message

    async def _next_line(self) -> bytes | None:
        """The next line, without its end; None if there are no more."""
        looked = 0
        while (end := self._buffer.find(b"\n", looked)) < 0:
            looked = len(self._buffer)
            if looked > MOST_LINE:
                self.give_up(f"the server sent a message of more than {MOST_LINE} bytes")
            if self.over.is_set():
                return None
            if not (piece := await self._program.read()):
                self.give_up("the server has ended")
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return None if self.over.is_set() else line

    def _hear_line(self, line: bytes) -> SessionMessage | None:
        """The message for the SDK in a line; None if there is none."""
        message = _message_in(line)
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id in self._asked:
            self._asked.discard(message.id)
            self._unasked = self._requests = 0
            self.answers += 1
            self._keep_listed(message)
            return SessionMessage(message)
        self._unasked += max(len(line), LEAST_UNASKED)
        if isinstance(message, JSONRPCNotification):
            self.changed = self.changed or message.method == "notifications/tools/list_changed"
        self._requests += isinstance(message, JSONRPCRequest)
        if self._unasked > MOST_UNASKED or self._requests > MOST_REQUESTS:
            self.give_up("the server sends too much that it was not asked for")
        return SessionMessage(message) if isinstance(message, JSONRPCRequest) else None

    def take_listed(self) -> list[object]:
        """The tools of the last list, as they came."""
        listed, self._listed = self._listed, []
        return listed

    def _keep_listed(self, message: JSONRPCResponse | JSONRPCError) -> None:
        """Keep the tools of a list from the SDK, for which one invalid tool makes the whole list invalid."""
        if isinstance(message, JSONRPCResponse) and isinstance(tools := message.result.get("tools"), list):
            self._listed, message.result["tools"] = tools, []

    async def aclose(self) -> None:
        """Does nothing: the code that started the program ends it."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def _message_in(line: bytes) -> JSONRPCMessage | None:
    """The message in a line, whose parts far inside may be left out; None if it is none."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:  # some programs print other text
        pass
    try:  # or it is nested so deeply that nobody reads it, for the sake of one tool among others
        return jsonrpc_message_adapter.validate_json(shallow_json(line, _DEEPEST), by_name=False)
    except ValueError:
        return None


def said_in(result: CallToolResult) -> str:
    """A whole result as text; other content is named with its type and size."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(map(_describe_part, result.content))


def _describe_part(part: ContentBlock) -> str:
    match part:
        case TextContent(text=text):
            return text
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return f"[{part.type}, {kind}, {_size_text(data)}: it cannot be shown]"
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            return f"[the resource {uri}, {kind or 'of no type'}, {_size_text(data)}: it cannot be shown]"
        case EmbeddedResource(resource=TextResourceContents(uri=uri, text=text)):
            return f"[the resource {uri}]\n{text}"
        case ResourceLink(uri=uri, name=name):
            return f"[a link to the resource {uri}, {name}: it cannot be read]"
    return f"[{part.type}: it cannot be shown]"


def _size_text(data: str) -> str:
    """The approximate size of base64 data."""
    return f"{len(data) * 3 // 4} bytes"

"""The building blocks of MCP tools: a specification (a tool, who may call it, what it does), a call, a result.

`tools.py` lists and runs them; `connectors.py`, `rules.py`, `dead_letters.py` and others make them. In: arguments as
JSON; out: bodies validated like those of the HTTP API, so that errors are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult, TextContent, Tool
from msgspec import Struct
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from switchboard.app.access import Action, Principal
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.server.contracts.problems import first_problem

Context = ServerRequestContext[Any, Any]
Arguments = JsonMapping
Run = Callable[["McpCall"], Awaitable[object]]
_Body = TypeVar("_Body", bound=BaseModel)

ENVELOPE: Final = {"type": "object", "description": "ingest.v1; its schema is at /schemas/ingest.v1.json"}


class McpCall(Struct, frozen=True):
    """One call of a tool: who calls, with what, and whether the caller has disconnected.

    `key`: with the same one, a call of a module's tool is made once.
    """

    caller: Principal
    arguments: Arguments
    gone: asyncio.Event
    key: str | None = None


def _anyone(_: Principal) -> bool:
    return True


def _the_same(_: Principal) -> JsonObject | None:
    return None


class McpToolSpec(Struct, frozen=True):
    """A tool, the action that a token's role must permit, and its implementation.

    `shown` decides which roles see it in the list. For others, its implementation refuses the call with a reason, and
    records that. `schema_for` returns the schema for a caller, if it differs between callers.
    """

    tool: Tool
    action: Action
    run: Run
    shown: Callable[[Principal], object] = _anyone
    schema_for: Callable[[Principal], JsonObject | None] = _the_same

    def tool_for(self, caller: Principal) -> Tool:
        """The tool as this caller sees it."""
        schema = self.schema_for(caller)
        return self.tool if schema is None else make_tool(self.tool.name, self.tool.description or "", schema)


def caller_of(context: Context) -> Principal:
    """The caller that the gate has authenticated."""
    return cast(Principal, state_of(context).principal)


def state_of(context: Context) -> Any:
    """The state that the gate and `mcp.py` put into the HTTP request's scope."""
    return cast(Request, context.request).state


def make_tool(name: str, description: str, schema: JsonObject) -> Tool:
    """A tool in its listed form."""
    return Tool(name=name, description=description, input_schema=schema)


def object_of(**properties: Any) -> JsonObject:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def tool_of(
    name: str,
    description: str,
    body: type[_Body],
    action: Action,
    work: Callable[[McpCall, _Body], Awaitable[object]],
    shown: Callable[[Principal], object] = _anyone,
) -> McpToolSpec:
    """A tool whose arguments are a body of the HTTP API."""

    async def run(call: McpCall) -> object:
        return await work(call, read(body, call.arguments))

    return McpToolSpec(make_tool(name, description, _schema_of(body)), action, run, shown)


@cache
def _schema_of(body: type[BaseModel]) -> JsonObject:
    """Cached: building one takes a millisecond, and an interface has thirty tools."""
    return body.model_json_schema()


def only(arguments: Arguments, name: str, kind: type) -> Any:
    """The only argument of a tool, validated later; an undecoded one has been checked before."""
    kinds = (dict, bytes) if kind is dict else kind
    if set(arguments) != {name} or not isinstance(arguments[name], kinds):
        what = "an object" if kind is dict else "a list of objects"
        raise InvalidInput(f"the one argument is {name}: {what}", code="wrong_type", field=name)
    return arguments[name]


def read(body: type[_Body], arguments: Arguments) -> _Body:
    """The arguments as a body of the HTTP API. Raises InvalidInput."""
    try:
        return body.model_validate_json(msgspec.json.encode(arguments))
    except ValidationError as error:
        problems = [dict(problem) for problem in error.errors(include_url=False)]
        raise first_problem(problems, 0, body.model_fields) from None
    except UnicodeEncodeError:
        raise InvalidInput("lone surrogates are not allowed in text") from None


def result_of(value: object, *, is_error: bool = False) -> CallToolResult:
    """A tool's result as text and, unless it is an error, as structure too."""
    data = msgspec.json.encode(value)
    return CallToolResult(
        content=[TextContent(text=data.decode())],
        structured_content=None if is_error else msgspec.json.decode(data),
        is_error=is_error,
    )

"""A `Request` in the format of each provider: chat completions, Responses, Anthropic's messages. Pure.

`openai_api.py` and `anthropic_api.py` send the bodies. Next: `pictures.py` for images, and `answers.py`, which reads
the responses. The same messages give the same bytes, so that a request which continues from an earlier one begins with
it: providers keep what they have read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from switchboard.core.text.lenient import string
from switchboard.core.turns.images import MOST_IMAGE_BYTES
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import ChatMessage, OfferedTool, Request, ToolCall
from switchboard.llm.answers import MALFORMED
from switchboard.llm.call_form import asked_in_form, speaks_form
from switchboard.llm.control_words import without_control_words
from switchboard.llm.json_form import for_grammars, forced_tool, json_form
from switchboard.llm.pictures import Picture, pictures
from switchboard.llm.port import ApiKind
from switchboard.llm.spec import ModelSpec

Body = JsonObject

_SEALED: Final = "reasoning.encrypted_content"
_CACHED: Final = {"cache_control": {"type": "ephemeral"}}
_EARLIER: Final = "(Earlier messages are left out.)"
_MOST_BASE64: Final = 5 * 1024 * 1024
"""Anthropic counts the bytes of an image as they are sent."""
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")


def streamed(kind: ApiKind) -> Body:
    """The fields that request a stream of the same answer."""
    return {"stream": True, **({"stream_options": {"include_usage": True}} if kind == "openai" else {})}


def unsealed(body: Body) -> Body:
    """The same for a model without encrypted reasoning; such models reject a request for it."""
    return {name: value for name, value in body.items() if name != "include"}


# Chat completions ----------------------------------------------------------------------------------------------------


def chat(request: Request, spec: ModelSpec) -> Body:
    """The body for chat completions, with a single system message: templates of small models fail with more."""
    return {
        "model": spec.model,
        "messages": _chat_messages(request, spec),
        "max_completion_tokens": request.max_tokens,
        **_chat_tools(request),
    }


def local_chat(request: Request, spec: ModelSpec) -> Body:
    """The same for a self-hosted server; a forced tool is requested as JSON, without a schema if unsupported.

    With `calls = "schema"`, all calls are. Tools that must not be called are omitted, since not every server obeys
    `tool_choice`.
    """
    body: Body = {"model": spec.model, "max_tokens": request.max_tokens, "temperature": 0}
    if in_form(request, spec):
        formed, form = asked_in_form(replace(request, messages=tuple(in_turn(request.messages))))
        return (
            body | {"messages": _local_messages(formed, spec)} | (_answer_form("answer", form) if spec.schemas else {})
        )
    tool = forced_tool(request)
    if tool is None:
        tools = {} if request.no_calls else _chat_tools(_for_grammars(request))
        return body | {"messages": _local_messages(request, spec), **tools}
    asked, schema = json_form(request, tool)
    if not spec.schemas:
        return body | {"messages": _local_messages(asked, spec)}
    return body | {"messages": _local_messages(asked, spec)} | _answer_form("calls", schema)


def in_form(request: Request, spec: ModelSpec) -> bool:
    """Whether the answer has the form of `call_form.py`."""
    return spec.calls == "schema" and speaks_form(request)


def _answer_form(name: str, schema: JsonObject) -> Body:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}


def _local_messages(request: Request, spec: ModelSpec) -> list[Body]:
    """Any message except the system message may quote anybody."""
    system, rest = (
        _chat_messages(replace(request, messages=()), spec),
        _chat_messages(replace(request, system=""), spec),
    )
    return [*system, *({name: _harmless(value) for name, value in one.items()} for one in rest)]


def _harmless(value: object) -> object:
    if isinstance(value, str):
        return without_control_words(value)
    if isinstance(value, list):
        return [_harmless(inner) for inner in value]
    return {name: _harmless(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _for_grammars(request: Request) -> Request:
    tools = (structs.replace(tool, parameters=for_grammars(tool.parameters)) for tool in request.tools)
    return replace(request, tools=tuple(tools))


def _chat_messages(request: Request, spec: ModelSpec) -> list[Body]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return system + [body for message in in_turn(request.messages) for body in _chat_message(message, spec)]


def _chat_message(message: ChatMessage, spec: ModelSpec) -> Iterator[Body]:
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
    calls = [
        {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": _arguments(call, spec)}}
        for call in message.calls
    ]
    images, text = _parts(message, spec, _chat_image)
    if calls:
        yield {"role": "assistant", "content": text or None, "tool_calls": calls}
    elif images or text:
        said = [*images, *([{"type": "text", "text": text}] if text else ())]
        yield {"role": message.role, "content": said if images else text}


def _chat_image(picture: Picture) -> Body:
    return {"type": "image_url", "image_url": {"url": picture.url}}


def _chat_tools(request: Request) -> Body:
    tools = [
        {
            "type": "function",
            "function": {"name": one.name, "description": one.description, "parameters": dict(one.parameters)},
        }
        for one in request.tools
    ]
    forced = {"type": "function", "function": {"name": request.force}}
    return {"tools": tools, "tool_choice": _choice(request, forced)} if tools else {}


def _choice(request: Request, forced: Body) -> object:
    if request.no_calls:
        return "none"
    return forced if request.force else "auto"


# Responses -----------------------------------------------------------------------------------------------------------


def responses(request: Request, spec: ModelSpec) -> Body:
    """The body for the Responses API; nothing is stored there, so reasoning comes back encrypted."""
    body: Body = {
        "model": spec.model,
        "instructions": request.system or None,
        "input": [item for message in in_turn(request.messages) for item in _response_items(message, spec)],
        "max_output_tokens": request.max_tokens,
        "store": False,
        "include": [_SEALED],
    }
    tools = [_response_tool(one) for one in request.tools]
    choice = _choice(request, {"type": "function", "name": request.force})
    return body | ({"tools": tools, "tool_choice": choice} if tools else {})


def _response_tool(tool: OfferedTool) -> Body:
    told = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "strict": False, **told}


def _response_items(message: ChatMessage, spec: ModelSpec) -> Iterator[Mapping[str, object]]:
    if _is_its_own(message, spec) and not any(map(_is_lost, message.blocks)):
        yield from message.blocks
        return
    for result in message.results:
        yield {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
    images, text = _parts(message, spec, lambda one: {"type": "input_image", "image_url": one.url})
    if images or text:
        said = [*images, *([{"type": "input_text", "text": text}] if text else ())]
        yield {"role": message.role, "content": said if images else text}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _arguments(call, spec)}


def _is_lost(block: Mapping[str, object]) -> bool:
    """Nothing is stored there, so reasoning without encrypted content is lost, and with it what needs it."""
    return block.get("type") == "reasoning" and not block.get("encrypted_content")


# Anthropic's messages ------------------------------------------------------------------------------------------------


def _message_tool(one: OfferedTool) -> Body:
    return {"name": one.name, "description": one.description, "input_schema": dict(one.parameters)}


def messages(request: Request, spec: ModelSpec) -> Body:
    """The body for Anthropic's messages.

    The cached prefixes end with the system prompt (including the tools) and, if more requests may follow, with the last
    message.
    """
    said = [{"role": one.role, "content": _content(one, spec)} for one in in_turn(request.messages)]
    tools = [*map(_message_tool, request.tools or _placeholder_tools(request))]
    if request.tools and not request.force:
        _mark(said[-1]["content"] if said else [])
    if not request.system:
        _mark(tools)
    system = [{"type": "text", "text": request.system, **_CACHED}] if request.system else []
    return {
        "model": spec.model,
        "messages": said,
        "max_tokens": request.max_tokens,
        **({"system": system} if system else {}),
        **({"tools": tools, "tool_choice": _message_choice(request)} if tools else {}),
    }


def _mark(blocks: object) -> None:
    if isinstance(blocks, list) and blocks:
        blocks[-1] = {**blocks[-1], **_CACHED}


def _placeholder_tools(request: Request) -> list[OfferedTool]:
    """Every called tool must be defined; these definitions replace tools that no longer exist."""
    names = dict.fromkeys(call.name for message in request.messages for call in message.calls)
    return [OfferedTool(name, "Not available any more.", {"type": "object"}) for name in names]


def _message_choice(request: Request) -> Body:
    if request.no_calls or not request.tools:
        return {"type": "none"}
    return {"type": "tool", "name": request.force} if request.force else {"type": "auto"}


def _content(message: ChatMessage, spec: ModelSpec) -> list[Mapping[str, object]]:
    if _is_its_own(message, spec):
        return [block for block in message.blocks if block.get("type") != "text" or string(block.get("text")).strip()]
    results: list[Body] = [
        {"type": "tool_result", "tool_use_id": _key(one.call_id), "content": one.text, "is_error": not one.ok}
        for one in message.results
    ]
    calls: list[Body] = [
        {"type": "tool_use", "id": _key(one.id or ""), "name": one.name, "input": _input(one)} for one in message.calls
    ]
    images, text = _parts(message, spec, _message_image)
    return [*results, *images, *([{"type": "text", "text": text}] if text.strip() else ()), *calls]


def _message_image(picture: Picture) -> Body:
    source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return {"type": "image", "source": source}


def _key(call_id: str) -> str:
    """An id in the accepted form; other servers have ids such as `functions.weather:0`."""
    return _ODD.sub("_", call_id)


def _input(call: ToolCall) -> Body:
    return {MALFORMED: call.malformed} if call.malformed else dict(call.arguments)


# All of them ---------------------------------------------------------------------------------------------------------


def in_turn(given: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages with alternating roles, starting with the user, none empty: some providers accept nothing else.

    Consecutive messages of one role become one. Calls stay with the message before their results.
    """
    found: list[ChatMessage] = []
    for message in filter(_says_something, given):
        if found and found[-1].role == message.role:
            found[-1] = _joined(found[-1], message)
        else:
            found.append(message)
    return [ChatMessage("user", _EARLIER), *found] if found and found[0].role == "assistant" else found


def _says_something(message: ChatMessage) -> bool:
    """Whether a message has content: providers reject reasoning without what it led to."""
    return bool(message.text.strip() or message.calls or message.results or message.images)


def _joined(first: ChatMessage, second: ChatMessage) -> ChatMessage:
    return replace(
        second,
        text="\n\n".join(filter(None, (first.text, second.text))),
        calls=first.calls + second.calls,
        results=first.results + second.results,
        images=first.images + second.images,
        blocks=(),
    )


def _is_its_own(message: ChatMessage, spec: ModelSpec) -> bool:
    return bool(message.blocks) and message.origin == spec.origin


def _parts(message: ChatMessage, spec: ModelSpec, show: Callable[[Picture], Body]) -> tuple[list[Body], str]:
    """The images of a message that this model can see, and its text, which mentions the others."""
    most = _MOST_BASE64 * 3 // 4 if spec.kind == "anthropic" else MOST_IMAGE_BYTES
    seen, note = pictures(message.images, vision=spec.vision, most_bytes=most)
    return [show(one) for one in seen], "\n\n".join(filter(None, (message.text, note)))


def _arguments(call: ToolCall, spec: ModelSpec) -> str:
    """Malformed arguments go back unchanged, except to local servers, which parse them and fail if not JSON."""
    if call.malformed and spec.profile != "local":
        return call.malformed
    return json.dumps(_input(call), ensure_ascii=False)

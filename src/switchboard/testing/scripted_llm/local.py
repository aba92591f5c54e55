"""A choosy local server: one slot, a small context, a limited grammar, no usage; it ignores that clients disconnect.

`ScriptedLlm(script, strict="local")` behaves like this. `endpoints.py` calls `check_locally` with every body of
OpenAI's chat, and answers with what `within` leaves of a reply. What is rejected here is rejected by some of llama.cpp,
Ollama, LM Studio and vLLM; what is accepted, all of them accept. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.dialect import BadRequest
from switchboard.testing.scripted_llm.request import Conversation
from switchboard.testing.scripted_llm.script import Reply

CONTEXT: Final = 4_096
SLOTS: Final = 1
_CHARACTERS_PER_TOKEN: Final = 4
_RULES: Final = frozenset(
    {"type", "properties", "required", "enum", "const", "items", "anyOf", "maxItems", "additionalProperties"}
)
_REMARKS: Final = frozenset({"title", "description"})


def check_locally(body: JsonMapping, conversation: Conversation, context: int) -> None:
    """Raises BadRequest with the message of a server."""
    form = body.get("response_format")
    tools = body.get("tools") or ()
    if form is not None and tools:
        raise BadRequest("Cannot use custom grammar constraints with tools.")
    schemas = [] if form is None else [_schema_of(form)]
    schemas += [tool["function"].get("parameters") or {} for tool in tools]
    for schema in schemas:
        if wrong := next(_wrong(schema), None):
            raise BadRequest(f"JSON schema conversion failed:\nUnrecognized schema: {wrong}")
    tokens = asked_tokens(conversation)
    if tokens > context:
        raise BadRequest(f"the request exceeds the available context size ({tokens} > {context} tokens)")


def asked_tokens(conversation: Conversation) -> int:
    """The tokens of a request; a grammar needs none."""
    return sum(len(said.text) for said in conversation.messages) // _CHARACTERS_PER_TOKEN


def within(reply: Reply, body: JsonMapping, conversation: Conversation, context: int) -> Reply:
    """As much of a reply as `max_tokens` and the context leave room for; thinking comes first."""
    wanted = body.get("max_tokens")
    room = context - asked_tokens(conversation)
    most = (min(room, wanted) if isinstance(wanted, int) else room) * _CHARACTERS_PER_TOKEN
    if len(reply.thinking) + len(reply.text) <= most:
        return reply
    thinking = reply.thinking[:most]
    return replace(reply, thinking=thinking, text=reply.text[: most - len(thinking)], calls=(), finish="length")


def _schema_of(form: object) -> object:
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        raise BadRequest("'response_format.type' must be 'json_schema' or 'text'")
    return form["json_schema"]["schema"]


def _wrong(schema: object) -> Iterator[str]:
    """The parts of a schema that cannot be turned into a grammar."""
    if not isinstance(schema, Mapping):
        yield repr(schema)
        return
    if not _RULES & set(schema):
        yield f"no rule of it is known: {dict(schema)}"
    yield from (name for name in schema if name not in _RULES | _REMARKS)
    if schema.get("type") == "object" and schema.get("properties") == {}:
        yield "an object without properties"
    if isinstance(schema.get("type"), list):
        yield f"several types: {schema['type']}"
    for inner in (schema.get("properties") or {}).values():
        yield from _wrong(inner)
    for inner in (*(schema.get("anyOf") or ()), *([schema["items"]] if "items" in schema else ())):
        yield from _wrong(inner)

"""What a request said, the same for all dialects, and recorded for assertions.

The dialects make a `Conversation` from a body; `endpoints.py` adds the head and keeps the `Request`. Scripts and tests
read it. No secret is in it: headers that carry keys say only that they were there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from switchboard.domain.json_values import JsonMapping

Dialect = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
Role = Literal["system", "user", "assistant", "tool"]
Choice = Literal["auto", "none", "required"]

HIDDEN: Final = "[secret]"
_SECRETS: Final = re.compile(r"auth|key|token|cookie|secret|session", re.IGNORECASE)
_SEGMENT: Final = re.compile(r"__|::|[./:_-]")


class ToolCall(Struct, frozen=True):
    """A call that the model made earlier. `arguments` as they were sent back: an object, or the text of one."""

    name: str
    arguments: Any
    call_id: str = ""


class Said(Struct, frozen=True):
    """One message, or the result of one tool call (role `tool`; `call_id` says of which)."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class Tool(Struct, frozen=True):
    """A tool that was offered. In the Responses dialect the name of one in a namespace is `namespace::name`."""

    name: str
    description: str = ""
    parameters: JsonMapping = msgspec.field(default_factory=dict)


class Conversation(Struct, frozen=True):
    """The body of a request, read. `forced` is the one tool that must be called."""

    model: str
    messages: tuple[Said, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: Choice = "auto"
    forced: str | None = None
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the model. `number` counts from 1; `body` is the JSON as it came."""

    number: int
    dialect: Dialect
    path: str
    headers: Mapping[str, str]
    conversation: Conversation
    body: JsonMapping = field(repr=False)

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return self.conversation.model

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted as a stream."""
        return self.conversation.streamed

    @property
    def messages(self) -> tuple[Said, ...]:
        """All that was said, the oldest first."""
        return self.conversation.messages

    @property
    def system(self) -> str:
        """All system text."""
        return _text(said for said in self.messages if said.role == "system")

    @property
    def prompt(self) -> str:
        """All that users said."""
        return _text(said for said in self.messages if said.role == "user")

    @property
    def results(self) -> tuple[Said, ...]:
        """The results of tool calls since the model spoke last."""
        spoken = [n for n, said in enumerate(self.messages) if said.role == "assistant"]
        return tuple(said for said in self.messages[spoken[-1] + 1 if spoken else 0 :] if said.role == "tool")

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the offered tools."""
        return tuple(tool.name for tool in self.conversation.tools)

    def offered(self, name: str) -> str | None:
        """The offered tool of this name, bare or with something before it; None if there is none, or more than one."""
        if name in self.tools:
            return name
        found = [tool for tool in self.tools if tool.endswith(name) and _SEGMENT.fullmatch(tool[-len(name) - 1])]
        return found[0] if len(found) == 1 else None


def without_secrets(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers for the record: a key, token or cookie is only said to be there."""
    return {name.lower(): HIDDEN if _SECRETS.search(name) else value for name, value in headers}


def _text(said: Iterable[Said]) -> str:
    return "\n".join(one.text for one in said if one.text)

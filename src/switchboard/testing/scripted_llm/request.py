"""The content of a request, in one form for all dialects, recorded for assertions.

The dialects make a `Conversation` from a body; `endpoints.py` adds the headers and keeps the `Request`. Scripts and
tests read it. It contains no secrets: headers with keys show only that they were present.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from switchboard.domain.json_values import JsonMapping

Dialect = Literal["openai-chat", "openai-responses", "anthropic", "gemini", "openai-audio", "openai-embeddings"]
Role = Literal["system", "user", "assistant", "tool"]
Choice = Literal["auto", "none", "required"]

EMBEDDINGS: Final[Dialect] = "openai-embeddings"
HIDDEN: Final = "[secret]"
_SECRETS: Final = re.compile(r"auth|key|token|cookie|secret|session", re.IGNORECASE)
_SEGMENT: Final = re.compile(r"__|::|[./:_-]")


class ToolCall(Struct, frozen=True):
    """An earlier call by the model. `arguments` as they were sent back: an object, or the text of one."""

    name: str
    arguments: Any
    call_id: str = ""


class Said(Struct, frozen=True):
    """One message, or the result of one tool call (role `tool`; `call_id` says which)."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class Tool(Struct, frozen=True):
    """An offered tool. In the Responses dialect, a tool in a namespace is named `namespace::name`."""

    name: str
    description: str = ""
    parameters: JsonMapping = msgspec.field(default_factory=dict)


class Conversation(Struct, frozen=True):
    """The parsed body of a request. `forced` is the one tool that must be called."""

    model: str
    messages: tuple[Said, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: Choice = "auto"
    forced: str | None = None
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the model. `number` counts from 1; `body` is the JSON as it arrived."""

    number: int
    dialect: Dialect
    path: str
    headers: Mapping[str, str]
    conversation: Conversation
    body: JsonMapping = field(repr=False)

    @property
    def model(self) -> str:
        """The requested model."""
        return self.conversation.model

    @property
    def streamed(self) -> bool:
        """Whether the answer is wanted as a stream."""
        return self.conversation.streamed

    @property
    def messages(self) -> tuple[Said, ...]:
        """All messages, oldest first."""
        return self.conversation.messages

    @property
    def system(self) -> str:
        """All system text."""
        return _text(said for said in self.messages if said.role == "system")

    @property
    def prompt(self) -> str:
        """All text by users."""
        return _text(said for said in self.messages if said.role == "user")

    @property
    def results(self) -> tuple[Said, ...]:
        """The results of tool calls since the model's last message."""
        spoken = [n for n, said in enumerate(self.messages) if said.role == "assistant"]
        return tuple(said for said in self.messages[spoken[-1] + 1 if spoken else 0 :] if said.role == "tool")

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the offered tools."""
        return tuple(tool.name for tool in self.conversation.tools)

    def offered(self, name: str) -> str | None:
        """The offered tool of this name, with or without a prefix; None if there is none, or more than one."""
        if name in self.tools:
            return name
        found = [tool for tool in self.tools if tool.endswith(name) and _SEGMENT.fullmatch(tool[-len(name) - 1])]
        return found[0] if len(found) == 1 else None


def without_secrets(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers for the record: of a key, token or cookie, only its presence is recorded."""
    return {name.lower(): HIDDEN if _SECRETS.search(name) else value for name, value in headers}


def _text(said: Iterable[Said]) -> str:
    return "\n".join(one.text for one in said if one.text)

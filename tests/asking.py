"""What is asked in the tests of sessions: two butlers, a message, and models on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from switchboard.core.classification.judge import unfit
from switchboard.core.classification.prompt import AskedMessage, Prompt, route_tool, routing_prompt
from switchboard.domain.classification import Candidate
from switchboard.domain.llm import ChatMessage, Reply, Request, ToolServer
from switchboard.llm.build import Sessions
from switchboard.llm.port import ApiKind, Kind, ModelSession
from switchboard.llm.spec import ModelSpec
from switchboard.testing.scripted_llm import Reply as Scripted
from switchboard.testing.scripted_llm import ScriptedLlm

CANDIDATES: Final = (Candidate("health", "doctors and pills"), Candidate("finance", "bills and taxes"))
REQUEST: Final = "0198c0de-0000-7000-8000-000000000001"


def prompt(text: str = "I have a headache") -> Prompt:
    """The prompt that asks which of them gets `text`."""
    return routing_prompt(CANDIDATES, AskedMessage(text, "telegram", "ann"))


def request(
    text: str = "I have a headache", *, token: str | None = None, mcp_url: str | None = None, **more: Any
) -> Request:
    """The same as a request, for an API or, with a token and a URL, for a command line."""
    asked = prompt(text)
    server = None if token is None or mcp_url is None else ToolServer(mcp_url, token)
    tool = route_tool(CANDIDATES)
    message = ChatMessage("user", asked.question)
    return Request((message,), asked.instructions, (tool,), tool.name, key=REQUEST, server=server, **more)


async def wrong(reply: Reply) -> str | None:
    """What is wrong with a reply to it."""
    return unfit(reply, CANDIDATES)


def spec(kind: Kind, url: str, name: str = "first", **more: Any) -> ModelSpec:
    """A model of the scripted server at `url`."""
    versioned = kind in {"openai", "openai-responses", "codex", "opencode"}
    return ModelSpec(name, kind, "scripted-1", f"{url}/v1" if versioned else url, **more)


@asynccontextmanager
async def session(
    kind: ApiKind, *replies: Scripted, strict: bool = False, **more: Any
) -> AsyncIterator[tuple[ModelSession, ScriptedLlm]]:
    """One session of a scripted model; `more` is of its spec."""
    async with ScriptedLlm(replies, strict=strict) as llm:
        sessions = Sessions([spec(kind, llm.url, **more)])
        try:
            yield sessions.models[0][1], llm
        finally:
            await sessions.aclose()

"""What is asked in the tests of sessions: two butlers, a message, and models on loopback."""

from __future__ import annotations

from typing import Any, Final

from switchboard.agents.sessions.port import Kind, SessionTask
from switchboard.agents.sessions.spec import ModelSpec
from switchboard.core.pipeline.prompt import Asked, route_tool_schema, routing_prompt
from switchboard.domain.pipeline import Candidate

CANDIDATES: Final = (Candidate("health", "doctors and pills"), Candidate("finance", "bills and taxes"))
REQUEST: Final = "0198c0de-0000-7000-8000-000000000001"


def task(text: str = "I have a headache", **more: Any) -> SessionTask:
    """The question who gets `text`."""
    prompt = routing_prompt(CANDIDATES, Asked(text, "telegram", "ann"))
    return SessionTask(prompt, route_tool_schema(CANDIDATES), REQUEST, **more)


def spec(kind: Kind, url: str, name: str = "first", **more: Any) -> ModelSpec:
    """A model of the scripted server at `url`."""
    versioned = kind in {"openai", "openai-responses", "codex", "opencode"}
    return ModelSpec(name, kind, "scripted-1", f"{url}/v1" if versioned else url, **more)

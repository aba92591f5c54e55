"""A scripted LLM server: OpenAI with audio and embeddings, Anthropic and Gemini on loopback, well-behaved or not.

For tests of anything that talks to a model, ours and yours; docs/scripted-llm.md is its manual. Begin with `server.py`.
"""

from __future__ import annotations

from switchboard.testing.scripted_llm.faults import (
    CallsAsText,
    ContentType,
    Cut,
    Disconnect,
    Empty,
    Fault,
    Garbage,
    Habit,
    Habits,
    Hang,
    HugeText,
    Slow,
    SpeechInSilence,
    Status,
    TextForm,
    TwoTools,
    UnknownTool,
    WithoutIds,
    WrongTool,
)
from switchboard.testing.scripted_llm.record import Ending, Exchange
from switchboard.testing.scripted_llm.request import Conversation, Dialect, Request, Said, Tool, ToolCall
from switchboard.testing.scripted_llm.script import Call, Reply, Rule, Script, Usage, When, obey, read_script
from switchboard.testing.scripted_llm.server import ScriptedLlm

__all__ = [
    "Call",
    "CallsAsText",
    "ContentType",
    "Conversation",
    "Cut",
    "Dialect",
    "Disconnect",
    "Empty",
    "Ending",
    "Exchange",
    "Fault",
    "Garbage",
    "Habit",
    "Habits",
    "Hang",
    "HugeText",
    "Reply",
    "Request",
    "Rule",
    "Said",
    "Script",
    "ScriptedLlm",
    "Slow",
    "SpeechInSilence",
    "Status",
    "TextForm",
    "Tool",
    "ToolCall",
    "TwoTools",
    "UnknownTool",
    "Usage",
    "When",
    "WithoutIds",
    "WrongTool",
    "obey",
    "read_script",
]

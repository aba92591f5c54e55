"""Turns for embedders: `from switchboard.turns import process_message`. Its names are public.

A program with an asyncpg pool asks a butler of an installation and gets the answer in the same call. The message is
stored like any other, its lane is claimed by the caller's process, and the turn runs there through the journal. Workers
of the installation leave it alone while the program lives, and take it over when it has died. The engine is the one
that workers run. docs/butlers.md has examples.

    calls of one session            wait for each other, in order of arrival
    the same `request_id` again     the same turn: its answer, or the rest of it
    no model can be reached         `ProviderError`; the message is kept, and tried again with the next call
    a wrong option, or no model     `ConfigurationError`; nothing is stored

Next: `messages.py` for the functions, `context.py` for their context, `hosting.py` for how it is opened, `database.py`
for a pool on an embedded database.
"""

from switchboard.domain.ledger import ReplyFile
from switchboard.domain.llm import Image
from switchboard.llm.spec import ModelSpec
from switchboard.ports.engine import Delta
from switchboard.tools.registry import build_tools, tool_definitions
from switchboard.turns.context import (
    Agent,
    CompactedSession,
    Memory,
    MessageContext,
    NewMessage,
    ProcessedMessage,
    ProviderError,
    Terminal,
)
from switchboard.turns.database import open_pool
from switchboard.turns.hosting import TurnContext, open_turns
from switchboard.turns.messages import (
    compact_session_if_needed,
    process_message,
    process_message_non_streaming,
    stream_message,
)
from switchboard.turns.models import open_models

__all__ = [
    "Agent",
    "CompactedSession",
    "Delta",
    "Image",
    "Memory",
    "MessageContext",
    "ModelSpec",
    "NewMessage",
    "ProcessedMessage",
    "ProviderError",
    "ReplyFile",
    "Terminal",
    "TurnContext",
    "build_tools",
    "compact_session_if_needed",
    "open_models",
    "open_pool",
    "open_turns",
    "process_message",
    "process_message_non_streaming",
    "stream_message",
    "tool_definitions",
]

"""The tool `ask_user`: a question to the person, whose answer may take days.

`registry.py` builds it. A turn does not call it, but waits for the answer: see `agents/turns/asking.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.core.turns.asking import ASK_USER as NAME
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec

ASK_USER: Final = ToolSpec(
    NAME,
    "Ask the person a question that you cannot go on without, and wait for the answer, which may take days. "
    "For anything else, ask in your answer.",
    {
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "maxLength": 2000},
            "options": {
                "type": "array",
                "items": {"type": "string", "maxLength": 200},
                "maxItems": 10,
                "description": "Answers to choose from",
            },
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    "idempotent",
    ordered=True,
    reach="inside",
)


class AskUser(NamedTool):
    """See the port."""

    spec: Final = ASK_USER

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:  # noqa: ARG002
        """Always fails: nobody can be asked here."""
        return ToolOutcome("nobody can be asked from here", ok=False)

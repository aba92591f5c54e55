"""The tool `message_original`: all of the message that a turn answers, with the history that its prompt leaves out.

`registry.py` builds it; it is offered in turns of channels whose messages may be folded. It shows no headers, and
nothing that the message hides. Next: `core/passages/showing.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.core.passages.folding import folded
from switchboard.core.passages.showing import shown_text
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec

MOST_SHOWN: Final = 8000
"""Characters of one result."""
_MOST_HEAD: Final = 200
"""Characters of the line above a passage."""

MESSAGE_ORIGINAL: Final = ToolSpec(
    "message_original",
    "Read the message that you answer, whole, with the quoted lines that are left out above. Lines that begin with | "
    "are not by the sender.",
    {
        "type": "object",
        "properties": {
            "offset": {"type": "integer", "minimum": 0, "description": "Where to go on, in characters"},
        },
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)


class MessageOriginal(NamedTool):
    """See the port."""

    spec: Final = MESSAGE_ORIGINAL

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return 8,000 characters, and where to go on."""
        whole, offset = shown_text(folded(scope.message, answers=False)), arguments.get("offset", 0)
        if not whole[offset:]:
            return ToolOutcome(f"there is nothing from offset {offset} on: it has {len(whole)} characters", ok=False)
        end = offset + MOST_SHOWN
        more = f"\n[more follows: go on with offset {end}]" if end < len(whole) else ""
        return ToolOutcome(_begun_anew(whole, offset) + whole[offset:end] + more)


def _begun_anew(whole: str, offset: int) -> str:
    """What a page that begins within a line needs: its mark, or the beginning of a head, which may have a name."""
    begin = whole.rfind("\n", 0, offset) + 1
    above = whole[begin:offset]
    if above.startswith("[") and len(above) <= _MOST_HEAD:
        return above
    return "| " if above and whole.startswith("| ", begin) else ""

"""The tool `attach_file`: attaches a file of the workspace to the answer, as it is at that moment.

`registry.py` builds it. What it may touch is decided in `workspace.py`; the scope says where the bytes are stored.
Next: `agents/turns/talk.py`, which passes the files on.
"""

from __future__ import annotations

import os
from typing import Final

from switchboard.core.files.reply_files import size_text
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.files import file_parts, shown_name
from switchboard.tools.workspace import ToolRefusal, meaning, opened_file, pieces_of, root_of

ATTACH_FILE: Final = ToolSpec(
    "attach_file",
    "Send a file of the workspace together with your answer, as it is now. The person gets it as a file.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Relative to the workspace, such as plan.pdf"},
            "name": {"type": "string", "description": "What the person sees it called. Default: its own name"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "idempotent",
    ordered=True,
    reach="inside",
)


class AttachFile(NamedTool):
    """See the port."""

    spec: Final = ATTACH_FILE

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """The file, stored for the answer; or a sentence that says why it cannot be sent."""
        path = shown_name(str(arguments["path"]))
        if scope.keep is None:
            return ToolOutcome("files cannot be sent from here", ok=False)
        try:
            parts = file_parts(arguments)
            with opened_file(root_of(scope, parts[:-1]), parts) as opened:
                size = os.fstat(opened).st_size
                kept = await scope.keep(str(arguments.get("name") or parts[-1]), pieces_of(opened), size)
        except ToolRefusal as refused:
            return ToolOutcome(f"{path}: {refused}", ok=False)
        except OSError as error:
            return ToolOutcome(f"{path}: {meaning(error)}", ok=False)
        if kept.unavailable:
            return ToolOutcome(f"{path} is not sent: {kept.unavailable}", ok=False)
        told = f"{shown_name(kept.filename or path)} ({size_text(kept.size_bytes)}) goes with your answer"
        return ToolOutcome(told, attachments=(kept,))

"""Tools called as a turn calls them."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from switchboard.ports.tools import QUOTA, Tool, ToolOutcome, ToolScope
from switchboard.tools.calls import CallLimits, call_tool
from switchboard.tools.registry import build_tools

KEY = UUID("0192f0c1-0000-7000-8000-000000000001")
TURN = UUID("0192f0c1-0000-7000-8000-00000000000f")
TOOLS = {tool.spec.name: tool for tool in build_tools()}


def scope_of(workspace: Path, *, quota: int = QUOTA, conversation: str = "", readers: str = "") -> ToolScope:
    kept = results_of(workspace)
    return ToolScope(
        *(workspace, frozenset(), frozenset(), KEY, TURN),
        quota=quota,
        results=kept,
        conversation=conversation,
        readers=readers,
    )


def results_of(workspace: Path) -> Path:
    """Where long results are kept for those who read the turn."""
    return workspace.with_name(f"{workspace.name} results")


async def called(workspace: Path, name: str, /, **arguments: object) -> ToolOutcome:
    """One of our tools that touches files."""
    return await call_tool(TOOLS[name], arguments, scope_of(workspace))


async def outcome_of(
    tool: Tool, workspace: Path, limits: CallLimits | None = None, /, **arguments: object
) -> ToolOutcome:
    return await call_tool(tool, arguments, scope_of(workspace), limits or CallLimits())

"""A menu as a turn may have it, and plans for it."""

from __future__ import annotations

from typing import Final

from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import Menu
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.json_values import JsonObject
from switchboard.ports.engine import Effect


def tool(
    name: str, properties: JsonObject, required: tuple[str, ...] = (), effect: Effect = "idempotent"
) -> FrozenTool:
    """A tool that takes these arguments, and no others."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        "title": name,
    }
    return FrozenTool(name, f"Does {name}.", schema, effect)


FETCH: Final = tool("web_fetch", {"url": {"type": "string", "format": "uri", "title": "URL"}}, ("url",))
READ: Final = tool("read_file", {"path": {"type": "string"}, "offset": {"type": "integer", "minimum": 0}}, ("path",))
SEARCH: Final = tool("web_search", {"query": {"type": "string", "maxLength": 200}}, ("query",))
NOW: Final = tool("now", {})
DELETE: Final = tool("delete_file", {"path": {"type": "string"}}, ("path",), "effectful")
SEND: Final = tool("send_mail", {"to": {"type": "string"}, "body": {"type": "string"}}, ("to", "body"), "effectful")
RUN: Final = tool("execute_command", {"command": {"type": "string"}}, ("command",), "effectful")
ARXIV: Final = "https://arxiv.org/abs/2512.24601"
CRATE: Final = "https://crates.io/crates/rlm-cli"
MENU: Final = Menu(
    (FETCH, READ, SEARCH, NOW, DELETE, SEND),
    subagents={"System1/health": "Looks after health."},
    urls=(ARXIV, CRATE),
    paths=("notes/a.md",),
)
LIMITS: Final = PlanLimits()

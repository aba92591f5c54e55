"""The MCP tools of whole rule sets: versions, restore, lint, backtest, and standing operating procedures.

`tools.py` offers them: those that change rules, and the backtest, to operators and to agents that are an active
System3, the others to every agent. In: the bodies of the HTTP API; out: its answers. Next: `app/rules/service.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from switchboard.app.rules.replays import ReplayProgress, ReplaySpan
from switchboard.app.rules.service import EDIT_RULES, READ_RULES, Order
from switchboard.core.routing.backtest import NEWEST
from switchboard.server.contracts.base import Body, Cursor, Limit, Line, Word
from switchboard.server.contracts.rules import BacktestBody, RestoreBody, SopBody
from switchboard.server.http.replays import proposal_of
from switchboard.server.http.rules import RULE_RECORDS, RULE_REPLAYS, RULE_SERVICE
from switchboard.server.http.services import page
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of
from switchboard.server.services import Services

_VERSIONS: Final = "List the versions of the rules, newest first: who changed them, when and why."
_RESTORE: Final = "Restore the rules of a version, for your team and those below, or for one of them (team_id)."
_LINT: Final = "Find rules that are probably wrong: never firing, leading nowhere, without a running target."
_BACKTEST: Final = "Decide stored messages again by other rules: how many would be routed differently, with examples."
_SOPS: Final = "List the standing operating procedures that have been loaded, with their rules."
_LOAD: Final = "Load a standing operating procedure: exactly its own rules are created, changed or enabled."
_UNLOAD: Final = "Unload a standing operating procedure: its rules are disabled."


class VersionsWanted(Body):
    """A page of versions."""

    limit: Limit = 50
    cursor: Cursor | None = None


class SopsWanted(Body):
    """A page of procedures."""

    limit: Limit = 100
    cursor: Cursor | None = None


class NoArguments(Body):
    """No arguments."""


class LoadSop(SopBody):
    """Which procedure, by its name."""

    name: Word


class UnloadSop(Body):
    """Which procedure, by its name, and why."""

    name: Word
    reason: Line
    dry_run: bool = False


def rule_set_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the services."""
    edits = services.of(RULE_SERVICE).editable_by

    async def versions(_: McpCall, body: VersionsWanted) -> object:
        return page("versions", await services.of(RULE_RECORDS).versions(limit=body.limit, cursor=body.cursor))

    async def lint(call: McpCall, _: NoArguments) -> object:
        return await services.of(RULE_RECORDS).lint(services.reach(call.caller))

    async def sops(call: McpCall, body: SopsWanted) -> object:
        reach = services.reach(call.caller)
        return page("sops", await services.of(RULE_RECORDS).sops(reach, limit=body.limit, cursor=body.cursor))

    async def restore(call: McpCall, body: RestoreBody) -> object:
        order = Order(body.reason, body.expected_version, body.dry_run)
        return await services.of(RULE_SERVICE).restore(call.caller, body.version, body.team_id, order)

    async def backtest(call: McpCall, body: BacktestBody) -> object:
        """Run to its end, or until nobody waits for it any longer."""
        await services.of(RULE_SERVICE).check_editor(call.caller)
        last = NEWEST if body.last is None and body.days is None else body.last
        proposal = proposal_of(body, partial(services.of(RULE_SERVICE).check_scope, call.caller))
        lines = services.of(RULE_REPLAYS).backtest(ReplaySpan(last, body.days), proposal)
        try:
            async for found in lines:
                if call.gone.is_set() or not isinstance(found, ReplayProgress):
                    return found
        finally:
            await lines.aclose()
        return None

    async def load(call: McpCall, body: LoadSop) -> object:
        order = Order(body.reason, dry_run=body.dry_run)
        return await services.of(RULE_SERVICE).load_sop(call.caller, body.name, body.document, order)

    async def unload(call: McpCall, body: UnloadSop) -> object:
        return await services.of(RULE_SERVICE).unload_sop(
            call.caller, body.name, Order(body.reason, dry_run=body.dry_run)
        )

    return (
        tool_of("routing_rules_versions", _VERSIONS, VersionsWanted, READ_RULES, versions),
        tool_of("routing_rules_lint", _LINT, NoArguments, READ_RULES, lint),
        tool_of("sops_list", _SOPS, SopsWanted, READ_RULES, sops),
        tool_of("routing_rules_restore", _RESTORE, RestoreBody, EDIT_RULES, restore, edits),
        tool_of("routing_rules_backtest", _BACKTEST, BacktestBody, EDIT_RULES, backtest, edits),
        tool_of("sops_load", _LOAD, LoadSop, EDIT_RULES, load, edits),
        tool_of("sops_unload", _UNLOAD, UnloadSop, EDIT_RULES, unload, edits),
    )

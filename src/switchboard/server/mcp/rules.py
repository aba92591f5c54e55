"""The MCP tools of rules: routing_rules_list, get, create, update, disable, delete, test, explain.

`tools.py` offers them: the editing ones to operators and to agents that are an active System3, the others to every
agent. Who calls is known by the token, never by an argument. In: the bodies of the HTTP API; out: its answers. Next:
`app/rules/service.py`, `app/rules/records.py`, `app/rules/replays.py`.
"""

from __future__ import annotations

from switchboard.app.cursors import uuid_cursor
from switchboard.app.rules.service import Order
from switchboard.server.contracts.messages import Body, Cursor, Id, Limit, Line, Team, Word
from switchboard.server.contracts.rules import DryRunBody, NewRuleBody, RulePatch, TestBody, Version
from switchboard.server.http.replays import question
from switchboard.server.http.rules import change_rule, new_rule, rule_detail
from switchboard.server.http.services import Services
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of


class RulesWanted(Body):
    """Which rules to list."""

    team_id: Team | None = None
    source: Word | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class OneRule(Body):
    """Which rule."""

    rule_id: Id


class RuleUpdate(RulePatch):
    """What to change in which rule, and the version of the rule that you saw."""

    rule_id: Id


class RuleSwitch(Body):
    """Which rule to switch off or delete, and the version of it that you saw."""

    rule_id: Id
    version: Version
    reason: Line
    dry_run: bool = False


def rule_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the services."""
    tools, edits = _RuleTools(services), services.rules.editable_by
    return (
        tool_of("routing_rules_list", _LIST, RulesWanted, "rules", tools.page),
        tool_of("routing_rules_get", _GET, OneRule, "rules", tools.get),
        tool_of("routing_rules_create", _CREATE, NewRuleBody, "rules_edit", tools.create, edits),
        tool_of("routing_rules_update", _UPDATE, RuleUpdate, "rules_edit", tools.update, edits),
        tool_of("routing_rules_disable", _DISABLE, RuleSwitch, "rules_edit", tools.disable, edits),
        tool_of("routing_rules_delete", _DELETE, RuleSwitch, "rules_edit", tools.delete, edits),
        tool_of("routing_rules_test", _TEST, TestBody, "rules", tools.test),
        tool_of("routing_rules_explain", _EXPLAIN, DryRunBody, "rules", tools.explain),
    )


_LIST = "List the routing rules in force."
_GET = "One routing rule, with its history."
_CREATE = "Create a routing rule in your team or one below. Returns warnings, and how many messages it affects."
_UPDATE = "Change parts of a routing rule; refused if it has changed since you read it."
_DISABLE = "Disable a routing rule. It is kept, and can be enabled again by an update."
_DELETE = "Delete a routing rule. Restoring the version before brings it back."
_TEST = "Run test cases (a message and its expected recipients) against the rules in force, or those of a rule file."
_EXPLAIN = "Where would this message go, and why? Nothing is stored."


class _RuleTools:
    """What the tools do."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def page(self, call: McpCall, body: RulesWanted) -> object:
        after = None if body.cursor is None else uuid_cursor(body.cursor)
        reach = self._services.reach(call.caller)
        return await self._services.records.page(reach, body.team_id, body.source, after=after, limit=body.limit)

    async def get(self, call: McpCall, body: OneRule) -> object:
        return await rule_detail(self._services, self._services.reach(call.caller), body.rule_id)

    async def create(self, call: McpCall, body: NewRuleBody) -> object:
        return await self._services.rules.create(call.caller, new_rule(body), Order(body.reason, dry_run=body.dry_run))

    async def update(self, call: McpCall, body: RuleUpdate) -> object:
        return await change_rule(self._services, call.caller, body.rule_id, body)

    async def disable(self, call: McpCall, body: RuleSwitch) -> object:
        patch = RulePatch(version=body.version, reason=body.reason, dry_run=body.dry_run, active=False)
        return await change_rule(self._services, call.caller, body.rule_id, patch)

    async def delete(self, call: McpCall, body: RuleSwitch) -> object:
        order = Order(body.reason, dry_run=body.dry_run)
        return await self._services.rules.delete(call.caller, body.rule_id, body.version, order)

    async def test(self, call: McpCall, body: TestBody) -> object:
        return await self._services.replays.test(body.cases, body.document, self._services.reach(call.caller))

    async def explain(self, call: McpCall, body: DryRunBody) -> object:
        return await self._services.replays.dry_run(question(call.caller, body), self._services.reach(call.caller))

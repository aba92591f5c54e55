"""The MCP tools of rules: routing_rules_list, get, create, update, disable, delete, test, explain.

`tools.py` offers them: the editing ones to operators and to agents that are an active System3, the others to every
agent. The token identifies the caller, never an argument. In: the bodies of the HTTP API; out: its answers. Next:
`app/rules/service.py`, `app/rules/records.py`, `app/rules/replays.py`.
"""

from __future__ import annotations

from switchboard.app.cursors import uuid_cursor
from switchboard.app.rules.service import EDIT_RULES, READ_RULES, Order, Patch
from switchboard.server.contracts.base import Body, Cursor, Id, Limit, Line, TeamRef, Word
from switchboard.server.contracts.rules import DryRunBody, NewRuleBody, RulePatch, TestBody, Version
from switchboard.server.http.replays import question
from switchboard.server.http.rules import RULE_RECORDS, RULE_REPLAYS, RULE_SERVICE, change_rule, new_rule, rule_detail
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of
from switchboard.server.services import Services


class RulesWanted(Body):
    """Which rules to list."""

    team_id: TeamRef | None = None
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


_LIST = "List the routing rules in force."
_GET = "One routing rule, with its history."
_CREATE = "Create a routing rule in your team or one below. Returns warnings, and how many messages it affects."
_UPDATE = "Change parts of a routing rule; refused if it has changed since you read it."
_DISABLE = "Disable a routing rule. It is kept, and can be enabled again by an update."
_DELETE = "Delete a routing rule. Restoring the previous version brings it back."
_TEST = "Run test cases (a message and its expected recipients) against the rules in force, or those of a rule file."
_EXPLAIN = "Where would this message go, and why? Nothing is stored."


def rule_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the services."""
    edits = services.of(RULE_SERVICE).editable_by

    async def found(call: McpCall, body: RulesWanted) -> object:
        after = uuid_cursor(body.cursor)
        reach = services.reach(call.caller)
        return await services.of(RULE_RECORDS).page(reach, body.team_id, body.source, after=after, limit=body.limit)

    async def get(call: McpCall, body: OneRule) -> object:
        return await rule_detail(services, services.reach(call.caller), body.rule_id)

    async def create(call: McpCall, body: NewRuleBody) -> object:
        return await services.of(RULE_SERVICE).create(
            call.caller, new_rule(body), Order(body.reason, dry_run=body.dry_run)
        )

    async def update(call: McpCall, body: RuleUpdate) -> object:
        return await change_rule(services, call.caller, body.rule_id, body)

    async def disable(call: McpCall, body: RuleSwitch) -> object:
        order = Order(body.reason, dry_run=body.dry_run)
        return await services.of(RULE_SERVICE).update(
            call.caller, Patch(body.rule_id, body.version, {"active": False}), order
        )

    async def delete(call: McpCall, body: RuleSwitch) -> object:
        order = Order(body.reason, dry_run=body.dry_run)
        return await services.of(RULE_SERVICE).delete(call.caller, body.rule_id, body.version, order)

    async def test(call: McpCall, body: TestBody) -> object:
        return await services.of(RULE_REPLAYS).test(body.cases, body.document, services.reach(call.caller))

    async def explain(call: McpCall, body: DryRunBody) -> object:
        return await services.of(RULE_REPLAYS).dry_run(question(call.caller, body), services.reach(call.caller))

    return (
        tool_of("routing_rules_list", _LIST, RulesWanted, READ_RULES, found),
        tool_of("routing_rules_get", _GET, OneRule, READ_RULES, get),
        tool_of("routing_rules_create", _CREATE, NewRuleBody, EDIT_RULES, create, edits),
        tool_of("routing_rules_update", _UPDATE, RuleUpdate, EDIT_RULES, update, edits),
        tool_of("routing_rules_disable", _DISABLE, RuleSwitch, EDIT_RULES, disable, edits),
        tool_of("routing_rules_delete", _DELETE, RuleSwitch, EDIT_RULES, delete, edits),
        tool_of("routing_rules_test", _TEST, TestBody, READ_RULES, test),
        tool_of("routing_rules_explain", _EXPLAIN, DryRunBody, READ_RULES, explain),
    )

"""The MCP tools of rules: routing_rules_list, get, create, update, disable, test, explain.

`mcp_tools.py` offers them: the editing ones to operators and to agents that are an active System3, the others to every
agent. Who calls is known by the token, never by an argument. In: the bodies of the HTTP API; out: its answers. Next:
`app/rules.py`, `app/rule_records.py`, `app/replays.py`.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.app.access import Principal
from switchboard.app.rules import Order
from switchboard.server.http.doors import Doors
from switchboard.server.http.replays import question
from switchboard.server.http.rule_schemas import DryRunBody, NewRuleBody, RulePatch, TestBody, Version
from switchboard.server.http.rules import change_rule, new_rule, rule_detail, rule_page
from switchboard.server.http.schemas import Body, Cursor, Limit, Line, Word
from switchboard.server.mcp_offer import Call, Offer, make_tool, read, schema_of


class RulesWanted(Body):
    """Which rules to list."""

    team_id: Word | None = None
    source: Word | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class OneRule(Body):
    """Which rule."""

    rule_id: UUID


class RuleUpdate(RulePatch):
    """What to change in which rule, and the version of the rule that you saw."""

    rule_id: UUID


class RuleSwitch(Body):
    """Which rule to switch off, and the version of it that you saw."""

    rule_id: UUID
    version: Version
    reason: Line
    dry_run: bool = False


def rule_offers(doors: Doors) -> tuple[Offer, ...]:
    """The tools over the parts behind the doors."""
    tools = _RuleTools(doors)

    def edits(caller: Principal) -> bool:
        return bool(doors.rules.editable_by(caller))

    return (
        Offer(make_tool("routing_rules_list", _LIST, schema_of(RulesWanted)), "rules", tools.page),
        Offer(make_tool("routing_rules_get", _GET, schema_of(OneRule)), "rules", tools.get),
        Offer(make_tool("routing_rules_create", _CREATE, schema_of(NewRuleBody)), "rules_edit", tools.create, edits),
        Offer(make_tool("routing_rules_update", _UPDATE, schema_of(RuleUpdate)), "rules_edit", tools.update, edits),
        Offer(make_tool("routing_rules_disable", _DISABLE, schema_of(RuleSwitch)), "rules_edit", tools.disable, edits),
        Offer(make_tool("routing_rules_test", _TEST, schema_of(TestBody)), "rules", tools.test),
        Offer(make_tool("routing_rules_explain", _EXPLAIN, schema_of(DryRunBody)), "rules", tools.explain),
    )


_LIST = "List the routing rules in force."
_GET = "One routing rule, with everything that was ever done to it."
_CREATE = "Make a routing rule in your team or in one below. Answers with warnings and with how many messages move."
_UPDATE = "Change parts of a routing rule; refused when it is not any more as you saw it."
_DISABLE = "Switch a routing rule off. It stays, and can be switched on again by an update."
_TEST = "Run cases (a message, and who shall get it) on the rules in force, or on those of a rule file."
_EXPLAIN = "Where would this message go, and why? Nothing is stored."


class _RuleTools:
    """What the tools do."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    async def page(self, call: Call) -> object:
        body = read(RulesWanted, call.arguments)
        return await rule_page(self._doors, {"team_id": body.team_id, "source": body.source}, body.limit, body.cursor)

    async def get(self, call: Call) -> object:
        return await rule_detail(self._doors, read(OneRule, call.arguments).rule_id)

    async def create(self, call: Call) -> object:
        body = read(NewRuleBody, call.arguments)
        return await self._doors.rules.create(call.caller, new_rule(body), Order(body.reason, dry_run=body.dry_run))

    async def update(self, call: Call) -> object:
        body = read(RuleUpdate, call.arguments)
        return await change_rule(self._doors, call.caller, body.rule_id, body)

    async def disable(self, call: Call) -> object:
        body = read(RuleSwitch, call.arguments)
        patch = RulePatch(version=body.version, reason=body.reason, dry_run=body.dry_run, active=False)
        return await change_rule(self._doors, call.caller, body.rule_id, patch)

    async def test(self, call: Call) -> object:
        body = read(TestBody, call.arguments)
        return await self._doors.replays.test(body.cases, body.document)

    async def explain(self, call: Call) -> object:
        return await self._doors.replays.dry_run(question(call.caller, read(DryRunBody, call.arguments)))

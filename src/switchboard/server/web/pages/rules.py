"""Rules: the teams with their rules in true order, edits with their effect before they are saved, versions, and undo.

Next: `app/rules/service.py`, `app/rules/records.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from switchboard.app.rules.records import COUNTED_DECISIONS
from switchboard.app.rules.service import (
    EDIT_RULES,
    READ_RULES,
    NewRule,
    Order,
    Patch,
    WrittenRule,
    WrittenRules,
)
from switchboard.core.routing.draft import parse_draft
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Team, TeamId
from switchboard.server.http.rules import RULE_RECORDS, RULE_SERVICE
from switchboard.server.web.forms import (
    NOTHING_ENTERED,
    Entered,
    Fields,
    number_from,
    reason_from,
    receivers_of,
    target_from,
)
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.reading import cut_list
from switchboard.server.web.visit import Visit
from switchboard.store.ids import new_uuid7

_ROWS: Final = 50
_SWITCHES: Final = ("active", "copy", "reply_to_automatic")
_OUTCOMES: Final = {
    "saved": "It is in force.",
    "deleted": "The rule is gone. To undo it, go back to the version before.",
    "restored": "The rules are what they were, as a new version.",
}


class TeamInTree(Struct, frozen=True):
    """A team, and how deep below the root it is."""

    team: Team
    depth: int


def tree_of(teams: Sequence[Team]) -> list[TeamInTree]:
    """The teams, each after the one that it is below."""
    below: dict[TeamId | None, list[Team]] = {}
    for team in teams:
        below.setdefault(team.parent_id, []).append(team)
    found: list[TeamInTree] = []
    waiting = [TeamInTree(team, 0) for team in reversed(below.get(None, []))]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += [TeamInTree(team, one.depth + 1) for team in reversed(below.get(one.team.team_id, []))]
    return found


async def show_rules(visit: Visit) -> Response:
    """The tree, and the rules of one team as they are evaluated."""
    records, reach = visit.services.of(RULE_RECORDS), visit.services.reach(visit.caller)
    tree = tree_of(visit.services.runtime.rule_book.rules.teams)
    team_id = TeamId(visit.asked("team") or (tree[0].team.team_id if tree else "root"))
    ordered, off = await records.in_true_order(reach, team_id)
    page = cut_list(ordered, visit.asked("cursor"))
    return visit.page(
        "rules.html",
        tree=tree,
        team_id=team_id,
        rules=page.rows,
        begin=page.before,
        off=off[:_ROWS],
        following=page.following,
        hits=await records.hits(),
        counted=COUNTED_DECISIONS,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def show_rule(
    visit: Visit, entered: Entered = NOTHING_ENTERED, effect: WrittenRule | WrittenRules | None = None
) -> Response:
    """One rule, with its history and the form to change it; `effect`: of the change that is entered."""
    reach = visit.services.reach(visit.caller)
    rule, history = await visit.services.of(RULE_RECORDS).get(reach, _rule_id(visit))
    return visit.page(
        "rule.html",
        entered.status,
        rule=rule,
        history=history[:_ROWS],
        is_gone=bool(history) and history[0].after is None,
        hits=(await visit.services.of(RULE_RECORDS).hits()).get(_rule_id(visit), 0),
        counted=COUNTED_DECISIONS,
        written=written_fields(rule),
        path=f"/rules/{_rule_id(visit)}/change",
        effect=effect,
        deleting=isinstance(effect, WrittenRules),
        untouched=NOTHING_ENTERED,
        channels=sorted(visit.services.runtime.channels),
        receivers=receivers_of(visit.services.runtime.rule_book.rules),
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def change_rule(visit: Visit, fields: Fields) -> Response:
    """Show the effect of a change or, once it is confirmed, make it."""
    order, version = _order_in(fields), number_from(fields, "version", "the version", 0)
    patch = Patch(_rule_id(visit), version, _draft_in(fields))
    effect = await visit.services.of(RULE_SERVICE).update(visit.caller, patch, order)
    if order.dry_run:
        return await show_rule(visit, Entered(fields), effect)
    return visit.go(f"/rules/{_rule_id(visit)}?done=saved")


async def delete_rule(visit: Visit, fields: Fields) -> Response:
    """Show the effect of removing a rule or, once it is confirmed, remove it."""
    order, version = _order_in(fields), number_from(fields, "version", "the version", 0)
    try:
        effect = await visit.services.of(RULE_SERVICE).delete(visit.caller, _rule_id(visit), version, order)
    except NotFound:  # it came twice
        return visit.go("/rules?done=deleted")
    if order.dry_run:
        return await show_rule(visit, Entered(fields), effect)
    return visit.go("/rules?done=deleted")


async def show_new_rule(visit: Visit) -> Response:
    """The form for a new rule of a team."""
    team_id = visit.asked("team") or "root"
    return await _show_new_rule(visit, Entered({"team_id": team_id, "active": "on", "channel": "*"}))


async def _show_new_rule(visit: Visit, entered: Entered, effect: WrittenRule | None = None) -> Response:
    return visit.page(
        "new_rule.html",
        entered.status,
        team_id=entered.value("team_id", "root"),
        rule_id=entered.value("rule_id") or str(new_uuid7()),
        written={},
        path="/rules/new",
        effect=effect,
        deleting=False,
        channels=sorted(visit.services.runtime.channels),
        receivers=receivers_of(visit.services.runtime.rule_book.rules),
        entered=entered,
    )


async def create_rule(visit: Visit, fields: Fields) -> Response:
    """Show the effect of a new rule or, once it is confirmed, make it."""
    order, draft = _order_in(fields), parse_draft(_draft_in(fields))
    new = NewRule(TeamId(fields.get("team_id", "root")), draft, _new_id_in(fields))
    effect = await visit.services.of(RULE_SERVICE).create(visit.caller, new, order)
    if order.dry_run:
        return await _show_new_rule(visit, Entered(fields), effect)
    return visit.go(f"/rules/{effect.rule['rule_id']}?done=saved")


async def show_versions(visit: Visit) -> Response:
    """Every version of the rules, newest first."""
    records = visit.services.of(RULE_RECORDS)
    versions, following = await records.versions(limit=_ROWS, cursor=visit.asked("cursor"))
    return visit.page(
        "rule_versions.html",
        versions=versions,
        following=following,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def show_version(
    visit: Visit, entered: Entered = NOTHING_ENTERED, effect: WrittenRules | None = None
) -> Response:
    """What one version changed, and the way back; `effect`: of going it."""
    reach = visit.services.reach(visit.caller)
    version = await visit.services.of(RULE_RECORDS).version(reach, visit.path_number("version"))
    newest = visit.services.runtime.rule_book.rules.version
    return visit.page(
        "rule_version.html",
        entered.status,
        version=version,
        newest=newest,
        to=entered.value("to", str(version.version)),
        effect=effect,
        entered=entered,
    )


async def restore_rules(visit: Visit, fields: Fields) -> Response:
    """Show what going back to a version would change or, once it is confirmed, go back."""
    order = _order_in(fields)
    if not order.dry_run:  # only what was shown is undone
        order = replace(order, expected_version=number_from(fields, "newest", "the version in force", 0))
    version = number_from(fields, "to", "the version", visit.path_number("version"))
    effect = await visit.services.of(RULE_SERVICE).restore(visit.caller, version, None, order)
    if order.dry_run:
        return await show_version(visit, Entered({**fields, "newest": str(effect.version)}), effect)
    return visit.go("/rules/versions?done=restored")


def _order_in(fields: Fields) -> Order:
    """To make the change, once its effect was shown and confirmed; otherwise to try it. Raises InvalidInput."""
    return Order(reason_from(fields)) if fields.get("step") == "save" else Order("effect", dry_run=True)


def written_fields(rule: JsonMapping) -> Mapping[str, str]:
    """A rule as the form shows it: a filter and a target in each line."""
    filters = [f"{key} = {_values_of(value)}" for key, value in rule["filters"].items()]
    targets = [one.get("system_id") or one.get("team_id") for one in rule["targets"]]
    switches = {name: "on" for name in _SWITCHES if rule[name]}
    return {
        "name": str(rule["name"]),
        "channel": str(rule["channel"]),
        "filters": "\n".join(filters),
        "targets": "\n".join(str(one) for one in targets),
        "priority": str(rule["priority"]),
        **switches,
    }


def _values_of(value: object) -> str:
    return " | ".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)


def _draft_in(fields: Fields) -> JsonObject:
    """The rule that was entered, in the form of the API. Raises InvalidInput."""
    filters: dict[str, Any] = {}
    for line in filter(None, map(str.strip, fields.get("filters", "").splitlines())):
        key, mark, value = line.partition("=")
        if not mark:
            raise InvalidInput(f"a condition is written as KEY = VALUE, not {line[:80]!r}", field="filters")
        values = [one.strip() for one in value.split("|")]
        filters[key.strip()] = values if len(values) > 1 else values[0]
    named = [line.strip() for line in fields.get("targets", "").splitlines() if line.strip()]
    targets = [target for one in named if (target := target_from({"to": one})) is not None]
    return {
        "name": fields.get("name", "").strip(),
        "channel": fields.get("channel", "").strip(),
        "filters": filters,
        "targets": [
            {"system_id": one.system_id} if one.system_id is not None else {"team_id": one.team_id} for one in targets
        ],
        "priority": number_from(fields, "priority", "the priority", 0),
        **{name: name in fields for name in _SWITCHES},
    }


def _new_id_in(fields: Fields) -> UUID:
    """The id that the form was shown with, so that a form that is sent twice makes one rule. Raises InvalidInput."""
    try:
        return UUID(fields.get("rule_id", ""))
    except ValueError:
        raise InvalidInput("the form is not whole; open the page again", field="rule_id") from None


def _rule_id(visit: Visit) -> UUID:
    return visit.path_id("rule_id")


_ONE: Final = "/rules/{rule_id:uuid}"
PAGES: Final = (
    WebPage("/rules", show_rules, READ_RULES, "Rules"),
    WebPage("/rules/new", show_new_rule, EDIT_RULES),
    WebForm("/rules/new", create_rule, EDIT_RULES, if_refused=_show_new_rule),
    WebPage("/rules/versions", show_versions, READ_RULES),
    WebPage("/rules/versions/{version:int}", show_version, READ_RULES),
    WebForm("/rules/versions/{version:int}/restore", restore_rules, EDIT_RULES, if_refused=show_version),
    WebPage(_ONE, show_rule, READ_RULES),
    WebForm(f"{_ONE}/change", change_rule, EDIT_RULES, if_refused=show_rule),
    WebForm(f"{_ONE}/delete", delete_rule, EDIT_RULES, if_refused=show_rule),
)

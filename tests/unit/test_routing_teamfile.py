"""Team files in the seed's JSON form: what is understood, and what is said about the rest."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.routing.check import check_teams
from switchboard.core.routing.teamfile import DEFAULT_TEAM, TeamFile, parse_team_file
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Member, RuleDraft, SystemId, Target, Team, TeamId

# In the form of the seed's own root team, with every part that it has.
SEED = json.loads("""
{
  "team": {"name": "root"},
  "purpose": {"name": "Viability", "content": "Be of more use than cost"},
  "strategy": {"name": "Onboarding"},
  "procedures": ["First Run"],
  "auto_execute_procedure": "First Run",
  "allowed_skills": ["message-routing"],
  "routing_rules": [
    {"name": "Default DLQ", "channel": "*", "filters": {}, "priority": 0, "targets": [{"system_id": "System4/root"}]}
  ],
  "systems": [
    {"name": "System1/root", "type": "OPERATION", "agent_id": "System1/root", "skill_grants": ["a"], "config": {}},
    {"name": "System4/root", "type": "INTELLIGENCE", "agent_id": "System4/root", "skill_grants": [], "config": {}}
  ]
}
""")
ROOT = TeamId("root")


def altered(document: JsonMapping, path: tuple[str | int, ...], value: object) -> JsonObject:
    """A copy with this value at that place."""
    made: dict[str, Any] = copy.deepcopy(dict(document))
    at: Any = made
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return made


changed = partial(altered, SEED)


def test_the_seeds_own_file() -> None:
    file = parse_team_file(SEED)
    assert file.team == Team(
        ROOT,
        None,
        "Viability: Be of more use than cost",
        (
            Member(SystemId("System1/root"), ROOT, 1, "memo"),
            Member(SystemId("System4/root"), ROOT, 4, "memo"),
        ),
    )
    assert file.rules == (RuleDraft("Default DLQ", "*", {}, (Target(system_id=SystemId("System4/root")),)),)
    assert check_teams([file.team]) == []


def test_a_sub_team_with_everything() -> None:
    file = parse_team_file(
        {
            "team": {"name": "onboarding", "parent": "root"},
            "purpose": "Get to know new users",
            "systems": [
                {
                    "name": "interviewer",
                    "type": 1,
                    "engine": "model",
                    "description": "Asks",
                    "capabilities": ["interview"],
                    "config": {"model": "m"},
                    "active": False,
                },
                {"type": "intelligence"},
            ],
            "routing_rules": [
                {
                    "name": "Rule B",
                    "channel": "telegram",
                    "filters": {"telegram_chat_id": -5488423581},
                    "priority": 7,
                    "active": False,
                    "targets": [{"system_id": "System1/interviewer"}, {"team_id": "deep"}],
                }
            ],
        }
    )
    interviewer, outlook = file.team.members
    assert (file.team.team_id, file.team.parent_id) == ("onboarding", "root")
    assert (interviewer.system_id, interviewer.engine, interviewer.active) == ("System1/interviewer", "model", False)
    assert (interviewer.capabilities, interviewer.options) == (("interview",), {"model": "m"})
    assert outlook.system_id == "System4/onboarding"
    (rule,) = file.rules
    assert rule.filters == {"telegram_chat_id": "-5488423581"}
    assert (rule.priority, rule.active) == (7, False)
    assert rule.targets == (Target(system_id=SystemId("System1/interviewer")), Target(team_id=TeamId("deep")))


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ({"name": "interviewer", "type": "operation"}, "System1/interviewer"),
        ({"name": "System1/interviewer"}, "System1/interviewer"),
        ({"name": "System1/interviewer", "type": "operation"}, "System1/interviewer"),
        ({"name": "Our interviewer", "type": "operation", "agent_id": "System1/interviewer"}, "System1/interviewer"),
        ({"name": "interviewer", "type": "operation", "agent_id": "a-7"}, "System1/interviewer"),
        ({"type": "Policy"}, "System5/root"),
        ({"type": 3}, "System3/root"),
        ({"type": "2"}, "System2/root"),
    ],
)
def test_how_a_system_may_be_named(system: dict[str, Any], expected: str) -> None:
    (member,) = parse_team_file({"team": {"name": "root"}, "systems": [system]}).team.members
    assert member.system_id == expected
    assert member.number == int(expected[6])


SYSTEM, RULE = ("systems", 0), ("routing_rules", 0)
REFUSED: dict[str, tuple[object, str | None, str]] = {
    "unknown part": (changed(("sytems",), []), "sytems", "did you mean systems"),
    "unknown part, nothing near": (changed(("zzz",), 1), "zzz", "systems or team"),
    "no team": ({"systems": []}, "team", "is missing"),
    "no name": (changed(("team",), {}), "team.name", "is missing"),
    "unknown key of the team": (changed(("team", "nam"), 1), "team.nam", "did you mean name?"),
    "empty name": (changed(("team", "name"), "  "), "team.name", "1 to 512"),
    "name of two lines": (changed(("team", "name"), "a\nb"), "team.name", "one line"),
    "endless name": (changed(("team", "name"), "a" * 513), "team.name", "1 to 512"),
    "NUL in the purpose": (changed(("purpose", "content"), "a\x00"), "purpose.content", "without NUL"),
    "purpose is a number": (changed(("purpose",), 5), "purpose", "must be an object"),
    "systems is an object": (changed(("systems",), {}), "systems", "must be a list"),
    "a system is a text": (changed(SYSTEM, "System1/root"), "systems[0]", "must be an object"),
    "unknown key of a system": (changed((*SYSTEM, "engin"), "m"), "systems[0].engin", "did you mean engine?"),
    "unknown type": (changed((*SYSTEM, "type"), "operator"), "systems[0].type", "operation"),
    "type is true": (changed((*SYSTEM, "type"), True), "systems[0].type", "not known"),
    "type six": (changed((*SYSTEM, "type"), 6), "systems[0].type", "from 1 to 5"),
    "type against name": (changed((*SYSTEM, "type"), "policy"), "systems[0].type", "called System1/root"),
    "no type and a plain name": (changed(SYSTEM, {"name": "a"}), "systems[0].type", "System1/NAME"),
    "a butler without a name": (changed(SYSTEM, {"type": "operation"}), "systems[0].name", "must be a string"),
    "a name like an address": (
        changed(SYSTEM, {"type": 1, "name": "System9/a"}),
        "systems[0].name",
        "NAME or System1/NAME",
    ),
    "config is a list": (changed((*SYSTEM, "config"), []), "systems[0].config", "options of the engine"),
    "active is a word": (changed((*SYSTEM, "active"), "yes"), "systems[0].active", "true or false"),
    "capability is null": (changed((*SYSTEM, "capabilities"), ["a", None]), "systems[0].capabilities[1]", "string"),
    "unknown key of a rule": (changed((*RULE, "chanel"), "x"), "routing_rules[0].chanel", "did you mean channel?"),
    "rule without targets": (
        changed(RULE, {"name": "a", "channel": "*"}),
        "routing_rules[0].targets",
        "is missing",
    ),
    "priority is true": (changed((*RULE, "priority"), True), "routing_rules[0].priority", "integer"),
    "filters is a text, as the seed's skill had it": (
        changed((*RULE, "filters"), "{}"),
        "routing_rules[0].filters",
        "must be an object",
    ),
    "a filter is null": (changed((*RULE, "filters"), {"thread": None}), "routing_rules[0].filters.thread", "string"),
    "a filter is a fraction": (
        changed((*RULE, "filters"), {"thread": 1.5}),
        "routing_rules[0].filters.thread",
        "string",
    ),
    "a target with both": (
        changed((*RULE, "targets"), [{"system_id": "a", "team_id": "b"}]),
        "routing_rules[0].targets[0]",
        "exactly one",
    ),
    "a target with neither": (changed((*RULE, "targets"), [{}]), "routing_rules[0].targets[0]", "exactly one"),
    "a team id that is a number": (
        changed((*RULE, "targets"), [{"team_id": 5}]),
        "routing_rules[0].targets[0].team_id",
        "must be a string",
    ),
    "a list": ([], None, "the file must be an object"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_its_place(case: tuple[object, str | None, str]) -> None:
    document, field, hint = case
    with pytest.raises(InvalidInput) as caught:
        parse_team_file(document)
    assert (caught.value.code, caught.value.field) == ("invalid_team_file", field)
    assert hint in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(sorted(SEED)), inner, max_size=3),
    max_leaves=6,
)


def understood_or_refused(document: object) -> TeamFile | InvalidInput:
    try:
        return parse_team_file(document)
    except InvalidInput as error:
        return error


@given(part=st.sampled_from(sorted(SEED)), value=JSON)
def test_any_json_is_either_understood_or_refused(part: str, value: object) -> None:
    outcome = understood_or_refused(changed((part,), value))
    if isinstance(outcome, InvalidInput):
        assert (outcome.field or "").startswith(part)
    else:
        assert outcome.team.team_id


def test_the_default_team_answers_everything() -> None:
    assert [member.system_id for member in DEFAULT_TEAM.team.members] == ["System1/memo", "System4/root"]
    assert {member.engine for member in DEFAULT_TEAM.team.members} == {"memo"}
    (rule,) = DEFAULT_TEAM.rules
    assert (rule.channel, rule.filters, rule.targets) == ("*", {}, (Target(system_id=SystemId("System1/memo")),))

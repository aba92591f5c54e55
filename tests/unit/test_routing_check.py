"""What is refused when a rule is written or teams are loaded, and what is offered instead."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.routing.check import MAX_PRIORITY, Problem, check_facts, check_rule, check_teams
from switchboard.core.routing.draft import parse_draft
from switchboard.core.routing.facts import alternatives
from switchboard.core.routing.index import RoutingIndex, rank
from switchboard.core.routing.teamfile import DEFAULT_TEAM
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import SystemId, Target, Team, TeamId
from switchboard.ports.channel import Channel
from switchboard.ports.raw import word
from tests.routing import empty_team, member, rule, team_of, to

TEAMS = (
    team_of("System1/butler", member("System1/asleep", active=False), "System3/root", "System4/root"),
    team_of("System1/interviewer", "System4/onboarding", team_id="onboarding"),
    team_of("System1/digger", team_id="deep", parent="onboarding"),
)
BY_ID = {one.team_id: one for one in TEAMS}
BUTLER = to("System1/butler")
GOOD = replace(
    rule(BUTLER, "onboarding", "System4/root", number=1, channel="telegram"),
    filters={"telegram_chat_id": "-100123", "chat_type": "group", "channel": "telegram"},
)


def brief(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.code, problem.field) for problem in problems]


def test_a_good_rule_has_no_problems() -> None:
    assert check_rule(GOOD, BY_ID) == []
    assert check_rule(replace(GOOD, channel="*", filters={"session_id": "x", "email_domain": "x"}), BY_ID) == []


RULE_CASES: dict[str, tuple[dict[str, Any], tuple[str, str], str]] = {
    "unknown channel": ({"channel": "telegramm", "filters": {}}, ("unknown_channel", "channel"), "telegram"),
    "unknown key": (
        {"filters": {"telegram_user": "1"}},
        ("unknown_filter_key", "filters.telegram_user"),
        "telegram_user_id",
    ),
    "key of another channel": (
        {"filters": {"email_sender": "a@b"}},
        ("unknown_filter_key", "filters.email_sender"),
        "chat_type, command, endpoint, groups, has_attachment, media, person, schedule, sender, telegram_chat_id",
    ),
    "upper case that can never match": (
        {"channel": "email", "filters": {"email_sender": "Ann@X.example"}},
        ("unmatchable_value", "filters.email_sender"),
        "ann@x.example",
    ),
    "a chat type that is none": (
        {"filters": {"telegram_chat_type": "dm"}},
        ("unmatchable_value", "filters.telegram_chat_type"),
        "channel, group, private or supergroup",
    ),
    "a name where an id belongs": (
        {"filters": {"telegram_user_id": "@ann"}},
        ("unmatchable_value", "filters.telegram_user_id"),
        "it is a number",
    ),
    "a copy to a team": (
        {"copy": True, "targets": (Target(team_id=TeamId("onboarding")),)},
        ("target_not_for_copies", "targets[0]"),
        "a copy goes to butlers of its team, not to onboarding",
    ),
    "one of several values": (
        {"filters": {"telegram_user_id": ("7", "007")}},
        ("unmatchable_value", "filters.telegram_user_id"),
        "can never be '007'",
    ),
    "lists without measure": (
        {"filters": {key: tuple(map(str, range(32))) for key in ("sender", "thread")}},
        ("too_many_values", "filters"),
        "1024 combinations; at most 1000",
    ),
    "an empty value": ({"filters": {"sender": ""}}, ("unmatchable_value", "filters.sender"), "never empty"),
    "blanks around a value": (
        {"filters": {"sender": " a"}},
        ("unmatchable_value", "filters.sender"),
        "no surrounding whitespace",
    ),
    "the channel contradicted": (
        {"filters": {"channel": "email"}},
        ("unmatchable_value", "filters.channel"),
        "the rule is for channel 'telegram'",
    ),
    "priority": ({"priority": 2**31}, ("priority_out_of_range", "priority"), str(MAX_PRIORITY)),
    "unknown team": ({"team_id": TeamId("onbording")}, ("unknown_team", "team_id"), "onboarding"),
    "no target": ({"targets": ()}, ("no_target", "targets"), "at least one"),
    "target names nobody": ({"targets": (Target(),)}, ("target_empty", "targets[0]"), "system_id or a team_id"),
    "target names both": (
        {"targets": (BUTLER, Target(SystemId("System4/root"), TeamId("onboarding")))},
        ("target_ambiguous", "targets[1]"),
        "two entries",
    ),
    "the same target twice": ({"targets": (BUTLER, BUTLER)}, ("duplicate_target", "targets"), "System1/butler"),
    "unknown system": (
        {"targets": (to("System1/buttler"),)},
        ("unknown_target", "targets[0].system_id"),
        "did you mean System1/butler?",
    ),
    "unknown team as target": (
        {"targets": (to("onbording"),)},
        ("unknown_target", "targets[0].team_id"),
        "did you mean onboarding?",
    ),
    "butler of another team": (
        {"targets": (to("System1/interviewer"),)},
        ("target_not_in_team", "targets[0].system_id"),
        "is in team onboarding",
    ),
    "System4 of another team": (
        {"targets": (to("System4/onboarding"),)},
        ("target_not_in_team", "targets[0].system_id"),
        "is in team onboarding",
    ),
    "sub-team of another team": (
        {"targets": (to("deep"),)},
        ("target_not_in_team", "targets[0].team_id"),
        "not a direct sub-team of root",
    ),
    "the team itself": (
        {"targets": (to("root"),)},
        ("target_not_in_team", "targets[0].team_id"),
        "only move down",
    ),
    "inactive butler": (
        {"targets": (to("System1/asleep"),)},
        ("inactive_target", "targets[0].system_id"),
        "is not active",
    ),
    "System3": (
        {"targets": (to("System3/root"),)},
        ("target_not_a_butler", "targets[0].system_id"),
        "receives no messages",
    ),
}


@pytest.mark.parametrize("case", RULE_CASES.values(), ids=RULE_CASES.keys())
def test_a_bad_rule_has_one_problem_and_a_hint(case: tuple[dict[str, Any], tuple[str, str], str]) -> None:
    change, expected, hint = case
    problems = check_rule(replace(GOOD, **change), BY_ID)
    assert brief(problems) == [expected]
    assert hint in problems[0].message


def test_all_problems_are_named_at_once() -> None:
    bad = replace(GOOD, channel="nope", filters={"x": "1", "telegram_user_id": "@a"}, targets=(to("System3/root"),))
    assert [code for code, _ in brief(check_rule(bad, BY_ID))] == [
        "unknown_channel",
        "unmatchable_value",
        "unknown_filter_key",
        "target_not_a_butler",
    ]


@pytest.mark.parametrize(
    ("channel", "key", "value", "meant"),
    [
        ("email", "email_domain", "@acme.example", "acme.example"),
        ("email", "email_domain", "*.acme.example", "acme.example"),
        ("email", "email_domain", "ann@acme.example", "acme.example"),
        ("email", "email_sender", "Ann@Acme.example", "ann@acme.example"),
        ("email", "email_sender", "anna", None),
        ("*", "email_to", "@acme.example", None),
        ("email", "email_list_id", "<News.acme.example>", "news.acme.example"),
        ("telegram", "telegram_user_id", "007", "7"),
        ("telegram", "telegram_user_id", "ann", None),
        ("discord", "discord_guild_id", "lounge", None),
        ("irc", "irc_channel", "dev", "#dev"),
    ],
)
def test_what_cannot_match_is_refused_with_what_would_be_right(
    channel: str, key: str, value: str, meant: str | None
) -> None:
    (problem,) = check_rule(replace(GOOD, channel=channel, filters={key: value}), BY_ID)
    assert (problem.code, problem.field) == ("unmatchable_value", f"filters.{key}")
    assert meant is None or problem.message.endswith(f"write {meant!r}")
    assert meant is None or check_rule(replace(GOOD, channel=channel, filters={key: meant}), BY_ID) == []


@pytest.mark.parametrize("name", ["می‌خواهم", "👩‍👧", "Ann\u00a0Lee"])
def test_names_are_any_text_of_one_line(name: str) -> None:
    fields = {"name": name, "channel": "email", "filters": {"sender": name}, "targets": [{"team_id": "t"}]}
    draft = parse_draft(fields)
    assert (draft.name, draft.filters) == (name, {"sender": name})
    assert word(name) == name
    for broken in ("\u2028", "\n", "\x1b"):
        with pytest.raises(InvalidInput, match="one line"):
            parse_draft({**fields, "name": f"a{broken}b"})
        assert word(f"a{broken}b") is None


def test_what_is_offered_instead() -> None:
    (problem,) = check_rule(replace(GOOD, targets=(to("System1/asleep"),)), BY_ID)
    assert problem.meant == ("System1/butler", "System4/root", "onboarding")
    (key,) = check_rule(replace(GOOD, filters={"telegram_chatid": "1"}), BY_ID)
    assert key.meant[0] == "telegram_chat_id"


def test_a_plug_ins_channel_is_known_where_it_is_named() -> None:
    pigeon = replace(GOOD, channel="pigeon", filters={"sender": "coo"})
    assert brief(check_rule(pigeon, BY_ID)) == [("unknown_channel", "channel")]
    loft = Channel(name="pigeon", keys={"pigeon_loft": "lower"})
    channels = CHANNELS.adding([loft], {"smoke": ["hill"]})
    assert check_rule(pigeon, BY_ID, channels) == []
    assert check_rule(replace(pigeon, filters={"pigeon_loft": "north"}), BY_ID, channels) == []
    assert check_rule(replace(pigeon, channel="*", filters={"pigeon_loft": "north"}), BY_ID, channels) == []
    shouted = replace(pigeon, filters={"pigeon_loft": "North"})
    assert brief(check_rule(shouted, BY_ID, channels)) == [("unmatchable_value", "filters.pigeon_loft")]
    foreign = replace(pigeon, channel="smoke", filters={"pigeon_loft": "north"})
    assert brief(check_rule(foreign, BY_ID, channels)) == [("unknown_filter_key", "filters.pigeon_loft")]


def test_every_priority_that_is_let_in_can_be_ranked() -> None:
    ranks = [rank(replace(GOOD, priority=priority)) for priority in (MAX_PRIORITY, 1, 0, -1, -MAX_PRIORITY)]
    assert ranks == sorted(ranks)


# The tree


def test_good_teams_have_no_problems() -> None:
    assert check_teams(TEAMS) == []


ROOT = TEAMS[0]
TEAM_CASES: dict[str, tuple[tuple[Team, ...], list[tuple[str, str]], str]] = {
    "none at all": ((), [("no_root", "teams")], "the root"),
    "two roots": ((ROOT, empty_team("other", None)), [("several_roots", "teams")], "root, other"),
    "unknown parent": ((ROOT, empty_team("a", "rooot")), [("unknown_parent", "teams.a.parent")], "did you mean root?"),
    "a cycle, once": (
        (ROOT, empty_team("a", "b"), empty_team("b", "c"), empty_team("c", "a"), empty_team("d", "a")),
        [("cycle", "teams.a.parent")],
        "a → b → c → a",
    ),
    "its own parent": ((ROOT, empty_team("a", "a")), [("cycle", "teams.a.parent")], "a → a"),
    "a team twice": ((ROOT, empty_team("a"), empty_team("a")), [("duplicate_team", "teams.a")], "2 teams"),
    "a system twice": (
        (ROOT, team_of("System1/butler", team_id="a")),
        [("duplicate_system", "systems.System1/butler")],
        "2 systems",
    ),
    "two System4s": (
        (team_of("System4/root", "System4/next"),),
        [("system_misnamed", "teams.root.systems.System4/next"), ("system_twice", "teams.root.systems")],
        "System4/root",
    ),
    "a System5 without its team's name": (
        (team_of("System5/boss"),),
        [("system_misnamed", "teams.root.systems.System5/boss")],
        "must be called System5/root",
    ),
    "a number that is not in the name": (
        (team_of(replace(member("System1/a"), number=4)),),
        [("system_misnamed", "teams.root.systems.System1/a")],
        "System4/root",
    ),
    "a member that says it is elsewhere": (
        (replace(team_of(), members=(member("System1/a", team="b"),)),),
        [("member_of_another_team", "teams.root.systems.System1/a")],
        "claims to be in team b",
    ),
}


@pytest.mark.parametrize("case", TEAM_CASES.values(), ids=TEAM_CASES.keys())
def test_bad_teams(case: tuple[tuple[Team, ...], list[tuple[str, str]], str]) -> None:
    teams, expected, hint = case
    problems = check_teams(teams)
    assert brief(problems) == expected
    assert hint in problems[0].message


def test_a_long_chain_of_teams_is_checked_in_no_time() -> None:
    chain = [empty_team("0", None), *(empty_team(str(n), str(n - 1)) for n in range(1, 20_000))]
    assert check_teams(reversed(chain)) == []


def test_what_passes_the_check_is_never_unavailable() -> None:
    index = RoutingIndex(1, TEAMS, (GOOD,))
    fired = index.rule(TeamId("root"), {"channel": "telegram", **next(alternatives(GOOD.filters))})
    assert fired is not None
    _, name, fanout = fired
    assert name == GOOD.name
    assert [lost.reason for lost in fanout.lost] == ["dead_letter_rule"]
    assert fanout.teams == ("onboarding",)


def test_the_default_team_passes_its_own_checks() -> None:
    teams = {DEFAULT_TEAM.team.team_id: DEFAULT_TEAM.team}
    assert check_teams(teams.values()) == []
    for draft in DEFAULT_TEAM.rules:
        rule = replace(GOOD, channel=draft.channel, filters=draft.filters, targets=draft.targets)
        assert check_rule(rule, teams) == []


def test_a_fact_may_have_several_values_where_a_filter_names_one() -> None:
    several = {"email_to": "ann@x.example\nben@x.example"}
    assert check_facts({"channel": "email"} | several) == []
    [problem] = check_facts({"channel": "email", "email_to": "ann@x.example\nben"})
    assert "'ben'" in problem.message
    assert check_facts({"channel": "email", "email_sender": several["email_to"]})

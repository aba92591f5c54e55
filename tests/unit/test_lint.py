"""What is probably a mistake: against brute force over every message there is, and case by case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import compress, product
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.channels import email
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.routing.check import check_rule
from switchboard.core.routing.decide import decide
from switchboard.core.routing.explain import in_order
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.routing.lint import Finding, lint, lint_change, lint_moves
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import (
    FilterValue,
    Move,
    Rule,
    RuleChange,
    SystemId,
    TeamId,
)
from switchboard.ports.channel import Channel
from tests.routing import NEW_YEAR, ROOT, empty_team, member, rule, team_of, to

A, B, FOUR = to("System1/a"), to("System1/b"), to("System4/root")
TEAM = team_of("System1/a", "System1/b", member("System4/root", "memo"))
RULE = replace(rule(A, number=50, channel="telegram", sender="1"), name="rule")
WIDE = replace(RULE, rule_id=UUID(int=10), name="wide", filters={}, priority=1)


def brief(findings: list[Finding]) -> list[tuple[str, str | None]]:
    return [(one.code, one.rule_name) for one in findings]


def written(rules: Iterable[Rule]) -> list[RuleChange]:
    """These rules as if each had just been made."""
    return [RuleChange(None, rule) for rule in rules]


def never(findings: list[Finding]) -> set[UUID | None]:
    """The rules that are said never to fire."""
    codes = {"shadowed", "duplicate", "unmatchable", "unmatchable_value"}
    return {one.rule_id for one in findings if one.code in codes}


# Brute force

KEYS_OF = {
    "slack": ("sender", "thread", "slack_user_id"),
    "email": ("sender", "thread", "email_domain"),
    "cli": ("sender", "thread"),
    "telegram": ("sender", "thread", "telegram_chat_type"),
    "telegram_bot": ("sender", "thread", "telegram_chat_type"),
}


def every_message() -> Iterator[dict[str, str]]:
    """All messages that rules of `RULES` can tell apart: each key has one of the values, or one that none asks for."""
    for channel, keys in KEYS_OF.items():
        for values in product(("1", "2", "3"), repeat=len(keys)):
            message = dict(zip(keys, values, strict=True))
            if kind := {"1": "private", "2": "group"}.get(message.pop("telegram_chat_type", "")):
                message |= {"telegram_chat_type": kind, "chat_type": kind}
            yield {"channel": channel, **message}
            if "chat_type" not in message:
                yield {"channel": channel, **message, "chat_type": "private"}


def may_be_stored(rule: Rule) -> bool:
    """No rule has unknown keys; one that has impossible values has no others beside them."""
    codes = {one.code for one in check_rule(rule, {ROOT: TEAM})}
    several = any(isinstance(one, tuple) for one in rule.filters.values())
    return "unknown_filter_key" not in codes and not (several and "unmatchable_value" in codes)


EVERY_MESSAGE = list(every_message())
RULES = st.lists(
    st.builds(
        Rule,
        rule_id=st.builds(lambda number: UUID(int=number), st.integers(0, 99)),
        team_id=st.just(ROOT),
        name=st.just("any"),
        channel=st.sampled_from(("slack", "email", "telegram", "*")),
        filters=st.dictionaries(
            st.sampled_from(("sender", "thread")), st.sampled_from(("1", "2", ("1", "2"))), max_size=2
        )
        | st.fixed_dictionaries(
            {},
            optional={
                "channel": st.sampled_from(("slack", "email", "nope", ("email", "slack"))),
                "sender": st.just("1"),
                "slack_user_id": st.just("1"),
                "email_domain": st.just("1"),
                "telegram_chat_type": st.just("private"),
                "chat_type": st.just("private"),
            },
        ),
        targets=st.sampled_from(((A,), (B,), (A, B), (B, A))),
        created_at=st.integers(0, 1).map(lambda days: NEW_YEAR + timedelta(days=days)),
        priority=st.integers(0, 1),
        active=st.sampled_from((True, True, True, False)),
    ).filter(may_be_stored),
    max_size=9,
    unique_by=lambda rule: rule.rule_id,
)


@pytest.mark.slow
@settings(max_examples=500)
@given(rules=RULES)
def test_a_rule_is_said_never_to_fire_iff_no_message_makes_it_fire(rules: list[Rule]) -> None:
    index = RoutingIndex(1, (TEAM,), rules)
    fire = {decide(index, facts).trail[0].rule_id for facts in EVERY_MESSAGE}
    assert never(lint((TEAM,), rules)) - {rule.rule_id for rule in rules if not rule.active} == {
        rule.rule_id for rule in rules if rule.active and rule.rule_id not in fire
    }


@settings(max_examples=300)
@given(rules=RULES)
def test_a_rule_in_the_way_comes_first_and_matches_whenever_the_other_does(rules: list[Rule]) -> None:
    for finding in lint((TEAM,), rules):
        if finding.by is None or finding.code == "same_name" or "together" in finding.message:
            continue
        by, hidden = (next(one for one in rules if one.rule_id == id_) for id_ in (finding.by, finding.rule_id))
        both = RoutingIndex(1, (TEAM,), [by, hidden])
        assert by.rule_id in {decide(both, facts).trail[0].rule_id for facts in EVERY_MESSAGE}
        assert hidden.rule_id not in {decide(both, facts).trail[0].rule_id for facts in EVERY_MESSAGE}
        same = (by.channel, by.filters, set(by.targets)) == (hidden.channel, hidden.filters, set(hidden.targets))
        assert (finding.code == "duplicate") == same or finding.code == "shadowed"


@settings(max_examples=300)
@given(rules=RULES, chosen=st.sets(st.integers(0, 8), max_size=2))
def test_lint_of_a_change_finds_what_lint_finds_about_those_rules(rules: list[Rule], chosen: set[int]) -> None:
    changes = written(rule for at, rule in enumerate(rules) if at in chosen)
    changed = {change.rule.rule_id for change in changes}
    found = lint_change((TEAM,), rules, changes, live=[SystemId("System1/a")])
    whole = lint((TEAM,), rules, live=[SystemId("System1/a")])
    assert found == [
        one for one in whole if changed and (one.rule_id is None or one.rule_id in changed or one.by in changed)
    ]


def test_many_sets_of_keys_are_looked_up_from_either_side() -> None:
    """More sets of keys than a rule has parts, and fewer: both ways find the one rule that is in the way."""
    values = {"chat_type": "private", "endpoint": "a", "sender": "a", "telegram_user_id": "7", "thread": "a"}
    sets = [dict(compress(values.items(), picked)) for picked in product((0, 1), repeat=5)]
    rules = [
        replace(RULE, rule_id=UUID(int=at), filters=filters, targets=(A,) if at else (B,))
        for at, filters in enumerate(sets, 1)
    ]
    assert never(lint((TEAM,), rules)) == set(), "the more specific come first"
    raised = replace(rules[1], priority=1)
    assert never(lint((TEAM,), [raised, *rules[2:]])) == {
        rule.rule_id for rule in rules[2:] if rule.filters.items() > raised.filters.items()
    }
    assert never(lint((TEAM,), [raised, rules[-1]])) == {rules[-1].rule_id}


# Case by case


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (WIDE, "comes first because its priority is 1, that of this rule 0"),
        (replace(RULE, rule_id=UUID(int=10), name="wide", targets=(B,)), "its id is lower"),
        (
            replace(WIDE, filters={"sender": "1"}, priority=0, targets=(B,), created_at=NEW_YEAR - timedelta(1)),
            "it is older",
        ),
    ],
)
def test_a_shadowed_rule_is_told_by_which_rule_and_why(by: Rule, why: str) -> None:
    (finding,) = (one for one in lint((TEAM,), [RULE, by]) if one.code == "shadowed")
    assert (finding.severity, finding.rule_id, finding.rule_name, finding.by) == (
        "warning",
        RULE.rule_id,
        "rule",
        by.rule_id,
    )
    assert finding.message.startswith("can never fire: 'wide' matches" if by.name == "wide" else "can never fire")
    assert finding.message.endswith(why)


def test_a_rule_is_hidden_when_each_of_its_values_is() -> None:
    either = replace(RULE, filters={"sender": ("1", "2")})
    one, two = (replace(WIDE, rule_id=UUID(int=n), name=f"of {n}", filters={"sender": str(n)}) for n in (1, 2))
    assert brief(lint((TEAM,), [either, one])) == []
    (finding,) = lint((TEAM,), [either, one, two])
    assert (finding.code, finding.rule_id, finding.by) == ("shadowed", either.rule_id, one.rule_id)
    assert "'of 1' and 'of 2' together match all the same messages, and come first" in finding.message
    (finding,) = lint((TEAM,), [replace(either, priority=2), two])
    assert (finding.code, finding.rule_name) == ("shadowed", "of 2")


def test_contradictory_values_are_told_from_a_rule_that_never_fires() -> None:
    mail = replace(
        RULE, channel="email", filters={"email_domain": "a.example", "email_sender": ("x@a.example", "y@b.example")}
    )
    assert brief(lint((TEAM,), [mail])) == [("partly_unmatchable", "rule")]
    never_so = replace(mail, filters={**mail.filters, "email_domain": ("c.example", "d.example")})
    assert ("unmatchable", "rule") in brief(lint((TEAM,), [never_so]))
    some = replace(RULE, channel="*", filters={"channel": ("email", "telegram"), "email_domain": "a.example"})
    assert brief(lint((TEAM,), [some])) == [("partly_unmatchable", "rule")]
    like_patterns = replace(RULE, filters={"sender": ("a", "b*", "c?")})
    assert brief(lint((TEAM,), [like_patterns])) == [("pattern_like", "rule")] * 2


def test_copies_hide_nothing_lead_nowhere_and_are_hidden_by_nothing() -> None:
    copy = replace(WIDE, copy=True)
    assert brief(lint((TEAM,), [RULE, copy])) == []
    assert brief(lint((TEAM,), [WIDE, replace(RULE, copy=True)])) == []
    assert brief(lint((TEAM,), [copy])) == [("dead_letters_everything", None)]
    unlike = replace(copy, channel="email", filters={"email_domain": "a.example", "email_sender": "x@b.example"})
    assert ("unmatchable", "wide") in brief(lint((TEAM,), [RULE, unlike]))
    asleep = lint((TEAM,), [RULE, replace(copy, targets=(B,))], live=[SystemId("System1/a")])
    assert brief(asleep) == [("target_without_live_member", "wide")]


def test_more_specific_rules_and_named_channels_can_shadow_too() -> None:
    plain = replace(RULE, filters={})
    spelt_out = replace(RULE, rule_id=UUID(int=10), name="spelt out", channel="*", filters={"channel": "telegram"})
    (finding,) = (one for one in lint((TEAM,), [plain, spelt_out]) if one.code == "shadowed")
    assert (finding.rule_id, finding.by) == (plain.rule_id, spelt_out.rule_id)
    assert finding.message.endswith("it is more specific")


@pytest.mark.parametrize(
    ("channel", "wide", "narrow"),
    [
        ("email", {"email_domain": "acme.example"}, {"email_sender": "boss@acme.example"}),
        ("*", {"email_domain": "acme.example"}, {"email_sender": "boss@acme.example"}),
        ("telegram", {"chat_type": "group"}, {"telegram_chat_type": "group"}),
        ("telegram", {"telegram_chat_id": "-1"}, {"telegram_chat_id": "-1", "telegram_user_id": "7"}),
    ],
)
def test_what_pins_down_more_precedes_the_older_and_only_priority_hides_it(
    channel: str, wide: dict[str, str], narrow: dict[str, str]
) -> None:
    older = replace(RULE, name="wide", channel=channel, filters=wide)
    newer = replace(RULE, rule_id=UUID(int=11), channel=channel, filters=narrow, targets=(B,))
    newer = replace(newer, created_at=newer.created_at + timedelta(days=1))
    assert in_order([older, newer]) == [newer, older]
    assert never(lint((TEAM,), [older, newer])) == set()
    (finding,) = (one for one in lint((TEAM,), [replace(older, priority=1), newer]) if one.code == "shadowed")
    assert (finding.rule_id, finding.by) == (newer.rule_id, older.rule_id)


@pytest.mark.parametrize(
    ("channel", "wide", "narrow"),
    [
        ("discord", {"discord_guild_id": "1"}, {"discord_channel_id": "2"}),
        ("slack", {"slack_team_id": "T1"}, {"slack_channel_id": "C1"}),
    ],
)
def test_a_channel_is_more_than_its_guild(channel: str, wide: dict[str, str], narrow: dict[str, str]) -> None:
    older = replace(RULE, channel=channel, filters=wide)
    newer = replace(RULE, rule_id=UUID(int=11), channel=channel, filters=narrow)
    newer = replace(newer, created_at=newer.created_at + timedelta(days=1))
    assert in_order([older, newer]) == [newer, older]


def test_filters_that_exclude_each_other_are_told() -> None:
    both = replace(RULE, channel="email", filters={"email_sender": "ann@x.org", "email_domain": "y.org"})
    (finding,) = (one for one in lint((TEAM,), [both, WIDE]) if one.rule_id == both.rule_id)
    assert (finding.code, finding.severity) == ("unmatchable", "warning")
    assert finding.message == "can never fire: its other filters imply email_domain 'x.org', not 'y.org'"
    same = replace(both, filters={"email_sender": "ann@x.org", "email_domain": "x.org"})
    assert lint((TEAM,), [same, WIDE]) == []


@pytest.mark.parametrize("value", ["ann*", "^ann", "ann$", r"\d+", "/ann/", "ann?"])
def test_what_looks_like_a_pattern_is_told(value: str) -> None:
    wild = replace(RULE, filters={"sender": value})
    (finding,) = (one for one in lint((TEAM,), [wild]) if one.rule_id == wild.rule_id)
    assert (finding.code, finding.severity, finding.field) == ("pattern_like", "warning", "filters.sender")


def test_a_key_that_one_channel_alone_has_asks_for_that_channel() -> None:
    mails = replace(WIDE, channel="email")
    domain = replace(RULE, channel="*", filters={"email_domain": "x.org"})
    (finding,) = (one for one in lint((TEAM,), [domain, mails]) if one.code == "shadowed")
    assert (finding.rule_id, finding.by) == (domain.rule_id, mails.rule_id)
    chats = replace(RULE, channel="*", filters={"telegram_chat_id": "1"})
    assert never(lint((TEAM,), [chats, WIDE])) == set(), "there is more than one channel of Telegram"


def test_a_duplicate_is_told_as_such_whatever_the_order_of_its_targets() -> None:
    first = replace(RULE, rule_id=UUID(int=1), name="first", targets=(A, B))
    twin = replace(RULE, rule_id=UUID(int=2), name="twin", targets=(B, A))
    catch_all = replace(RULE, rule_id=UUID(int=3), name="default", channel="*", filters={})
    findings = lint((TEAM,), [twin, first, catch_all, replace(catch_all, rule_id=UUID(int=4), name="again")])
    assert brief(findings) == [("duplicate", "twin"), ("duplicate", "again")]
    assert [one.by for one in findings] == [first.rule_id, catch_all.rule_id]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (
            {"email_domain": "x.org", "telegram_user_id": "1"},
            "no message of any channel has all of email_domain, telegram_user_id",
        ),
        ({"channel": "cli", "telegram_user_id": "1"}, "no message of cli has all of telegram_user_id"),
        ({"channel": "telegrm"}, "there is no channel 'telegrm'"),
    ],
)
def test_filters_that_no_message_meets_together(filters: dict[str, str], message: str) -> None:
    catch_all = replace(RULE, rule_id=UUID(int=3), channel="*", filters={})
    (finding,) = lint((TEAM,), [replace(RULE, channel="*", filters=filters), catch_all])
    assert (finding.code, finding.message) == ("unmatchable", f"can never fire: {message}")


def test_a_plug_ins_channel_may_have_keys_of_its_own() -> None:
    rule = replace(RULE, channel="*", filters={"email_domain": "x.org", "sent_by": "pigeon"})
    mail = Channel(name="pigeon", keys={**dict.fromkeys(CHANNELS["email"].keys, "lower"), "sent_by": "text"})
    with pytest.raises(ConfigurationError, match="a fact of another"):
        CHANNELS.adding([mail], {})
    pigeon = replace(mail, keys={**CHANNELS["email"].keys, "sent_by": "text"})
    assert lint((TEAM,), [rule], channels=CHANNELS.adding([pigeon], {})) == []
    found = lint((TEAM,), [rule], channels=CHANNELS.adding([replace(pigeon, keys={"sent_by": "text"})], {}))
    assert "unmatchable" in {one.code for one in found}


def test_a_rule_that_needs_a_fact_nothing_is_known_about_is_warned_about() -> None:
    needing = replace(RULE, channel="*", filters={"email_auth": "pass"})
    finding = {one.code: one for one in lint((TEAM,), [needing])}["unknown_fact"]
    assert (finding.severity, finding.rule_id) == ("warning", needing.rule_id)
    assert finding.message == (
        "can never fire: no mail server is trusted to authenticate senders; name yours under [email.trusted_servers]"
    )
    trusting = Channels((*CHANNELS.values(), email.trusting({"*": ["mx.example.org"]})))
    assert lint((TEAM,), [needing], channels=trusting) == []


def test_a_rule_for_mail_of_a_form_is_told_how_its_people_are_answered() -> None:
    form = replace(RULE, channel="email", filters={"email_sender": ("ann@x.example", "no-reply@x.example")})
    [finding] = lint((TEAM,), [form])
    assert (finding.code, finding.severity, finding.field) == ("unanswered", "note", "filters.email_sender")
    assert "set reply_to_automatic" in finding.message
    assert lint_change((TEAM,), [form], written([form])) == [finding]
    talking = replace(TEAM, members=(replace(TEAM.members[0], options={"reply_to_automatic": True}), *TEAM.members[1:]))
    fine = replace(form, filters={"email_sender": "ann@x.example"})
    for tree, one in ((TEAM, replace(form, reply_to_automatic=True)), (TEAM, fine), (talking, form)):
        assert "unanswered" not in {found.code for found in lint((tree,), [one])}


def test_inactive_rules_neither_fire_nor_are_in_the_way() -> None:
    assert lint((TEAM,), [RULE, replace(WIDE, active=False)]) == []
    assert never(lint((TEAM,), [replace(RULE, active=False), WIDE])) == set()


def test_what_would_be_refused_is_an_error_unless_the_rule_is_disabled() -> None:
    bad = replace(RULE, channel="telegramm", targets=(to("System1/aa"),))
    assert lint((TEAM,), [WIDE, replace(bad, active=False)]) == []
    findings = [one for one in lint((TEAM,), [WIDE, bad]) if one.rule_id == bad.rule_id]
    assert [(one.code, one.severity, one.field) for one in findings] == [
        ("unknown_channel", "error", "channel"),
        ("unknown_target", "error", "targets[0].system_id"),
    ]
    assert findings[1].meant[0] == "System1/a"
    assert lint((TEAM,), [WIDE, bad])[0].severity == "error", "the worst come first"


# Teams

HOUSE = (
    TEAM,
    team_of("System1/cook", "System4/house", team_id="house"),
    team_of("System1/mouse", team_id="cellar", parent="house"),
)
TO_HOUSE = replace(RULE, name="to house", filters={"sender": "2"}, targets=(to("house"),))
IN_HOUSE = replace(RULE, rule_id=UUID(int=60), team_id=TeamId("house"), name="in house", targets=(to("System1/cook"),))
IN_CELLAR = replace(
    RULE, rule_id=UUID(int=70), team_id=TeamId("cellar"), name="in cellar", targets=(to("System1/mouse"),)
)


def about(findings: list[Finding], code: str) -> dict[str, str]:
    return {one.team_id: one.message for one in findings if one.code == code}


def test_a_team_that_no_rule_leads_to_is_unreachable() -> None:
    found = about(lint(HOUSE, [TO_HOUSE, IN_HOUSE, IN_CELLAR]), "unreachable")
    assert found == {
        "cellar": "no message reaches team cellar: its parent is house, and no rule of it leads here; "
        "it has 1 active rules"
    }
    found = about(lint(HOUSE, [RULE, IN_HOUSE]), "unreachable")
    assert found == {
        "house": "no message reaches team house: its parent is root, and no rule of it leads here; "
        "it has 1 active rules",
        "cellar": "no message reaches team cellar: its parent is house, and no rule leads to it either",
    }


@pytest.mark.parametrize(
    "way",
    [
        replace(TO_HOUSE, active=False),
        replace(TO_HOUSE, filters={"sender": "1"}, created_at=NEW_YEAR + timedelta(1)),
        replace(TO_HOUSE, filters={"telegram_user_id": "ann"}),
    ],
    ids=("inactive", "shadowed", "unmatchable"),
)
def test_a_rule_that_never_fires_leads_nowhere(way: Rule) -> None:
    shadow = replace(RULE, rule_id=UUID(int=1))
    assert set(about(lint(HOUSE, [shadow, way, IN_HOUSE]), "unreachable")) == {"house", "cellar"}


def test_a_team_outside_of_the_tree_is_unreachable() -> None:
    lost = team_of("System1/x", team_id="lost", parent="gone")
    assert set(about(lint((TEAM, lost, empty_team("loop", "loop")), [RULE]), "unreachable")) == {"lost", "loop"}


def test_a_rule_of_a_team_that_is_not_there_is_an_error() -> None:
    (finding,) = (one for one in lint(HOUSE, [RULE, replace(IN_HOUSE, team_id=TeamId("hous"))]) if one.rule_id)
    assert (finding.code, finding.severity, finding.meant) == ("unknown_team", "error", ("house",))


DEAD: dict[str, tuple[list[Rule], dict[str, str]]] = {
    "no rules at all": ([], {"root": "becomes a dead letter: it has no rule that can fire"}),
    "all to its System4": (
        [
            replace(RULE, targets=(FOUR,)),
            replace(RULE, rule_id=UUID(int=2), channel="*", filters={}, targets=(FOUR,)),
        ],
        {"root": "becomes a dead letter: all its rules lead to System4/root"},
    ),
    "one rule leads to a butler": ([replace(RULE, targets=(FOUR,)), replace(RULE, channel="cli")], {}),
    "a rule with both": ([replace(RULE, targets=(FOUR, A))], {}),
    "a sub-team that is entered": ([TO_HOUSE], {"house": "it has no rule that can fire"}),
    "a sub-team whose rules are off": (
        [TO_HOUSE, replace(IN_HOUSE, active=False)],
        {"house": "it has no rule that can fire"},
    ),
    "a sub-team that is not entered": ([RULE], {}),
}


@pytest.mark.parametrize("case", DEAD.values(), ids=DEAD.keys())
def test_a_team_in_which_every_message_becomes_a_dead_letter(case: tuple[list[Rule], dict[str, str]]) -> None:
    rules, expected = case
    found = about(lint(HOUSE, rules), "dead_letters_everything")
    assert set(found) == set(expected)
    assert all(found[team_id].endswith(end) for team_id, end in expected.items())


def test_a_root_without_a_notified_handler_of_dead_letters() -> None:
    parent = team_of("System1/a", member("System4/root", active=False))
    house = team_of("System1/x", team_id="house")
    found = about(lint((parent, house), []), "no_handler")
    assert set(found) == {"root"}, "those of house are the root's"
    assert about(lint(HOUSE, []), "no_handler") == {}


def test_a_system4_that_only_files_dead_letters_needs_somebody_who_is_told() -> None:
    assert "silent_handler" not in dict(brief(lint((TEAM,), [])))
    (note,) = (one for one in lint((TEAM,), [], told=False) if one.code == "silent_handler")
    assert (note.severity, note.team_id) == ("note", "root")
    assert note.message.endswith("set dead_letters.tell")
    echo = replace(TEAM, members=tuple(replace(one, engine="echo") for one in TEAM.members))
    assert "silent_handler" not in dict(brief(lint((echo,), [], told=False)))


def test_butlers_that_could_answer_are_suggested() -> None:
    (finding,) = (one for one in lint(HOUSE, []) if one.code == "dead_letters_everything")
    assert finding.meant == ("System1/a", "System1/b", "house")


def test_targets_that_nobody_runs() -> None:
    rules = [replace(RULE, targets=(A, B, FOUR)), TO_HOUSE, IN_HOUSE]
    found = [
        one for one in lint(HOUSE, rules, live=[SystemId("System1/b")]) if one.code == "target_without_live_member"
    ]
    assert [(one.rule_name, one.field, one.message) for one in found] == [
        ("in house", "targets[0]", "no worker currently runs System1/cook; messages wait until one does"),
        ("rule", "targets[0]", "no worker currently runs System1/a; messages wait until one does"),
        (
            "to house",
            "targets[0]",
            "no worker currently runs a butler in team house or below; messages wait until one does",
        ),
    ]
    mouse = lint(HOUSE, rules, live=[SystemId("System1/mouse")])
    assert "to house" not in [name for code, name in brief(mouse) if code == "target_without_live_member"]
    assert "target_without_live_member" not in dict(brief(lint(HOUSE, rules)))


def test_a_default_for_one_channel_hides_who_would_be_asked_next() -> None:
    default = replace(RULE, name="default", filters={})
    assert "hiding_catch_all" not in dict(brief(lint((TEAM,), [RULE, default]))), "it hides nothing"
    last = replace(default, rule_id=UUID(int=77), name="last", channel="*")
    (note,) = (one for one in lint((TEAM,), [RULE, default, last]) if one.code == "hiding_catch_all")
    assert (note.severity, note.rule_name) == ("note", "default")
    assert "neither a model nor a catch-all of team root" in note.message
    for quiet in (
        replace(default, channel="*"),
        replace(default, targets=(A, B)),
        replace(default, active=False),
    ):
        assert "hiding_catch_all" not in dict(brief(lint((TEAM,), [RULE, quiet, last])))


def test_two_rules_of_one_name_in_a_team_are_noted() -> None:
    twin = replace(RULE, rule_id=UUID(int=78), filters={"sender": "9"})
    (note,) = lint((TEAM,), [RULE, twin])
    assert (note.code, note.severity) == ("same_name", "note")
    assert {note.rule_id, note.by} == {RULE.rule_id, twin.rule_id}
    assert lint((TEAM,), [RULE, replace(twin, active=False)]) == []


def test_lint_of_a_change_tells_which_rules_it_is_in_the_way_of() -> None:
    others = [RULE, replace(RULE, rule_id=UUID(int=51), filters={"sender": "2"}, channel="email")]
    findings = lint_change((TEAM,), [*others, WIDE], written([WIDE]))
    assert brief(findings) == [("shadowed", "rule")]
    assert lint_change((TEAM,), [*others, WIDE], written(others[1:])) == []
    assert lint_change((TEAM,), [*others, WIDE], []) == []


def test_lint_of_a_change_knows_which_other_rules_cannot_fire() -> None:
    broken = replace(RULE, filters={"channel": "email"})
    last = replace(WIDE, active=False)
    assert brief(lint_change((TEAM,), [broken, last], written([last]))) == [("dead_letters_everything", None)]


def test_lint_of_a_change_needs_only_the_rules_of_its_team() -> None:
    off = replace(IN_HOUSE, active=False)
    (finding,) = lint_change(HOUSE, [off], [RuleChange(IN_HOUSE, off)])
    assert (finding.code, finding.team_id) == ("dead_letters_everything", "house")


def test_a_team_that_a_change_leaves_without_rules_is_told_of() -> None:
    (finding,) = lint_change(HOUSE, [], [RuleChange(IN_HOUSE, None)])
    assert (finding.code, finding.team_id) == ("dead_letters_everything", "house")
    assert "it has no rule that can fire" in finding.message


ONLY_HERE = replace(RULE, rule_id=UUID(int=52), name="only here", filters={"sender": "3"})
LAST_WAY: dict[str, tuple[list[Rule], RuleChange]] = {
    "switched off": ([], RuleChange(TO_HOUSE, replace(TO_HOUSE, active=False))),
    "removed": ([], RuleChange(TO_HOUSE, None)),
    "led elsewhere": ([], RuleChange(TO_HOUSE, replace(TO_HOUSE, targets=(A,)))),
    "hidden": ([TO_HOUSE], RuleChange(None, WIDE)),
    "never a way": ([], RuleChange(None, replace(TO_HOUSE, filters={"channel": "email"}))),
}


@pytest.mark.parametrize("case", LAST_WAY.values(), ids=LAST_WAY.keys())
def test_removing_the_last_way_to_a_team_is_a_finding(case: tuple[list[Rule], RuleChange]) -> None:
    others, change = case
    rules = [ONLY_HERE, *others, *([] if change.after is None else [change.after])]
    found = about(lint_change(HOUSE, rules, [change]), "unreachable")
    assert found == {"house": "no message reaches team house: its parent is root, and no rule of it leads here"}
    another = replace(TO_HOUSE, rule_id=UUID(int=53), channel="cli")
    assert about(lint_change(HOUSE, [*rules, another], [change]), "unreachable") == {}


@pytest.mark.parametrize(
    "change",
    [
        RuleChange(replace(TO_HOUSE, active=False), None),
        RuleChange(ONLY_HERE, replace(ONLY_HERE, active=False)),
        RuleChange(replace(TO_HOUSE, targets=(to("cellar"),)), None),
    ],
    ids=("it was off", "it led to a butler", "not right below"),
)
def test_a_team_that_no_way_was_taken_from_is_not_told_of_at_every_edit(change: RuleChange) -> None:
    assert about(lint_change(HOUSE, [RULE], [change]), "unreachable") == {}


PLACES = {ROOT: (A, to("house")), TeamId("house"): (to("System1/cook"), to("cellar"))}
HOUSE_RULES = st.lists(
    st.sampled_from(list(PLACES)).flatmap(
        lambda place: st.builds(
            Rule,
            rule_id=st.builds(lambda number: UUID(int=number), st.integers(0, 99)),
            team_id=st.just(place),
            name=st.just("any"),
            channel=st.sampled_from(("telegram", "*")),
            filters=st.dictionaries(st.just("sender"), st.sampled_from("12"), max_size=1),
            targets=st.sampled_from(PLACES[place]).map(lambda target: (target,)),
            created_at=st.just(NEW_YEAR),
            active=st.booleans(),
        )
    ),
    max_size=8,
    unique_by=lambda rule: rule.rule_id,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(before=HOUSE_RULES, gone=st.sets(st.integers(0, 7)))
def test_a_change_that_cuts_a_team_off_is_told_of_at_once(before: list[Rule], gone: set[int]) -> None:
    removed = [rule for at, rule in enumerate(before) if at in gone]
    after = [rule for rule in before if rule not in removed]
    told = about(lint_change(HOUSE, after, [RuleChange(rule, None) for rule in removed]), "unreachable")
    was, is_now = (set(about(lint(HOUSE, rules), "unreachable")) for rules in (before, after))
    above_is_reached = {"house"} | ({"cellar"} if "house" not in is_now else set())
    assert (is_now - was) & above_is_reached <= told.keys()
    assert told.keys() <= is_now


@pytest.mark.parametrize(
    ("filters", "channel", "said"),
    [
        ({"telegram_chat_id": "-5"}, "telegram", "its messages have -100 now"),
        ({"telegram_chat_id": ("-7", "-5")}, "*", "its messages have -100 now"),
        ({"thread": "-100"}, "*", "its thread is still -5"),
        ({"thread": "-100"}, "matrix", None),
        ({"thread": "-5"}, "telegram", None),
        ({"telegram_chat_id": "-100"}, "telegram", None),
    ],
)
def test_a_rule_that_names_a_conversation_as_before_its_move_is_found(
    filters: dict[str, FilterValue], channel: str, said: str | None
) -> None:
    found = list(lint_moves([replace(RULE, filters=filters, channel=channel)], [Move("telegram", "-5", "-100")]))
    assert [one.message.rpartition(": ")[2] for one in found] == ([said] if said else [])
    assert all((one.code, one.severity) == ("moved", "warning") and one.meant for one in found)

"""Tests of rules: what a file of cases may say, and what becomes of a case."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.routing.backtest import DeadEnd, Receivers
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.routing.routetests import RouteCase, parse_cases, run_cases
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import SystemId, TeamId
from tests.routing import ROOT, rule, team_of

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BELOW = TeamId("below")
MEMO, CLERK = SystemId("System1/memo"), SystemId("System1/clerk")
TEAMS = (
    team_of(MEMO, "System4/root"),
    team_of(CLERK, team_id=BELOW),
)


INDEX = RoutingIndex(
    1,
    TEAMS,
    [
        rule(MEMO, number=1, channel="telegram"),
        rule(MEMO, BELOW, number=2, channel="email", email_domain="example.org"),
        rule(CLERK, number=3, channel="email", team=BELOW, email_domain="example.org"),
        rule(BELOW, "System4/root", number=4, channel="slack"),
    ],
)
ENVELOPE: dict[str, Any] = {
    "schema_version": "ingest.v1",
    "source": {"channel": "email", "provider": "imap", "endpoint_identity": "mail:me@example.org"},
    "event": {"external_event_id": "m-1", "observed_at": "2026-05-31T12:00:00Z"},
    "sender": {"identity": "Ann@Example.ORG"},
    "payload": {"raw": {}, "normalized_text": "hello"},
}
TELEGRAM = {"channel": "telegram", "telegram_chat_id": "5"}

PASSING: dict[str, tuple[dict[str, Any], Receivers]] = {
    "the short form": ({"facts": TELEGRAM, "expect": "System1/memo"}, Receivers((MEMO,))),
    "ids may be numbers": (
        {"facts": {"channel": "telegram", "telegram_chat_id": -100123}, "expect": ["System1/memo"]},
        Receivers((MEMO,)),
    ),
    "several, in any order": (
        {"facts": {"channel": "email", "email_domain": "example.org"}, "expect": ["System1/memo", "System1/clerk"]},
        Receivers((CLERK, MEMO)),
    ),
    "an envelope": ({"envelope": ENVELOPE, "expect": ["System1/clerk", "System1/memo"]}, Receivers((CLERK, MEMO))),
    "a dead letter": (
        {"facts": {"channel": "cli"}, "expect": {"dead_letters": [{"team": "root", "category": "no_route"}]}},
        Receivers((), (DeadEnd(ROOT, "no_route"),)),
    ),
    "two dead letters": (
        {
            "facts": {"channel": "slack"},
            "expect": {
                "dead_letters": [
                    {"team": "root", "category": "dead_letter_rule"},
                    {"team": "below", "category": "no_route"},
                ]
            },
        },
        Receivers((), (DeadEnd(BELOW, "no_route"), DeadEnd(ROOT, "dead_letter_rule"))),
    ),
    "a reply": (
        {"facts": TELEGRAM, "pinned": "System1/clerk", "expect": {"butlers": ["System1/clerk"]}},
        Receivers((CLERK,)),
    ),
    "a reply to somebody who is gone": (
        {"facts": TELEGRAM, "pinned": "System1/gone", "expect": "System1/memo"},
        Receivers((MEMO,)),
    ),
}


@pytest.mark.parametrize("case", PASSING.values(), ids=PASSING.keys())
def test_a_case_that_passes(case: tuple[dict[str, Any], Receivers]) -> None:
    form, expected = case
    (outcome,) = run_cases(INDEX, parse_cases({"cases": [form]}, NOW))
    assert (outcome.passed, outcome.expected, outcome.got) == (True, expected, expected)
    assert outcome.trail[0].team_id == ROOT


@pytest.mark.parametrize(
    ("expect", "got"),
    [
        (["System1/memo"], "too many get it"),
        (["System1/memo", "System1/clerk", "System1/other"], "one does not get it"),
        ({"butlers": ["System1/memo", "System1/clerk"], "dead_letters": [{"team": "root", "category": "poison"}]}, ""),
    ],
)
def test_butlers_that_are_not_expected_must_not_get_it(expect: Any, got: str) -> None:
    form = {"name": "mail", "facts": {"channel": "email", "email_domain": "example.org"}, "expect": expect}
    (outcome,) = run_cases(INDEX, parse_cases({"cases": [form]}, NOW))
    assert not outcome.passed, got
    assert outcome.got == Receivers((CLERK, MEMO))
    assert [step.rule_name for step in outcome.trail] == ["rule 2", "rule 3"]


def test_cases_keep_their_order_and_have_names() -> None:
    forms = [
        {"facts": TELEGRAM, "expect": "System1/memo"},
        {"name": "wrong", "facts": TELEGRAM, "expect": "System1/clerk"},
    ]
    outcomes = run_cases(INDEX, parse_cases({"cases": forms}, NOW))
    assert [(one.case.name, one.passed) for one in outcomes] == [("cases[0]", True), ("wrong", False)]
    assert outcomes[0].case == RouteCase("cases[0]", TELEGRAM, Receivers((MEMO,)))


GOOD: dict[str, Any] = {"facts": TELEGRAM, "expect": "System1/memo"}


def broken(**parts: object) -> dict[str, Any]:
    return {"cases": [GOOD, {**GOOD, **parts}]}


def enveloped(path: tuple[str, str], value: object) -> dict[str, Any]:
    envelope = copy.deepcopy(ENVELOPE)
    envelope[path[0]][path[1]] = value
    return {"cases": [{"envelope": envelope, "expect": "System1/memo"}]}


REFUSED: dict[str, tuple[object, str | None, str]] = {
    "a list": ([GOOD], None, "the file of route tests must be an object"),
    "no cases": ({}, "cases", "cases is missing"),
    "misspelt": (broken(expects="x"), "cases[1].expects", "did you mean expect?"),
    "nothing expected": ({"cases": [{"facts": TELEGRAM}]}, "cases[0].expect", "is missing"),
    "neither facts nor envelope": ({"cases": [{"expect": "System1/a"}]}, "cases[0]", "either facts or an envelope"),
    "both": (broken(envelope=ENVELOPE), "cases[1]", "either facts or an envelope"),
    "an envelope that is a text": ({"cases": [{"envelope": "{}", "expect": "x"}]}, "cases[0].envelope", "an object"),
    "an envelope with a mistake": (
        enveloped(("event", "observed_at"), "2026-05-31"),
        "cases[0].envelope.event.observed_at",
        "cases[0].envelope: event.observed_at",
    ),
    "a time that YAML has made": (enveloped(("event", "observed_at"), NOW), "cases[0].envelope", "put it in quotes"),
    "nobody expected": (broken(expect=[]), "cases[1].expect", "must name a recipient"),
    "nobody in the long form": (broken(expect={"butlers": []}), "cases[1].expect", "must name a recipient"),
    "a team expected": (broken(expect="below"), "cases[1].expect", "must be a butler such as System1/NAME"),
    "a System4 expected": (broken(expect=["System4/root"]), "cases[1].expect[0]", "not 'System4/root'"),
    "expected in another form": (broken(expect={"butler": "a"}), "cases[1].expect.butler", "did you mean butlers?"),
    "expected is a number": (broken(expect=5), "cases[1].expect", "must be System1/NAME, a list"),
    "an unknown category": (
        broken(expect={"dead_letters": [{"team": "root", "category": "noroute"}]}),
        "cases[1].expect.dead_letters[0].category",
        "did you mean no_route?",
    ),
    "pinned to a team": (broken(pinned="below"), "cases[1].pinned", "must be a butler"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_names_its_place(case: tuple[object, str | None, str]) -> None:
    document, field, hint = case
    with pytest.raises(InvalidInput) as caught:
        parse_cases(document, NOW)
    assert (caught.value.code, caught.value.field) == ("invalid_route_tests", field)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("facts", "code", "field", "hint"),
    [
        ({"sender": "a"}, "unknown_channel", "channel", "facts need a channel"),
        ({"channel": "telegramm"}, "unknown_channel", "channel", "did you mean telegram"),
        (
            {"channel": "telegram", "telegram_chatid": "5"},
            "unknown_filter_key",
            "telegram_chatid",
            "no 'telegram_chatid'; they have",
        ),
        (
            {"channel": "email", "email_sender": "Ann@x.org"},
            "unmatchable_value",
            "email_sender",
            "write 'ann@x.org'",
        ),
    ],
)
def test_facts_that_no_message_has_are_refused_as_those_of_a_dry_run(
    facts: dict[str, str], code: str, field: str, hint: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cases(broken(facts=facts), NOW)
    assert (caught.value.code, caught.value.field) == (code, f"cases[1].facts.{field}")
    assert hint in str(caught.value)


def test_a_plug_ins_channel_is_known_where_it_is_named() -> None:
    form = {"facts": {"channel": "pigeon", "sender": "coo"}, "expect": "System1/memo"}
    (case,) = parse_cases({"cases": [form]}, NOW, CHANNELS.adding([], {"pigeon": ["post"]}))
    assert case.facts == {"channel": "pigeon", "sender": "coo"}

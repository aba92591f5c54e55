"""`core/classification/history.py`: what a model is shown of a conversation, beside an oracle that tries all."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.history import (
    EMAIL,
    LIMITS,
    NONE,
    REALTIME,
    HistoryLimits,
    select_history,
    utterance_record,
    utterance_tokens,
)
from switchboard.core.text.tokens import estimate_tokens
from switchboard.domain.classification import Utterance
from tests.strategies import NOW


def said(minutes_ago: float, text: str = "hello", *, ours: bool = False) -> Utterance:
    return Utterance(NOW - timedelta(minutes=minutes_ago), "ann", ours, text)


@pytest.mark.parametrize(
    ("channels", "limits"),
    [
        ("telegram whatsapp slack discord matrix xmpp irc signal sms", REALTIME),
        ("telegram_bot telegram_user_client whatsapp_user_client", REALTIME),
        ("email", EMAIL),
        ("api mcp cli", NONE),
        ("webhook google_calendar spotify dashboard telegram2 emails", NONE),
    ],
)
def test_each_channel_has_its_strategy(channels: str, limits: HistoryLimits) -> None:
    assert {LIMITS[CHANNELS[channel].history] for channel in channels.split()} == {limits}


def test_the_limits_are_those_of_the_seeds() -> None:
    assert HistoryLimits("realtime", timedelta(minutes=15), 30, None) == REALTIME
    assert HistoryLimits("email", None, None, 50_000) == EMAIL
    assert select_history([said(1)], NONE, NOW) == ()
    assert {channel.history for channel in CHANNELS.values()} == {"realtime", "email", "none"}


def test_fifteen_minutes_are_within_and_a_moment_more_is_not() -> None:
    just, over = said(15), Utterance(NOW - timedelta(minutes=15, microseconds=1), "ann", False, "x")
    assert select_history([over, just], REALTIME, NOW) == (just,)


def test_of_forty_messages_the_newest_thirty_stay_oldest_first() -> None:
    talk = [said(10 - n / 10, str(n)) for n in range(40)]
    assert [one.text for one in select_history(reversed(talk), REALTIME, NOW)] == [str(n) for n in range(10, 40)]


def test_what_another_clock_dates_ahead_counts_as_new() -> None:
    ahead = said(-3)
    assert select_history([ahead, said(16)], REALTIME, NOW) == (ahead,)


def test_an_email_chain_has_no_age_but_a_size() -> None:
    year_old, mail = said(525_600, "first"), said(1, "word " * 60_000)
    assert select_history([year_old, said(2, "short")], EMAIL, NOW) == (year_old, said(2, "short"))
    [kept] = select_history([year_old, mail], EMAIL, NOW)
    assert kept.cut
    assert mail.text.startswith(kept.text)
    assert 40_000 < utterance_tokens(kept) <= 50_000


def test_the_one_that_does_not_fit_ends_the_walk_so_that_there_is_no_gap() -> None:
    small, large, newest = said(3, "small"), said(2, "large " * 50), said(1, "newest")
    limits = HistoryLimits("email", max_tokens=utterance_tokens(newest) + utterance_tokens(small))
    assert select_history([small, large, newest], limits, NOW) == (newest,)


def test_what_fits_to_the_token_is_kept() -> None:
    talk = (said(2, "one"), said(1, "two words"))
    exact = sum(map(utterance_tokens, talk))
    assert select_history(talk, HistoryLimits("email", max_tokens=exact), NOW) == talk
    assert select_history(talk, HistoryLimits("email", max_tokens=exact - 1), NOW) == talk[1:]


@pytest.mark.parametrize("budget", [0, 1, 10])
def test_a_budget_below_the_frame_of_an_utterance_leaves_nothing(budget: int) -> None:
    assert select_history([said(1, "word " * 100)], HistoryLimits("email", max_tokens=budget), NOW) == ()


def test_the_price_is_that_of_the_json_and_who_spoke_is_told() -> None:
    ours, html = said(1, "yes", ours=True), said(1, "<" * 100)
    assert utterance_record(ours)["from"] == "us"
    assert utterance_record(said(1))["from"] == "them"
    assert "cut" not in utterance_record(ours)
    assert utterance_record(Utterance(NOW, "ann", False, "x", cut=True))["cut"] is True
    assert utterance_tokens(html) > 3 * estimate_tokens(html.text)  # \u003c each


def _oracle(talk: list[Utterance], limits: HistoryLimits, now: datetime) -> tuple[Utterance, ...]:
    """The longest tail, in order of time, that keeps every limit: each start is tried."""
    ordered = sorted(talk, key=lambda one: one.at)
    for start in range(len(ordered) + 1):
        tail = ordered[start:]
        young = limits.max_age is None or all(now - one.at <= limits.max_age for one in tail)
        few = limits.max_count is None or len(tail) <= limits.max_count
        small = limits.max_tokens is None or sum(map(utterance_tokens, tail)) <= limits.max_tokens
        if young and few and small:
            return tuple(tail)
    raise AssertionError("the empty tail keeps every limit")


_TALK = st.lists(
    st.builds(
        lambda minutes, text, ours: said(minutes, text, ours=ours),
        st.integers(-2, 40),
        st.sampled_from(["", "yes", "word " * 20, "字" * 30, "<b>" * 10]),
        st.booleans(),
    ),
    max_size=12,
)
_LIMITS = st.builds(
    HistoryLimits,
    st.just("realtime"),
    st.none() | st.integers(0, 30).map(lambda minutes: timedelta(minutes=minutes)),
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 900),
)


@given(_TALK, _LIMITS)
def test_what_is_kept_is_the_longest_tail_within_the_limits(talk: list[Utterance], limits: HistoryLimits) -> None:
    kept, expected = select_history(talk, limits, NOW), _oracle(talk, limits, NOW)
    if not any(one.cut for one in kept):
        assert kept == expected
        return
    newest = max(enumerate(talk), key=lambda pair: (pair[1].at, pair[0]))[1]
    assert expected == ()
    assert [newest.text.startswith(one.text) for one in kept] == [True]
    assert sum(map(utterance_tokens, kept)) <= (limits.max_tokens or 0)


@given(_TALK)
def test_each_price_is_asked_once_where_nothing_is_cut(talk: list[Utterance]) -> None:
    asked: list[Utterance] = []

    def price(utterance: Utterance) -> int:
        asked.append(utterance)
        return 1

    kept = select_history(talk, EMAIL, NOW, price)
    assert len(asked) == len(kept) == len(talk)

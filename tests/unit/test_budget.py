"""`core/policy/budget.py`: what is reserved and spent adds up, and no number of sessions goes over a cap."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.policy.budget import (
    ZERO,
    Amount,
    BudgetAccount,
    BudgetRefusal,
    Cap,
    Price,
    amount,
    on,
    reserve,
    settle,
)
from switchboard.domain.llm import Bill, Usage
from switchboard.llm.spending import DayBook, Reserved

TODAY = date(2026, 6, 1)
_AMOUNTS = st.builds(Amount, st.integers(0, 100), st.integers(0, 100))
_CAPS = st.builds(Cap, st.none() | st.integers(0, 300), st.none() | st.integers(0, 300))


@pytest.mark.parametrize(
    ("tokens_in", "tokens_out", "price", "micros"),
    [
        (1000, 100, Price(3_000_000, 15_000_000), 4500),
        (1, 0, Price(1, 1), 1),
        (1_000_000, 0, Price(1, 1), 1),
        (1_000_001, 0, Price(1, 1), 2),
        (0, 0, Price(3_000_000, 15_000_000), 0),
        (1000, 100, None, 0),
    ],
)
def test_what_tokens_cost_is_rounded_up(tokens_in: int, tokens_out: int, price: Price | None, micros: int) -> None:
    assert amount(tokens_in, tokens_out, price) == Amount(tokens_in + tokens_out, micros)


@pytest.mark.parametrize(
    ("account", "wanted", "cap", "refusal"),
    [
        (BudgetAccount(TODAY), Amount(10, 5), Cap(), None),
        (BudgetAccount(TODAY, Amount(90)), Amount(10), Cap(tokens=100), None),
        (BudgetAccount(TODAY, Amount(90)), Amount(11), Cap(tokens=100), BudgetRefusal("day", "tokens", 100, 90, 11)),
        (
            BudgetAccount(TODAY, Amount(50), Amount(40)),
            Amount(11),
            Cap(100),
            BudgetRefusal("day", "tokens", 100, 90, 11, 40),
        ),
        (BudgetAccount(None, Amount(0, 7)), Amount(9, 4), Cap(micros=10), BudgetRefusal("message", "micros", 10, 7, 4)),
        (BudgetAccount(), Amount(1), Cap(tokens=0), BudgetRefusal("message", "tokens", 0, 0, 1)),
        (BudgetAccount(), ZERO, Cap(tokens=0, micros=0), None),
    ],
)
def test_what_may_be_reserved(account: BudgetAccount, wanted: Amount, cap: Cap, refusal: BudgetRefusal | None) -> None:
    found = reserve(account, wanted, cap)
    if refusal is not None:
        assert found == refusal
    else:
        assert found == BudgetAccount(account.day, account.spent, account.reserved + wanted)


def test_a_refusal_passes_if_only_running_calls_leave_no_room() -> None:
    assert BudgetRefusal("day", "tokens", 100, 90, 50, 40).passing
    assert not BudgetRefusal("day", "tokens", 100, 90, 51, 40).passing


def test_a_refusal_says_what_it_counts() -> None:
    told = str(BudgetRefusal("day", "micros", 100, 90, 11))
    assert told == "11 micro-dollars more than the 90 used would exceed the 100 of a day"


@given(st.lists(_AMOUNTS, max_size=12), _CAPS)
def test_whatever_runs_at_once_stays_within_the_cap_by_its_estimates(wanted: list[Amount], cap: Cap) -> None:
    account, granted = BudgetAccount(TODAY), []
    for one in wanted:
        after = reserve(account, one, cap)
        if isinstance(after, BudgetAccount):
            account = after
            granted.append(one)
    assert account.reserved.tokens == sum(one.tokens for one in granted) <= (cap.tokens or account.reserved.tokens)
    assert account.reserved.micros == sum(one.micros for one in granted) <= (cap.micros or account.reserved.micros)
    for one in granted:
        account = settle(account, one, one)
    assert account.reserved == ZERO
    assert account.spent == sum(granted, ZERO)


def test_the_real_cost_is_booked_even_above_the_cap() -> None:
    account = reserve(BudgetAccount(TODAY), Amount(10), Cap(tokens=10))
    assert isinstance(account, BudgetAccount)
    after = settle(account, Amount(10), Amount(25))
    assert after == BudgetAccount(TODAY, Amount(25))
    assert isinstance(reserve(after, Amount(1), Cap(tokens=10)), BudgetRefusal)


def test_a_call_that_was_never_made_costs_nothing() -> None:
    account = BudgetAccount(TODAY, Amount(5), Amount(10))
    assert settle(account, Amount(10), ZERO) == BudgetAccount(TODAY, Amount(5))


def test_more_than_was_reserved_cannot_be_freed() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        settle(BudgetAccount(TODAY, reserved=Amount(5)), Amount(6), ZERO)


def test_a_new_day_has_spent_nothing_but_what_still_runs_stays_reserved() -> None:
    account = BudgetAccount(TODAY, Amount(90), Amount(7))
    assert on(account, TODAY + timedelta(days=1)) == BudgetAccount(TODAY + timedelta(days=1), ZERO, Amount(7))
    assert on(account, TODAY) == account


async def test_the_book_of_a_process_does_not_grow_with_its_bills() -> None:
    one, two = [DayBook(_today), DayBook(_today)]
    await _used(one, 2, Usage(1000))
    await _used(two, 1, Usage(2000))
    assert vars(one) == vars(two)


def _today() -> date:
    return TODAY


async def _used(book: DayBook, times: int, usage: Usage) -> None:
    for _ in range(times):
        reserved = await book.reserve(Amount(usage.tokens), Cap())
        assert isinstance(reserved, Reserved)
        await book.settle(reserved, Bill("turn", "small", usage))


def test_neither_a_clock_set_back_nor_a_message_begins_a_new_day() -> None:
    account = BudgetAccount(TODAY, Amount(90))
    assert on(account, TODAY - timedelta(days=1)) == account
    assert on(BudgetAccount(None, Amount(90)), TODAY) == BudgetAccount(None, Amount(90))

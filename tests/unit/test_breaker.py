"""`core/policy/breaker.py`: every transition of the table, and a model of it that walks at random."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from switchboard.core.policy.breaker import Breaker, BreakerPolicy, CallEnd, Ticket, admit, settle, wait_left

POLICY = BreakerPolicy(threshold=3, wait=10.0, longest_wait=35.0, probe_timeout=60.0)


def passed(breaker: Breaker, now: float) -> tuple[Breaker, Ticket]:
    after, ticket = admit(breaker, now, POLICY)
    assert ticket is not None
    return after, ticket


def refused(breaker: Breaker, now: float) -> bool:
    after, ticket = admit(breaker, now, POLICY)
    assert after == breaker or ticket is not None
    return ticket is None


def fail(breaker: Breaker, now: float) -> Breaker:
    after, ticket = passed(breaker, now)
    return settle(after, ticket, CallEnd(False, now), POLICY)


def opened(now: float = 0.0) -> Breaker:
    return fail(fail(fail(Breaker(), now), now), now)


def test_two_failures_in_a_row_change_nothing_the_third_opens() -> None:
    twice = fail(fail(Breaker(), 0), 0)
    assert (twice.state, refused(twice, 0)) == ("closed", False)
    assert (opened().state, refused(opened(), 0), refused(opened(), 9.9)) == ("open", True, True)


def test_a_success_resets_the_count() -> None:
    twice, ticket = passed(fail(fail(Breaker(), 0), 0), 0)
    calm = settle(twice, ticket, CallEnd(True, 0), POLICY)
    assert fail(fail(calm, 0), 0).state == "closed"


def test_after_the_wait_one_probe_passes_and_no_second() -> None:
    probing, _ = passed(opened(), 10)
    assert probing.state == "half_open"
    assert refused(probing, 10)
    assert refused(probing, 69.9)


def test_a_probe_that_succeeds_closes_it() -> None:
    probing, ticket = passed(opened(), 10)
    closed = settle(probing, ticket, CallEnd(True, 11), POLICY)
    assert (closed.state, closed.failures, closed.openings, refused(closed, 11)) == ("closed", 0, 0, False)


def test_each_probe_that_fails_doubles_the_wait_up_to_the_longest() -> None:
    breaker, now, waits = opened(), 0.0, []
    for _ in range(4):
        waits.append(wait_left(breaker, now))
        now += waits[-1]
        breaker = fail(breaker, now)
    assert waits == [10, 20, 35, 35]


def test_a_lost_probe_is_replaced_and_its_late_outcome_counts_for_nothing() -> None:
    probing, lost = passed(opened(), 10)
    second, ticket = passed(probing, 70)
    assert settle(second, lost, CallEnd(True, 71), POLICY) == second
    assert settle(second, lost, CallEnd(False, 71), POLICY) == second
    assert settle(second, ticket, CallEnd(True, 71), POLICY).state == "closed"


def test_what_was_running_when_it_opened_neither_closes_nor_reopens_it() -> None:
    running, early = passed(Breaker(), 0)
    breaker = fail(fail(fail(running, 0), 0), 0)
    assert settle(breaker, early, CallEnd(True, 1), POLICY) == breaker
    probing, _ = passed(breaker, 10)
    assert settle(probing, early, CallEnd(False, 11), POLICY) == probing


def test_an_open_breaker_has_given_no_ticket_and_heeds_none() -> None:
    breaker = opened()
    for ok in (True, False):
        assert settle(breaker, Ticket(breaker.generation), CallEnd(ok, 99), POLICY) == breaker


def failing(*messages: str, alone: bool = False, after: Breaker | None = None) -> Breaker:
    """After calls for these messages have failed, each at its first chance, one after the other."""
    breaker, now = after or Breaker(), 0.0
    for message in messages:
        now += wait_left(breaker, now)
        breaker, ticket = passed(breaker, now)
        breaker = settle(breaker, ticket, CallEnd(False, now, message, alone), POLICY)
    return breaker


def test_failures_at_one_message_count_once_but_for_a_probe() -> None:
    one, many = failing(*["a"] * 50), failing("a", "b", "a", "c")
    assert (one.state, one.failures, many.state) == ("closed", 1, "open")
    assert failing("", "", "").state == "open", "calls for no message are each their own"
    assert failing("a", "b", "c", "a").openings == 2, "a probe for a message that it had failed at before"
    after, ticket = passed(one, 0)
    calm = settle(after, ticket, CallEnd(True, 0), POLICY)
    assert settle(calm, ticket, CallEnd(False, 0, "a"), POLICY).failures == 1, "a success forgets which had failed"


def test_the_only_model_left_opens_for_a_second_doubling_to_fifteen() -> None:
    waits = []
    for probes in range(6):
        breaker = failing("a", "b", "c", *["p"] * probes, alone=True)
        waits.append(
            breaker.until - failing("a", "b", "c", *["p"] * (probes - 1), alone=True).until if probes else breaker.until
        )
    assert waits == [1, 2, 4, 8, 15, 15]


@pytest.mark.parametrize(("alone", "waits"), [(True, [10, 20]), (False, [1, 2])])
def test_openings_of_a_lone_model_and_of_others_do_not_lengthen_each_other(*, alone: bool, waits: list[float]) -> None:
    """A model may be the only one of a butler, and one of two of another."""
    breaker, found = failing("a", "b", "c", *["p"] * 3, alone=alone), list[float]()
    for _ in waits:
        now = breaker.until
        breaker = failing("p", alone=not alone, after=breaker)
        found.append(breaker.until - now)
    assert found == waits


def test_how_long_to_wait() -> None:
    assert [wait_left(opened(), now) for now in (0, 4, 10, 99)] == [10, 6, 0, 0]
    assert wait_left(Breaker(), 0) == 0


class AnyOrder(RuleBasedStateMachine):
    """Calls begin, succeed, fail and get lost in any order while time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker, self.now = Breaker(), 0.0
        self.running: list[Ticket] = []

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        may = self.breaker.state == "closed" or self.now >= self.breaker.until
        self.breaker, ticket = admit(self.breaker, self.now, POLICY)
        assert (ticket is not None) is may
        if ticket is not None:
            self.running.append(ticket)

    @rule(ok=st.booleans(), which=st.integers(0, 9))
    def end(self, ok: bool, which: int) -> None:
        if self.running:
            ticket = self.running.pop(which % len(self.running))
            before = self.breaker
            self.breaker = settle(before, ticket, CallEnd(ok, self.now), POLICY)
            assert before.state != "open" or self.breaker == before

    @invariant()
    def at_most_one_probe_counts(self) -> None:
        if self.breaker.state == "half_open":
            assert self.running.count(Ticket(self.breaker.generation)) <= 1
        assert self.breaker.state != "closed" or self.breaker.failures < POLICY.threshold
        assert wait_left(self.breaker, self.now) <= max(POLICY.longest_wait, POLICY.probe_timeout)


AnyOrder.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase

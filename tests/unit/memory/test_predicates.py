"""What the table of predicates decides, whatever a model proposes."""

from __future__ import annotations

import pytest

from switchboard.core.memory.predicates import (
    OTHER,
    PREDICATES,
    SaidBy,
    choose_permanence,
    find_predicate,
    may_be_kept,
    may_be_shown_to_groups,
    may_leave,
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lives_at", "lives_at"),
        (" Lives at ", "lives_at"),
        ("allergic-to", "allergic_to"),
        ("favourite_colour", "other"),
        ("", "other"),
        ("__init__", "other"),
    ],
)
def test_a_predicate_is_found_however_it_is_written(name: str, found: str) -> None:
    assert find_predicate(name).name == found


def test_each_name_of_the_table_finds_itself() -> None:
    assert all(find_predicate(name) is one and one.name == name for name, one in PREDICATES.items())


def test_a_model_proposes_the_permanence_only_of_what_is_not_in_the_table() -> None:
    assert choose_permanence(find_predicate("allergic_to"), "passing") == "permanent"
    assert choose_permanence(find_predicate("mood"), "permanent") == "passing"
    assert choose_permanence(OTHER, "passing") == "passing"
    assert choose_permanence(OTHER) == "stable"


@pytest.mark.parametrize(
    ("name", "by_others", "to_groups", "elsewhere"),
    [
        ("likes", True, True, True),
        ("do_not_contact", True, True, True),
        ("bank_account", True, True, False),
        ("allergic_to", False, False, False),
        ("religion", False, False, False),
        ("parent_of", False, False, False),
        ("other", True, True, True),
    ],
)
def test_who_may_tell_and_see_what(name: str, by_others: bool, to_groups: bool, elsewhere: bool) -> None:
    predicate = find_predicate(name)
    assert may_be_kept(predicate, "other") == by_others
    assert may_be_shown_to_groups(predicate) == to_groups
    assert may_leave(predicate) == elsewhere


@pytest.mark.parametrize("said_by", ["subject", "guardian", "owner"])
def test_the_allergy_of_a_child_is_kept_if_a_guardian_says_so(said_by: SaidBy) -> None:
    assert may_be_kept(find_predicate("allergic_to"), said_by)


def test_what_may_do_harm_is_told_first_and_never_passes() -> None:
    safety = {one.name for one in PREDICATES.values() if one.safety}
    assert {"allergic_to", "takes_medicine", "do_not_contact"} <= safety
    assert not [name for name in safety if PREDICATES[name].permanence == "passing"]

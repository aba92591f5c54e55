"""Whose words the parts of mails are said to be, on the corpus of `tests/words`: by client and by language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.words.first_mails import SIZE
from tests.words.forms import form_names
from tests.words.languages import CODES
from tests.words.measure import (
    ALL_SHOWN,
    AS_BY_LAW,
    NONE_STOLEN,
    OWN_KEPT,
    Found,
    described,
    measured,
    measured_first,
)
from tests.words.orders import in_own_words, orders, own_of


def test_the_corpus_is_as_wide_as_it_says() -> None:
    found = measured()
    clients = {one.case.client for one in found}
    assert len(form_names()) >= 60
    assert len(CODES) >= 10
    assert len(clients) >= 20
    assert len(orders()) >= 60
    assert len({one.form for one in orders()}) == len(orders())
    assert len(measured_first()) == SIZE


@pytest.mark.parametrize("figure", [ALL_SHOWN, NONE_STOLEN, OWN_KEPT])
def test_in_every_mail(figure: str) -> None:
    faults = [one for one in measured() if one.fault(figure)]
    assert not faults, f"{len(faults)} of {len(measured())}\n" + "\n".join(map(described, faults[:10]))


def test_passages_are_as_the_laws_say() -> None:
    found = measured()
    faults = [one for one in found if one.fault(AS_BY_LAW)]
    shown = f"{len(faults)} of {len(found)}\n" + "\n".join(map(described, faults[:10]))
    assert len(faults) <= len(found) / 100, shown
    assert not _worse_than(0.99, lambda one: one.case.language), f"in some language\n{shown}"
    assert not _worse_than(0.9, lambda one: one.case.client), f"of some client\n{shown}"


def _worse_than(share: float, key: Callable[[Found], str]) -> list[str]:
    """The groups of which a smaller share is as the laws say."""
    groups = defaultdict[str, list[bool]](list)
    for one in measured():
        groups[key(one)].append(not one.fault(AS_BY_LAW))
    return [name for name, good in groups.items() if sum(good) < share * len(good)]


def test_ordinary_first_mails_stay_the_senders_own() -> None:
    lost = [one for one in measured_first() if one.lost]
    shown = "\n".join(f"{one.first.what}, {one.first.language}: {one.lost!r}" for one in lost[:10])
    assert len(lost) <= SIZE / 50, f"{len(lost)} of {SIZE}\n{shown}"


def test_no_order_of_others_counts_as_the_senders_words() -> None:
    obeyed = {one.form: own_of(one) for one in orders() if in_own_words(one)}
    shown = "\n".join(f"{form}: {own!r}" for form, own in list(obeyed.items())[:10])
    assert not obeyed, f"{len(obeyed)} of {len(orders())}\n{shown}"

"""What is known of a fact besides its words: its kind, whether it is denied, when it holds, and who may say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from switchboard.core.memory.extraction import RULES, LearnableEntry, Learned, parse_facts
from switchboard.core.memory.guarding import guard_predicate
from switchboard.core.memory.predicates import find_predicate
from switchboard.core.passages.own import own_text, read_passages
from switchboard.core.text.tokens import estimate_tokens
from tests.words.orders import orders, payload_of

ANN: Final = "telegram/bot/ann"
MONDAY: Final = datetime(2026, 11, 30, 18, 30, tzinfo=UTC)


def state(said: str, value: str, *, owner: bool = False, **more: object) -> list[Learned]:
    """What stands of a fact whose text is all that a person said, by default of themselves."""
    line = LearnableEntry("user", ANN, said, MONDAY, 1, private=True)
    given = {"text": said, "value": value, "entry": 1, **more}
    return list(parse_facts([given], [line], {ANN} if owner else ()))


@pytest.mark.parametrize(
    ("said", "value", "predicate", "kept"),
    [
        ("I live in Leeds", "Leeds", "lives_at", ("lives_at", False)),
        ("I live in Leeds", "Leeds", "Lives at", ("lives_at", False)),
        ("I live in Leeds", "Leeds", None, ("other", False)),
        ("I live in Leeds", "Leeds", "dwells", ("other", False)),
        ("I do not live in Leeds", "Leeds", "lives_at", ("lives_at", True)),
        ("Ich wohne nicht mehr in Leeds", "Leeds", "lives_at", ("lives_at", True)),
        ("I am not without friends", "friends", "other", ("other", False)),
        ("I don't like figs", "figs", "dislikes", ("dislikes", False)),
        ("I don't like figs", "figs", "likes", ("likes", True)),
        ("I have diabetes", "diabetes", "other", ("has_condition", False)),
        ("Ich bin schwanger", "schwanger", "wants", ("has_condition", False)),
        ("I never eat nuts because I am allergic to nuts", "nuts", "likes", ("allergic_to", False)),
        ("I am not allergic to nuts", "nuts", "allergic_to", ("allergic_to", True)),
        ("I used to live in Leeds", "Leeds", "lives_at", ("lives_at", True)),
        ("I am used to living in Leeds", "Leeds", "lives_at", ("lives_at", False)),
        ("My ex-wife is Clara", "Clara", "married_to", ("married_to", True)),
        ("I never stopped eating meat", "meat", "likes", ("likes", False)),
        ("I stopped eating nuts", "nuts", "allergic_to", ("allergic_to", False)),
        ("I almost live in Leeds", "Leeds", "lives_at", ("lives_at", False)),
    ],
)
def test_the_code_knows_what_is_said_and_whether_it_is_denied(
    said: str, value: str, predicate: object, kept: tuple[str, bool]
) -> None:
    [found] = state(said, value, predicate=predicate)
    assert (found.predicate, found.denied) == kept
    assert (found.value, found.said_by) == (value, "subject")


def day(number: int) -> datetime:
    """Of the same month, or the next."""
    return datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=number - 1)


@pytest.mark.parametrize(
    ("said", "begin", "last", "period"),
    [
        ("I am in Rome until Friday", "2026-11-30", "2026-12-04", (day(30), day(35))),
        ("I am in Rome until Friday", None, "2026-12-04T10:00:00Z", (None, day(35))),
        ("Ab morgen bin ich in Rom", "2026-12-01", None, (day(31), None)),
        ("I lived in Rome until 1999", None, "1999-12-31", (None, datetime(2000, 1, 1, tzinfo=UTC))),
        ("I am in Rome", "2026-11-30", "2026-11-30", (None, None)),  # names no time
        ("I am in Rome until Friday", "2026-12-05", "2026-12-04", (None, None)),
        ("I am in Rome until Friday", "0001-01-01", "9999-12-31", (None, None)),
        ("I am in Rome until Friday", "2026-13-45", 20261204, (None, None)),
        ("I am in Rome until Friday", "Friday", {"day": 4}, (None, None)),
        ("Since May I am allergic to nuts", "2026-05-01", "2026-12-04", (datetime(2026, 5, 1, tzinfo=UTC), None)),
    ],
)
def test_it_holds_for_the_days_that_may_be_meant(
    said: str, begin: object, last: object, period: tuple[datetime | None, datetime | None]
) -> None:
    value = next(word for word in ("nuts", "Rome", "Rom") if word in said)
    [found] = state(said, value, owner=False, **{"from": begin, "until": last})
    assert (found.valid_from, found.valid_to) == period


@pytest.mark.parametrize(
    ("said", "predicate", "subject", "owner", "said_by"),
    [
        ("Noor keeps 3 geese", "owns", "Noor", False, "other"),
        ("Noor keeps 3 geese", "owns", "Noor", True, "owner"),
        ("Noor is allergic to geese", "allergic_to", "Noor", True, "owner"),
        ("Noor is allergic to geese", "allergic_to", "Noor", False, None),
        ("Noor is allergic to geese", "likes", "Noor", False, None),
        ("Noor hat Angst vor geese und ist krank", "knows", "Noor", False, None),
        ("I am allergic to geese", "likes", "self", False, "subject"),
    ],
)
def test_of_somebody_elses_health_only_owners_tell(
    said: str, predicate: str, subject: str, owner: bool, said_by: str | None
) -> None:
    found = state(said, "geese", owner=owner, predicate=predicate, subject=subject)
    assert [one.said_by for one in found] == ([] if said_by is None else [said_by])


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("Noor carries an EpiPen", "allergic_to"),
        ("Noor verträgt keine Milch", "does_not_tolerate"),
        ("Er nimmt Medikamente", "takes_medicine"),
        ("She goes to a therapist on Mondays", "treated_by"),
        ("Wir sind katholisch", "religion"),
        ("I am gay", "sexuality"),
        ("He is in a trade union", "trade_union"),
        ("Bob is bipolar and autistic", "has_condition"),
        ("Bob voted for the Greens", "politics"),
        ("The gayest of flags", "likes"),
        ("I like chess", "likes"),
    ],
)
def test_words_of_health_and_belief_are_special_whatever_they_are_called(text: str, predicate: str) -> None:
    assert guard_predicate(find_predicate("likes"), text).name == predicate


def test_of_two_sentences_with_a_value_the_one_counts_that_is_told() -> None:
    line = LearnableEntry("user", ANN, "I do not live in Leeds. My sister lives in Leeds.", MONDAY, 1, private=True)
    told = ("I live in Leeds", "My sister lives in Leeds", "I do not live in Leeds")
    found = parse_facts([{"text": one, "value": "Leeds", "entry": 1} for one in told], [line])
    assert [(one.text, one.denied) for one in found] == [(told[1], False), (told[2], True)]


@pytest.mark.parametrize(
    "said", ["I used to live", "I almost live", "I quit living", "I do not live", "I wish to live"]
)
def test_what_takes_a_statement_back_is_told_with_it(said: str) -> None:
    line = LearnableEntry("user", ANN, f"{said} in Leeds", MONDAY, 1, private=True)
    told = ("I live in Leeds", f"{said} in Leeds")
    found = parse_facts([{"text": one, "value": "Leeds", "entry": 1} for one in told], [line])
    assert [one.text for one in found] == [told[1]]


def test_an_obeying_model_finds_no_fact_in_what_others_wrote() -> None:
    """In 230 mails and updates a stranger's words stand among, below or above those of the sender."""
    payloads = [payload for one in orders() if "Trudy" in (payload := payload_of(one)).normalized_text]
    fact = {"text": "900 euro to Trudy", "value": "900 euro to Trudy", "entry": 1, "subject": "Trudy"}
    found = dict.fromkeys((True, False), 0)
    for payload in payloads:
        own = own_text(payload.passages or read_passages(payload.normalized_text, "telegram"))
        for said in (own, None):
            line = LearnableEntry("user", ANN, payload.normalized_text, MONDAY, 1, private=True, own=said)
            found[said is own] += len(parse_facts([fact, {**fact, "subject": "self"}], [line], {ANN}))
    assert (len(payloads) >= 100, found[True]) == (True, 0)
    assert found[False] > 100, "as the sender's own words, it would be one"


def test_the_rules_are_short() -> None:
    assert estimate_tokens(RULES) <= 600

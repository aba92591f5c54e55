"""By what people of address books are found, and who is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.modules.contacts.cards import Card, WayKind
from switchboard.modules.contacts.keys import e164_of, key_of, keys_sought, words_of
from switchboard.modules.contacts.resolve import ContactMatch, Resolved, rank_matches, score_of_words


@pytest.mark.parametrize(
    ("number", "region", "found"),
    [
        ("0170 1234567", "DE", "+491701234567"),
        ("+49 170 1234567", "", "+491701234567"),
        ("+49 (0)170/123-4567 ext. 5", "", "+491701234567"),
        ("0170 1234567", "", ""),
        ("110", "DE", ""),
        ("5552671", "US", ""),
        ("no number", "DE", ""),
        ("", "", ""),
    ],
)
def test_only_valid_numbers_have_one_spelling(number: str, region: str, found: str) -> None:
    assert e164_of(number, region) == found
    if not found:
        assert key_of("phone", number, region) == f"phone {''.join(number.split())}"


@pytest.mark.parametrize(
    ("kind", "written", "sought"),
    [
        ("email", "Ben@Example.org", "mailto:ben@example.org"),
        ("phone", "tel 0170/1234567", "+491701234567"),
        ("handle", "telegram:@Ben_M", "@ben_m"),
        ("handle", "xmpp:ben@jabber.example", "ben@jabber.example"),
    ],
)
def test_what_is_sought_meets_what_is_written(kind: WayKind, written: str, sought: str) -> None:
    assert key_of(kind, written.removeprefix("tel "), "DE") in keys_sought(sought, "DE")


def test_names_are_found_without_case_and_accents() -> None:
    assert words_of("  José  O.Hara-Ångström, Straße ") == ("jose", "o", "hara", "angstrom", "strasse")


@given(st.text(max_size=700), st.sampled_from(["", "DE", "US"]))
def test_any_text_can_be_sought(text: str, region: str) -> None:
    assert all(len(key) <= 500 for key in keys_sought(text, region))
    assert all("%" not in word and "_" not in word for word in words_of(text))
    assert len(words_of(text)) <= 40


def match(name: str, sought: str, nickname: str = "") -> ContactMatch:
    card = Card(name, name, "3.0", nicknames=(nickname,) if nickname else ())
    return ContactMatch("/b", name, card, *score_of_words(card, words_of(sought)))


def test_two_who_are_about_as_likely_are_never_guessed() -> None:
    whole, part = match("Ben Miller", "ben miller"), match("Ben Miller Junior", "ben miller")
    assert Resolved(rank_matches([part, whole])).certain == whole
    two = Resolved(rank_matches([match("Ben Miller", "ben"), match("Ben Smith", "ben"), match("Benedict", "ben")]))
    assert [one.card.name for one in two.likely] == ["Ben Miller", "Ben Smith"]
    assert two.certain is None
    named = Resolved(rank_matches([match("Benjamin", "ben", "Ben"), match("Ben", "ben")]))
    assert (named.certain, len(named.likely)) == (None, 2)
    assert Resolved(()).certain is None

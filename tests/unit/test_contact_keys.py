"""By what people of address books are found, and who is meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.modules.contacts.cards import Card, WayKind
from switchboard.modules.contacts.keys import card_words, e164_of, key_of, keys_sought, search_words, words_of
from switchboard.modules.contacts.linking import link_request
from switchboard.modules.contacts.names import ContactId, label_books, read_id
from switchboard.modules.contacts.resolve import ContactMatch, MatchedPerson, resolve_matches, score_of_words


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


def match(name: str, sought: str, nickname: str = "", **more: Any) -> ContactMatch:
    words = card_words(search_words(Card(name, name, "3.0", nicknames=(nickname,) if nickname else ())))
    where = {"account": "ann", "collection": "/b", "name": f"{name}.vcf", "uid": name, **more}
    score, why = score_of_words(words, words_of(sought))
    return ContactMatch(shown=name, words=words, score=score, why=why, **where)


def shown(people: Iterable[MatchedPerson]) -> list[str]:
    return [one.cards[0].shown for one in people]


def test_two_who_are_about_as_likely_are_never_guessed() -> None:
    whole, part = match("Ben Miller", "ben miller"), match("Ben Miller Junior", "ben miller")
    assert resolve_matches([part, whole]).certain == MatchedPerson((whole,))
    two = resolve_matches([match("Ben Miller", "ben"), match("Ben Smith", "ben"), match("Benedict", "ben")])
    assert (shown(two.likely), two.certain) == (["Ben Miller", "Ben Smith"], None)
    named = resolve_matches([match("Benjamin", "ben", "Ben"), match("Ben", "ben")])
    assert (named.certain, len(named.likely)) == (None, 2)
    assert resolve_matches([]).certain is None


MAIL, PHONE, HANDLE = "email ben@example.org", "phone +491701234567", "handle ben"


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ({"uid": "1"}, {"uid": "1", "name": "Miller, Ben"}, True),
        ({"uid": "1", "keys": {MAIL}}, {"uid": "1", "name": "Ben M.", "keys": {MAIL, PHONE}}, True),
        ({"uid": "1", "keys": {MAIL}}, {"uid": "1", "name": "Ben M.", "keys": {PHONE}}, False),
        ({"uid": "1", "keys": {HANDLE}}, {"uid": "1", "name": "Ben M.", "keys": {HANDLE}}, False),
        ({"keys": {MAIL}}, {"keys": {MAIL, PHONE}}, True),
        ({"keys": {PHONE}}, {"keys": {PHONE}, "name": "Miller, Ben"}, True),
        ({"keys": {PHONE}}, {"keys": {PHONE}, "name": "Ben Smith"}, False),
        ({"keys": {HANDLE}}, {"keys": {HANDLE}}, False),
        ({"keys": {MAIL}}, {"keys": {PHONE}}, False),
        ({"uid": ""}, {"uid": ""}, False),
    ],
)
def test_one_person_in_two_books_is_one(first: dict[str, Any], second: dict[str, Any], one: bool) -> None:
    cards = []
    for number, own in enumerate((first, second)):
        told = {"uid": f"own {number}", "collection": f"/{number}", **own}
        keys, name = frozenset(told.pop("keys", ())), told.pop("name", "Ben Miller")
        cards.append(match(name, "ben", keys=keys, **told))
    found = resolve_matches(cards)
    assert (len(found.people), sum(len(person.cards) for person in found.people)) == (1 if one else 2, 2)
    assert (found.certain is not None) == one


def test_cards_that_a_third_one_joins_are_of_one_person() -> None:
    left, right = match("Ben", "ben", uid="1", keys=frozenset({MAIL})), match("Ben", "ben", uid="2", collection="/c")
    both = match("Ben", "ben", uid="2", collection="/d", keys=frozenset({MAIL}))
    for cards in ([left, right, both], [both, left, right], [right, both, left]):
        assert [len(person.cards) for person in resolve_matches(cards).people] == [3]


@given(st.text(max_size=60), st.text(max_size=60), st.lists(st.text(max_size=20), max_size=3), st.booleans())
def test_words_of_cards_are_read_as_they_were_written(
    name: str, given_name: str, nicks: list[str], group: bool
) -> None:
    kept = search_words(
        Card("1", name, "3.0", given=given_name, nicknames=tuple(nicks), organisation="Acme", group=group)
    )
    read = card_words(kept)
    assert (read.full, read.spoken) == (words_of(name), words_of(given_name))
    assert [one for one in read.nicknames if one] == [words for one in nicks if (words := words_of(one))]
    assert kept.startswith("=") == group
    assert all(f" {word}" in kept for word in (*words_of(name), "acme"))


@given(
    st.lists(st.text(min_size=1, max_size=10).filter(lambda one: "/" not in one), min_size=1, max_size=3),
    st.text(min_size=1),
)
def test_ids_are_read_as_they_are_told(path: list[str], name: str) -> None:
    books = ["/".join(("", *path)), "/".join(("", "other", *path)), "/zzz/zzz"]
    labels = label_books(books)
    assert len({*labels.values()}) == len({*books})
    for label in labels.values():
        told = ContactId("ann", label, name)
        assert read_id(str(told)) == told


@pytest.mark.parametrize("text", ["", "ann", "ann/x", "ann//x", "/ann/x/y", "a/b/"])
def test_what_is_no_id(text: str) -> None:
    assert read_id(text) is None


@pytest.mark.parametrize(
    ("person", "channel", "handle", "endpoint", "told"),
    [
        ("ann", "telegram", "5488", "", "switchboard people link ann telegram 5488\n"),
        ("ann", "slack", "U1", "T0/bot", "switchboard people link ann slack U1 --endpoint T0/bot\n"),
        ("ann", "email", "a'; rm -rf ~ #@x", "", """switchboard people link ann email 'a'"'"'; rm -rf ~ #@x'\n"""),
        ("Ann B.", "telegram", "1", "", None),
        ("ann", "tele gram", "1", "", None),
        ("ann", "telegram", "1\n2", "", None),
        ("ann", "telegram", "1\u202e2", "", None),
    ],
)
def test_a_link_is_only_asked_for(person: str, channel: str, handle: str, endpoint: str, told: str | None) -> None:
    if told is None:
        with pytest.raises(ValueError, match=r"the (?:person|channel|handle)"):
            link_request(person, channel, handle, endpoint)
    else:
        assert told in link_request(person, channel, handle, endpoint)

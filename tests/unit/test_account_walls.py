"""Who sees how much of an account of calendars or contacts, as a table."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Final

import pytest
from pydantic import ValidationError

from switchboard.core.models_of import table_model
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts import walls
from switchboard.modules.accounts.logins import read_login
from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.modules.accounts.walls import Sight, accounts_seen, sight_of, why_nothing
from switchboard.ports.people_seen import NOBODY_SEEN, SeenPerson

PLACE: Final = ("https://dav.example", "ann", PasswordPlace(env="PASSWORD"))
OWN: Final = DavAccount(*PLACE, person="ann")
SHARED: Final = DavAccount(*PLACE, person="ann", busy_for=("person:bob", "group:choir"))
FAMILY: Final = DavAccount(*PLACE, group="family")


def seen(person: str, *groups: str, private: bool = True) -> SeenPerson:
    return SeenPerson(person, frozenset(groups), private)


WALLS: Final[tuple[tuple[SeenPerson, Sight, Sight, Sight], ...]] = (
    # who                                        Ann's      Ann's, busy for Bob and the choir    the family's
    (seen("ann"), "all", "all", "nothing"),
    (seen("ann", "family"), "all", "all", "all"),
    (seen("ann", "family", private=False), "busy", "busy", "busy"),
    (seen("bob"), "nothing", "busy", "nothing"),
    (seen("bob", private=False), "nothing", "nothing", "nothing"),
    (seen("cem", "choir", "family"), "nothing", "busy", "all"),
    (seen("cem", "choir", "family", private=False), "nothing", "nothing", "busy"),
    (seen("cem", "families"), "nothing", "nothing", "nothing"),
    (seen(""), "nothing", "nothing", "nothing"),
    (NOBODY_SEEN, "nothing", "nothing", "nothing"),
    (seen("", "family", "choir"), "nothing", "nothing", "nothing"),
    (SeenPerson(private=True, household=True), "nothing", "nothing", "all"),
)


@pytest.mark.parametrize(("who", "own", "shared", "family"), WALLS)
def test_what_is_seen_of_an_account(who: SeenPerson, own: Sight, shared: Sight, family: Sight) -> None:
    assert (sight_of(who, OWN), sight_of(who, SHARED), sight_of(who, FAMILY)) == (own, shared, family)
    accounts = {"a-family": FAMILY, "own": OWN, "shared": SHARED}
    sights = {"own": own, "shared": shared, "a-family": family}
    assert [*accounts_seen(who, accounts, busy=True).items()] == [it for it in sights.items() if it[1] != "nothing"]
    assert {*accounts_seen(who, accounts)} == {name for name, sight in sights.items() if sight == "all"}


CLAUSES: Final = (
    ("sight_of", "if seen.household:", "if False:"),
    ("sight_of", '"all" if account.group else "nothing"', '"all"'),
    ("sight_of", "if not seen.person:", "if False:"),
    ("sight_of", "if _is_theirs(seen, account):", "if True:"),
    ("sight_of", '"all" if seen.private else "busy"', '"all"'),
    ("sight_of", "seen.private and _is_named", "_is_named"),
    ("sight_of", " and _is_named(seen, account)", ""),
    ("_is_theirs", "account.person == seen.person", "True"),
    ("_is_theirs", "account.group in seen.groups", "True"),
    ("_is_named", 'f"person:{seen.person}", ', ""),
    ("_is_named", '*(f"group:{group}" for group in seen.groups)', ""),
)
"""A function, what stands there, and what stands there instead."""


def table_with(name: str = "", old: str = "", new: str = "") -> list[tuple[Sight, ...]]:
    """What is seen, if a function has another text."""
    space = dict(vars(walls))
    for function in (walls._is_theirs, walls._is_named, walls.sight_of):
        text = inspect.getsource(function)
        assert function.__name__ != name or old in text
        exec(text.replace(old, new) if function.__name__ == name else text, space)  # noqa: S102
    return [tuple(space["sight_of"](who, account) for account in (OWN, SHARED, FAMILY)) for who, *_ in WALLS]


@pytest.mark.parametrize(("name", "old", "new"), CLAUSES)
def test_without_a_clause_something_else_is_seen(name: str, old: str, new: str) -> None:
    usual = [(own, shared, family) for _, own, shared, family in WALLS]
    assert table_with() == usual
    assert table_with(name, old, new) != usual


@pytest.mark.parametrize(
    ("who", "accounts", "why"),
    [
        (seen("ann"), {}, "No account is set up"),
        (NOBODY_SEEN, {"ann": OWN}, "not linked to a person"),
        (seen("ann", private=False), {"ann": OWN}, "in a private one"),
        (seen("bob"), {"ann": OWN}, "No account is yours"),
        (SeenPerson(private=True, household=True), {"ann": OWN}, "No account is yours"),
    ],
)
def test_why_nothing_is_seen(who: SeenPerson, accounts: dict[str, DavAccount], why: str) -> None:
    assert why in why_nothing(who, accounts)


TABLE: Final[JsonObject] = {"url": "https://dav.example", "user": "ann", "password": {"env": "P"}, "person": "ann"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"person": ""}, "whose account it is"),
        ({"group": "family"}, "whose account it is"),
        ({"password": {}}, "give the password as"),
        ({"password": {"env": "P", "file": "p"}}, "give the password as"),
        ({"password": "secret"}, "password"),
        ({"url": "dav.example"}, "https address"),
        ({"url": "http://dav.example"}, "in the clear"),
        ({"url": "https://ann:secret@dav.example"}, "neither a user nor a password"),
        ({"region": "Germany"}, "region"),
        ({"zone": "Europe/Berlyn"}, "no time zone 'Europe/Berlyn'"),
        ({"busy_for": ["bob"]}, 'such as "person:ann"'),
        ({"sends": "me"}, "sends"),
        ({"pasword": "x"}, "pasword"),
    ],
)
def test_a_wrong_table_is_refused_with_what_would_be_right(change: JsonObject, said: str) -> None:
    model = table_model(DavAccount)
    assert isinstance(model.model_validate(TABLE), DavAccount)
    with pytest.raises(ValidationError) as refused:
        model.model_validate({**TABLE, **change})
    assert said in str(refused.value)
    assert "secret" not in said


def test_the_password_is_read_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    account = DavAccount("https://dav.example", "ann", PasswordPlace(file=Path("ann.password")), person="ann")
    with pytest.raises(ConfigurationError, match=r"the account 'ann': the file ann\.password is missing"):
        read_login("ann", account)
    for password in ("first", "second"):
        (tmp_path / "ann.password").write_text(f"{password}\n")
        assert read_login("ann", account).password == password
    monkeypatch.setenv("PASSWORD", "third")
    assert read_login("ann", OWN).password == "third"

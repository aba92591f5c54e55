"""`switchboard modules login google` and `microsoft`, through the command line: consent, accounts, consent again."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.modules.accounts.settings import DavAccount
from switchboard.store.database import Database
from switchboard.store.people import people
from switchboard.testing.google import OWN, GoogleCalendar, GoogleServer, Refusal
from switchboard.testing.oauth import CLIENT_SECRET, OAuthPerson, OAuthServer
from switchboard.transport.oauth.token_file import read_tokens
from tests.consenting import consent

AUTH: Final = "https://www.googleapis.com/auth/"
READING: Final = (f"{AUTH}calendar.readonly", f"{AUTH}contacts.readonly")


class TokensOf(set[str]):
    """Those that a provider has given out."""

    def __init__(self, provider: OAuthServer) -> None:
        self._provider = provider

    def __contains__(self, token: object) -> bool:
        return isinstance(token, str) and self._provider.user_of(token) is not None


@dataclass(frozen=True)
class House:
    """An installation's directory, and Google."""

    place: Path
    provider: OAuthServer
    google: GoogleServer
    database_url: str

    async def log_in(self, *options: str, kind: str = "google", **answers: str) -> tuple[int, str]:
        given = {"address": OWN, "client": "client.json", "whose": "person:ann", "url": self.google.url, **answers}
        sets = [f"--set={name}={value}" for name, value in given.items()]
        here = {
            "SWITCHBOARD_DATABASE_URL": self.database_url,
            "SWITCHBOARD_DATA_DIR": str(self.place / "data"),
        }
        code, said = await consent(["modules", "login", kind, *options, *sets], self.place, **here)
        assert CLIENT_SECRET not in said
        return code, " ".join(said.split())

    def table(self, module: str) -> dict[str, Any]:
        found = tomllib.loads((self.place / "switchboard.toml").read_text())
        accounts: dict[str, Any] = found.get("modules", {}).get(module, {}).get("accounts", {})
        return accounts


@pytest.fixture
async def house(database: Database, database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with database.transaction() as one:
        await people.create(one, "ann", "ann")
    (tmp_path / "switchboard.toml").write_text('log_level = "warning"\n')
    holidays = GoogleCalendar("holidays@example.com", role="reader")
    async with OAuthServer() as provider, GoogleServer(GoogleCalendar(), holidays) as google:
        provider.person = OAuthPerson(OWN)
        google.tokens = TokensOf(provider)
        (tmp_path / "client.json").write_bytes(provider.client_file())
        yield House(tmp_path, provider, google, database_url)


async def test_one_consent_reads_calendars_and_contacts_another_writes(house: House) -> None:
    code, said = await house.log_in(zone="Europe/Berlin")
    assert code == 0, said
    assert "holidays@example.com' can only be read" in said.replace("',", "'")
    shared = {"provider": "google", "user": OWN, "person": "ann", "token_file": "google-ann.token"}
    api = {"url": house.google.url}
    assert house.table("calendar") == {"ann": {**shared, **api, "zone": "Europe/Berlin", "sends": "nobody"}}
    assert house.table("contacts") == {"ann": {**shared, **api}}
    file = house.place / "google-ann.token"
    kept = read_tokens(file)
    assert (stat.S_IMODE(file.stat().st_mode), kept.scopes, kept.user) == (0o600, READING, OWN)
    assert kept.refresh_token not in said + (house.place / "switchboard.toml").read_text()
    DavAccount(**{**house.table("calendar")["ann"], "token_file": file}).check()

    before, settings = kept, (house.place / "switchboard.toml").read_text()
    assert before.sign_in == "switchboard modules login google --again google-ann.token"
    code, said = await house.log_in("--again", "google-ann.token", "--write")
    assert (code, 'set sends = "server"' in said) == (0, True), said
    after = read_tokens(house.place / "google-ann.token")
    assert after.scopes == (*READING, f"{AUTH}calendar.events")
    assert after.refresh_token != before.refresh_token
    assert (house.place / "switchboard.toml").read_text() == settings
    house.provider.person = OAuthPerson("bob@example.org")
    code, said = await house.log_in("--again", "google-ann.token")
    assert (code != 0, "bob@example.org has signed in" in said) == (True, True), said
    assert read_tokens(house.place / "google-ann.token") == after


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("unticked", f"has not granted all that was asked for; missing: {AUTH}contacts.readonly"),
        ("no API", "see whether the API is enabled in the project of the client"),
    ],
)
async def test_nothing_is_kept_of_a_login_that_fails(house: House, case: str, says: str) -> None:
    if case == "unticked":
        house.provider.person = OAuthPerson(OWN, leaves_out=frozenset({f"{AUTH}contacts.readonly"}))
    if case == "no API":
        house.google.spoil("calendarList.list", Refusal(403, "accessNotConfigured"))
    code, said = await house.log_in()
    assert (code != 0, says in said) == (True, True), said
    assert sorted(one.name for one in house.place.iterdir() if one.name != "data") == [
        "client.json",
        "switchboard.toml",
    ]

"""`switchboard modules login caldav` and `carddav`, through the command line, against servers of others."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import stat
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from switchboard.app.login_desk import SettingsDesk
from switchboard.app.ops.invitations import check_invitations
from switchboard.app.ops.modules import module_settings
from switchboard.app.settings import load_settings
from switchboard.cli.login_terminal import LoginTerminal, read_answers
from switchboard.core.people.known import KnownPeople
from switchboard.modules.accounts.presets import PRESETS, other_place, place_at
from switchboard.modules.accounts.wizard import log_in_caldav
from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.ports.login_desk import LOGIN_DESK
from switchboard.ports.module import ModuleContext
from switchboard.store.connectors.accounts import Holder, lease_account
from switchboard.store.database import Database
from switchboard.store.people import people
from tests.commands import Cli
from tests.dav_servers import PASSWORD, USER, Answered, DavProxy, card, dav_proxy, event, radicale, xandikos
from tests.installed import forget, install
from tests.processes import environment

MODULE: Final = """
from collections.abc import Mapping

from msgspec import Struct, field

from switchboard.modules.accounts.settings import AccountName, DavAccount
from switchboard.ports.module import ModuleManifest


class Settings(Struct, frozen=True):
    accounts: Mapping[AccountName, DavAccount] = field(default_factory=dict)


MANIFEST = ModuleManifest(
    "{module}", (), "nowhere:open", settings=Settings,
    logs_in={{"{kind}": "switchboard.modules.accounts.wizard:log_in_{kind}"}},
)
"""
KINDS: Final = {"calendar": "caldav", "contacts": "carddav"}
SETTINGS: Final = '# Ours. Ünïcode, and  spaces\nlog_level = "warning"\n\n[modules.other]\nx = 1'
MORE: Final = ("whose=person:ann", "zone=Europe/Vienna", "busy_for=person:noor, group:family")


@dataclass(frozen=True)
class Home:
    """An installation's directory, the command line in it, and a server of accounts behind a proxy."""

    place: Path
    cli: Cli
    proxy: DavProxy
    database: Database

    async def log_in(self, kind: str, *more: str, **answers: str) -> tuple[int, str]:
        given = {"url": f"http://127.0.0.1:{self.proxy.port}/", "user": USER, **answers}
        sets = [f"--set={name}={value}" for name, value in given.items()] + [f"--set={one}" for one in more]
        code, out, err = await asyncio.to_thread(
            self.cli.run, "modules", "login", kind, *sets, "--password-env", "DAV_PASSWORD"
        )
        assert PASSWORD not in out + err
        return code, out + err

    @property
    def file(self) -> Path:
        return self.place / "switchboard.toml"

    def account(self, module: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = tomllib.loads(self.file.read_text())["modules"][module]["accounts"][name]
        return found


@pytest.fixture(scope="module", params=[radicale, xandikos], ids=["radicale", "xandikos"])
def proxy(request: pytest.FixtureRequest) -> Iterator[DavProxy]:
    with ExitStack() as stack:
        server = stack.enter_context(request.param())
        server.put("ben.vcf", card("Ben"))
        server.of_events().put("tea.ics", event("Tea"))
        yield stack.enter_context(dav_proxy(server))


@pytest.fixture
async def home(
    proxy: DavProxy,
    database: Database,
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Home]:
    proxy.behave()
    sources = {name: MODULE.format(module=name, kind=kind) for name, kind in KINDS.items()}
    install(tmp_path / "modules", monkeypatch, sources)
    async with database.transaction() as one:
        for person in ("ann", "noor"):
            await people.create(one, person, person)
        await people.join_group(one, "noor", "family")
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "switchboard.toml").write_text(SETTINGS)
    env = environment(tmp_path / "data", DATABASE_URL=database_url) | {"DAV_PASSWORD": PASSWORD}
    yield Home(place, Cli(capsys, monkeypatch, env), proxy, database)
    forget(sources)


async def test_calendars_and_address_books_are_connected_at_once(home: Home) -> None:
    code, out = await home.log_in("caldav", *MORE, "also=yes", "region=AT", "name=ann-work")
    assert (code, ": 1 object" in out, "restart" in out) == (0, True, True), out
    assert home.file.read_text().startswith(SETTINGS)
    common = {"url": f"http://127.0.0.1:{home.proxy.port}/", "user": USER, "person": "ann"}
    calendar = {"zone": "Europe/Vienna", "busy_for": ["person:noor", "group:family"]}
    place = {"password": {"env": "DAV_PASSWORD"}}
    sends = "server" if home.proxy.server.name == "xandikos" else "nobody"
    assert home.account("calendar", "ann-work") == common | calendar | {"sends": sends} | place
    assert home.account("contacts", "ann-work") == common | {"region": "AT"} | place
    assert load_settings().modules["other"] == {"x": 1}
    before = home.file.read_bytes()
    code, out = await home.log_in("caldav", *MORE, "name=ann-work")
    assert (code, "in the settings already" in out) == (1, True), out
    code, out = await home.log_in("contacts", "whose=group:family")
    assert (code, home.account("contacts", "family")["group"]) == (0, "family"), out
    assert home.file.read_bytes().startswith(before)


async def test_invitations_are_mailed_where_the_server_sends_none_and_we_can(home: Home) -> None:
    """From an address of theirs; doctor says so, and what is wrong once nothing sends from there any more."""
    await lease_account(home.database, "email", USER.upper(), Holder("desk"))
    code, out = await home.log_in("caldav", "whose=person:ann", "addresses=a@x.example", "also=no")
    scheduling = home.proxy.server.name == "xandikos"
    assert (code, home.account("calendar", "ann")["sends"]) == (0, "server" if scheduling else "mail"), out
    table = module_settings(load_settings(), CALENDAR)
    [found] = await check_invitations(home.database, table)
    assert (found.status, "we mail them" in found.detail) == ("ok", not scheduling)
    await home.database.run("delete from connector_account")
    [found] = await check_invitations(home.database, table)
    assert (found.status, f"nothing sends as a@x.example, {USER}" in found.detail) == (
        ("ok", False) if scheduling else ("warning", True)
    )


async def test_a_typed_password_gets_a_file_that_only_we_may_read(home: Home) -> None:
    given = [f"--set={one}" for one in (f"url=http://127.0.0.1:{home.proxy.port}/", f"user={USER}", "whose=person:ann")]
    asked = ("modules", "login", "carddav", *given, "--password-file", "-", "--json")
    code, out, err = await asyncio.to_thread(home.cli.run, *asked, given=f"{PASSWORD}\n")
    assert (code, json.loads(out)["module"]) == (0, "contacts"), err
    file = home.place / home.account("contacts", "ann")["password"]["file"]
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (f"{PASSWORD}\n", 0o600)


WRONG: Final = {
    "401": ("caldav", Answered(401), (), "correct them; many providers want a password"),
    "page": ("caldav", Answered(200, {"content-type": "text/html"}, b"<html>Log in"), (), "a page for people"),
    "no dav": ("carddav", Answered(404), (), "give the address of its CardDAV server"),
    "away": ("caldav", Answered(503), (), "try again later"),
    "elsewhere": ("caldav", Answered(302, {"location": "https://login.example/"}), (), "gets no password"),
    "http": ("caldav", None, ("url=http://nas.example/",), "use https://"),
    "who": ("caldav", None, ("whose=person:eve",), "there is no person 'eve'"),
    "what": ("caldav", None, ("whose=ann",), "write person:ID"),
    "group": ("caldav", None, ("busy_for=group:work",), "there is no group 'work'"),
    "zone": ("caldav", None, ("zone=Europe/Nowhere",), "there is no time zone"),
    "mail": ("caldav", None, ("sends=mail",), "sends: "),
    "post": ("caldav", None, ("sends=post",), "it is server, mail or nobody"),
    "preset": ("caldav", None, ("preset=fastmial",), "did you mean fastmail?"),
    "question": ("caldav", None, ("zonee=Europe/Berlin",), "did you mean zone?"),
    "kind": ("caldev", None, (), "no module logs in 'caldev'"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_told_and_nothing_is_written(home: Home, case: str) -> None:
    kind, answered, more, told = WRONG[case]
    home.proxy.before = lambda _: answered
    code, out = await home.log_in(kind, "whose=person:ann", *more)
    assert (code in (1, 5), told in out) == (True, True), out
    assert [one.name for one in home.place.iterdir()] == ["switchboard.toml"]
    assert home.file.read_text() == SETTINGS


@pytest.mark.parametrize("text", ["modules = {other = {x = 1}}\n", "modules.calendar = {}\n"])
async def test_a_file_that_cannot_be_added_to_is_left_as_it_is(home: Home, text: str) -> None:
    home.file.write_text(text)
    code, out = await home.log_in("caldav", "whose=person:ann")
    assert (code, "cannot be added" in out, home.file.read_text()) == (1, True, text), out


async def test_without_a_file_it_says_what_to_set(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.file.unlink()
    accounts: dict[str, Any] = {}
    for name in ("ann", "o-brien"):
        code, out = await home.log_in("caldav", "whose=person:ann", f"name={name}", "addresses=o'brien@home.example")
        line = next(one for one in out.splitlines() if one.startswith("SWITCHBOARD_MODULES__CALENDAR="))
        variable, _, value = shlex.split(line)[0].partition("=")
        monkeypatch.setenv(variable, value)
        accounts = json.loads(value)["accounts"]
        assert (code, accounts[name]["password"]) == (0, {"env": "DAV_PASSWORD"})
    assert list(accounts) == ["ann", "o-brien"], "whoever sets this loses none"
    assert list(home.place.iterdir()) == []


async def test_a_name_that_is_taken_is_refused_when_it_is_said(home: Home) -> None:
    assert (await home.log_in("caldav", *MORE))[0] == 0
    code, out = await home.log_in("caldav", "whose=person:ann", "zone=Europe/Nowhere", "also=yes")
    assert (code, "in the settings already" in out, "no time zone" in out) == (1, True, False), out


async def test_the_addresses_that_the_server_says_are_offered(home: Home) -> None:
    def say(_: object, answered: Answered) -> Answered:
        mails = b"<d:href>mailto:Ann@Work.example</d:href><d:href>/users/ann/</d:href>"
        told = b'<k:calendar-user-address-set xmlns:d="DAV:" xmlns:k="urn:ietf:params:xml:ns:caldav">%s</' % mails
        pattern = (
            rb"<[^>]*calendar-user-address-set ?/>|<[^>]*calendar-user-address-set>.*?</[^>]*calendar-user-address-set>"
        )
        whole = told + b"k:calendar-user-address-set>"
        return Answered(answered.status, answered.headers, re.sub(pattern, whole, answered.body))

    home.proxy.after = say
    assert (await home.log_in("caldav", *MORE))[0] == 0
    assert home.account("calendar", "ann")["addresses"] == ["ann@work.example"]


async def test_what_is_not_given_is_asked_until_it_is_right(home: Home) -> None:
    typed = ["", f"http://127.0.0.1:{home.proxy.port}/", USER, PASSWORD, "ann", "group:family", ""]
    typed += ["nobody", "me@work.example", "", "", "", "no"]
    settings = load_settings()
    known = KnownPeople(persons=frozenset({"ann"}), groups=frozenset({"family"}))
    with CliRunner().isolation(input="\n".join(typed) + "\n") as (_, asked, _):
        terminal = LoginTerminal({}, None, None, asking=True)
        desk = SettingsDesk(terminal, settings, known)
        await log_in_caldav(ModuleContext(None, _no_store, {}, {LOGIN_DESK: desk}))
        questions = asked.getvalue().decode()
    assert "write person:ID" in questions
    assert "'nobody' is no e-mail address" in questions
    assert home.account("calendar", "family")["addresses"] == ["me@work.example"]
    assert PASSWORD not in questions
    assert home.account("calendar", "family")["group"] == "family"
    assert "contacts" not in tomllib.loads(home.file.read_text())["modules"]


def _no_store(_: str) -> Any:
    raise AssertionError("a wizard needs no tables")


@pytest.mark.parametrize(
    ("preset", "typed", "place"),
    [
        ("nextcloud", "cloud.example.org", "https://cloud.example.org/remote.php/dav"),
        ("nextcloud", "https://example.org/nc/remote.php/dav/", "https://example.org/nc/remote.php/dav/"),
        ("radicale", "https://r.example.org/ann/", "https://r.example.org/ann/"),
    ],
)
def test_addresses_of_providers(preset: str, typed: str, place: str) -> None:
    assert place_at(PRESETS[preset], typed) == place
    assert other_place("carddav", place) == place
    assert other_place("carddav", "https://caldav.icloud.com/") == "https://contacts.icloud.com/"


def test_an_answer_has_a_name() -> None:
    given: Sequence[str] = ("user=ann=b", " zone = Europe/Berlin ")
    assert read_answers(given) == {"user": "ann=b", "zone": "Europe/Berlin"}

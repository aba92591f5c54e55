"""Connections on the page: an account of Telegram's test server is added, paired, answered, paused and removed."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.testing.bot_api import TOKEN, BotApi
from tests.browser import DESK, PHONE, Tab, open_tab
from tests.processes import Server, environment, running, told
from tests.servers import NO_TLS, Opened, open_server
from tests.waiting import eventually
from tests.web_forms import enter, follow, tick
from tests.web_house import link_of, write_accounts

BEN: Final = {"id": 41, "is_bot": False, "first_name": "Ben"}
WRONG: Final = "123456:not-the-one"


@dataclass(frozen=True)
class Home:
    """A real `up`, its directory, and Telegram."""

    server: Server
    place: Path
    api: BotApi

    @property
    def url(self) -> str:
        return self.server.environment["SWITCHBOARD_URL"]

    async def run(self, *words: str) -> dict[str, Any]:
        return await asyncio.to_thread(told, self.server.environment, *words)


@pytest.fixture
async def home(place: Path, api: BotApi) -> AsyncIterator[Home]:
    """With a butler and no account."""
    env = environment(place / "data", CHANNELS_DIR=str(place / "channels.d"))
    with running(env, "up", cwd=place) as server:
        assert "url" in server.said, server.said
        yield Home(server, place, api)


async def sign_in(tab: Tab, home: Home) -> None:
    """By a link."""
    await tab.open((await home.run("open"))["url"] or "")
    await tab.click("main button")


@pytest.mark.parametrize(("size", "script"), [(DESK, True), (PHONE, False)], ids=["desk", "phone without script"])
async def test_an_account_is_added_paired_answered_and_removed(
    chromium: str, home: Home, size: tuple[int, int], script: bool
) -> None:
    async with open_tab(chromium, size, script=script) as tab:
        await sign_in(tab, home)
        await tab.open(f"{home.url}/ui/connections")
        assert "No account yet." in await tab.text()
        await follow(tab, "main a.button")
        await follow(tab, "a.tile")
        assert "@BotFather" in await tab.text(), "the easiest is first"
        await _fill_in(tab, home, WRONG)
        assert "Telegram does not accept the token" in await tab.text()
        assert WRONG not in await tab.evaluate("document.documentElement.outerHTML")
        kept = await tab.evaluate("document.querySelector('[name=\"set.api_url\"]').value")
        assert kept == home.api.url, "the rest is still there"
        await enter(tab, "[name='secret.token']", TOKEN)
        await follow(tab, "form.stacked button")
        assert "Added" in await tab.text()
        start = await tab.evaluate("document.querySelector('#code ~ pre').innerText")
        await asyncio.wait_for(home.api.until(lambda: home.api.polling), 60)
        home.api.people.say(start.strip(), user=BEN)
        home.api.people.say("The bin is emptied on Tuesday", user=BEN)
        await asyncio.wait_for(home.api.until(lambda: any("Tuesday" in one for one in home.api.texts)), 60)
        wanted = "Ben wrote: The bin is emptied on Tuesday → System1/memo answered."
        if script:
            await tab.until(f"document.body.innerText.replaceAll('\\n', ' ').includes({wanted!r})")
        else:
            await eventually(lambda: _shows(tab, wanted))
        assert "Let yourself in" not in await tab.text(), "the code was used"
        await enter(tab, "#pause-reason", "a holiday")
        await follow(tab, "form[action$='/pause'] button")
        await asyncio.wait_for(home.api.until(lambda: not home.api.polling), 60)
        assert [one["state"] for one in (await home.run("channels", "list"))["channels"]] == ["paused"]
        await enter(tab, "#resume-reason", "back again")
        await follow(tab, "form[action$='/resume'] button")
        await asyncio.wait_for(home.api.until(lambda: home.api.polling), 60)
        await follow(tab, "form[action$='/test'] button")
        assert "The platform accepts the secret." in await tab.text()
        await enter(tab, "#remove-reason", "another bot")
        await follow(tab, "form[action$='/remove'] button")
        assert "No account yet." in await tab.text()
        assert list((home.place / "channels.d").iterdir()) == []
        assert [one for one in tab.troubles if "422" not in one] == []
    await _nothing_leaked(home)


async def _shows(tab: Tab, sentence: str) -> bool:
    await tab.open(await tab.evaluate("location.href"))
    return sentence in (await tab.text()).replace("\n", " ")


async def _fill_in(tab: Tab, home: Home, token: str) -> None:
    await enter(tab, "[name='secret.token']", token)
    await tick(tab, "details > summary")
    await enter(tab, "[name='set.api_url']", home.api.url)
    await enter(tab, "[name='set.poll_s']", "1")
    await follow(tab, "form.stacked button")


async def _nothing_leaked(home: Home) -> None:
    """What was done is in the audit with its reasons; no byte of log, database or any other file holds a secret."""
    entries = (await home.run("audit", "list"))["entries"]
    done = {one["action"]: one["detail"] for one in entries if one["action"].startswith("account:")}
    assert done["account:added"] == {"name": "telegram", "account": "telegram/bot:123456", "strangers": "pair"}
    assert (done["account:paused"]["reason"], done["account:removed"]["reason"]) == ("a holiday", "another bot")
    assert {one["actor"] for one in entries if one["action"] in done} == {"operator-1 (web: Chrome on Linux)"}
    home.server.process.terminate()
    said, logged = await asyncio.to_thread(home.server.process.communicate)
    kept = {file: file.read_bytes() for file in home.place.rglob("*") if file.is_file()}
    assert sum(map(len, kept.values())) > 1_000_000, "the database is among them"
    for secret in (TOKEN, WRONG):
        assert secret not in said + logged
        assert [file for file, content in kept.items() if secret.encode() in content] == []


@pytest.fixture
async def office(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server, and the accounts of the sample house."""
    write_accounts(tmp_path / "channels.d")
    async with open_server(
        database_url, tmp_path / "data", more={"channels_dir": tmp_path / "channels.d", "log_level": "debug"}
    ) as opened:
        yield opened


def _files_below(directory: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file() and "data" not in file.parts}


@pytest.mark.parametrize("name", ["../evil", "..", ".", "a/../../evil", "%2e%2e%2fevil", "House", "x\u0000", "-", "é"])
async def test_no_name_of_an_account_leads_elsewhere(office: Opened, api: BotApi, tmp_path: Path, name: str) -> None:
    before = _files_below(tmp_path)
    wanted = {"channel": "telegram", "name": name, "settings": {"api_url": api.url}, "secrets": {"token": TOKEN}}
    refused = await office.http.post("/v1/channels", json=wanted)
    assert refused.status_code == 422
    assert TOKEN not in refused.text
    for doing in ("pause", "resume", "test"):
        assert (await office.http.post(f"/v1/channels/{quote(name, safe='')}/{doing}")).status_code in {404, 405, 422}
    assert (await office.http.delete(f"/v1/channels/{quote(name, safe='')}")).status_code in {404, 405, 422}
    assert _files_below(tmp_path) == before


async def test_a_bot_has_one_account_and_nothing_is_written_for_nobodys_butler(
    office: Opened, api: BotApi, tmp_path: Path
) -> None:
    before = _files_below(tmp_path)
    wanted = {"channel": "telegram", "settings": {"api_url": api.url}, "secrets": {"token": TOKEN}, "strangers": "pair"}
    refused = await office.http.post("/v1/channels", json={**wanted, "name": "new", "owner_of": "System1/nobody"})
    assert (refused.status_code, "System1/nobody" in refused.text) == (422, True)
    assert _files_below(tmp_path) == before
    added = await asyncio.gather(
        *(office.http.post("/v1/channels", json={**wanted, "name": f"n{n}"}) for n in range(3))
    )
    assert sorted(one.status_code for one in added) == [201, 409, 409]
    assert len(_files_below(tmp_path).keys() - before.keys()) == 2, "an account and its secret"


@pytest.mark.parametrize(
    ("channel", "settings", "why"),
    [
        ("email", {"address": "a@example.org", "token_command": ["touch", "evil"]}, "names a program or a file"),
        ("email", {"address": "a@example.org", "token_file": "/etc/shadow"}, "names a program or a file"),
        ("telegram", {"poll_s": 1000}, "poll_s"),
        ("telegraph", {}, "did you mean telegram"),
    ],
)
async def test_what_an_account_may_not_be_set_to_is_refused(
    office: Opened, channel: str, settings: dict[str, object], why: str
) -> None:
    secrets = {"token": TOKEN} if channel == "telegram" else {"password": TOKEN} if channel == "email" else {}
    refused = await office.http.post(
        "/v1/channels", json={"channel": channel, "name": "new", "settings": settings, "secrets": secrets}
    )
    assert (refused.status_code, why in refused.text, TOKEN in refused.text) == (422, True, False)


async def test_accounts_are_for_operators_whose_sign_in_is_fresh(office: Opened, api: BotApi, tmp_path: Path) -> None:
    before = _files_below(tmp_path)
    for whose in (Principal("connector", "ann", "dashboard", "ann"), Principal("approver", "ben")):
        await office.token_of(whose)
        async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, headers={"origin": office.url}) as http:
            await http.post((await link_of(office, whose.name)).removeprefix(office.url))
            for form in ("add/telegram", *(f"accounts/house/{doing}" for doing in ("pause", "remove", "code", "test"))):
                assert (await http.post(f"/ui/connections/{form}", data={"reason": "mine"})).status_code == 403
            assert "bot:house" not in (await http.get("/ui/connections")).text
    async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, headers={"origin": office.url}) as http:
        await http.post((await link_of(office)).removeprefix(office.url))
        await office.lab.database.run("update web_session set created_at = created_at - interval '11 minutes'")
        shown = (await http.get("/ui/connections/add/telegram")).text
        fields = {
            "secret.token": TOKEN,
            "name": "new",
            "more": f"api_url={api.url}",
            "form_token": form_token_in(shown),
        }
        for token in ("", "sb_o_guess"):
            refused = await http.post("/ui/connections/add/telegram", data={**fields, "operator_token": token})
            assert (refused.status_code, "more than ten minutes ago" in refused.text) == (422, True)
            assert TOKEN not in refused.text
        assert _files_below(tmp_path) == before
        added = await http.post("/ui/connections/add/telegram", data={**fields, "operator_token": office.token})
        assert added.headers["location"] == "/ui/connections/accounts/new?done=added"
        assert (tmp_path / "channels.d/new.token").stat().st_mode & 0o777 == 0o600
        code = "/ui/connections/accounts/new/code"
        form = (await http.get("/ui/connections/accounts/new")).text.partition(f'action="{code}"')[2]
        wanted = {
            "owner_of": "System1/memo",
            "form_token": form.partition('name="form_token" value="')[2].partition('"')[0],
        }
        refused = await http.post(code, data=wanted)
        assert (refused.status_code, "more than ten minutes ago" in refused.text) == (422, True)


async def test_a_code_that_was_made_elsewhere_is_told_of(office: Opened) -> None:
    """By the command, by another process of the server, or before a restart: nobody can show it again."""
    async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, headers={"origin": office.url}) as http:
        await http.post((await link_of(office)).removeprefix(office.url))
        page = "/ui/connections/accounts/door"
        assert "make another" not in (await http.get(page)).text
        made = await office.http.post("/v1/pairing/codes", json={"channel": "telegram", "endpoint": "bot:door"})
        shown = (await http.get(page)).text
        assert "make another" in shown
        assert made.json()["code"] not in shown


def form_token_in(page: str) -> str:
    """That of the form in the content."""
    return page.partition("<main")[2].partition('name="form_token" value="')[2].partition('"')[0]


async def test_where_accounts_cannot_be_written_the_command_is_shown(
    office: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is read-only, which root, too, cannot write to."""
    monkeypatch.setattr("switchboard.app.accounts.service.os.access", lambda *_: False)
    async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, headers={"origin": office.url}) as http:
        await http.post((await link_of(office)).removeprefix(office.url))
        shown = (await http.get("/ui/connections/add/telegram")).text
        assert "switchboard channels add telegram" in shown
        assert platform.node() in shown
        assert "secret.token" not in shown

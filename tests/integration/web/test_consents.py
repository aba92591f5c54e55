"""A mailbox is added, and signed in again, by a consent at the strict OAuth provider; real servers of mail ask it, too.

The provider is called `localhost`, so that for a browser it is another site, which gets no cookie of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.app.account_tables import toml_value
from switchboard.app.accounts.presets import tokens_for
from switchboard.domain.errors import ConfigurationError
from switchboard.testing.oauth import CLIENT_ID, CLIENT_SECRET, OAuthPerson, OAuthServer
from switchboard.transport.oauth.clients import read_client
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.token_file import KeptTokens, read_tokens, write_tokens
from tests.browser import DESK, PHONE, Tab, open_tab
from tests.mail_servers import Dovecot, running_dovecot, running_postfix
from tests.oauth import final_address
from tests.ports import free_port
from tests.processes import Server, environment, running, told
from tests.servers import NO_TLS, Opened, open_server
from tests.waiting import eventually
from tests.web_forms import audited
from tests.web_house import link_of

pytestmark = pytest.mark.slow

ANN: Final = "ann@example.org"
MAIL: Final = "https://mail.google.com/"
PROVIDER_PORT: Final = free_port()
FORM: Final = "/ui/connections/consent/gmail"


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot(introspection=f"http://127.0.0.1:{PROVIDER_PORT}/introspect?token=") as server:
        yield server


@pytest.fixture(scope="module")
def postfix(dovecot: Dovecot) -> Iterator[int]:
    with running_postfix(dovecot) as port:
        yield port


@pytest.fixture(autouse=True)
def trusted(dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))


@pytest.fixture
async def provider() -> AsyncIterator[OAuthServer]:
    async with OAuthServer(port=PROVIDER_PORT) as server:
        yield server


@pytest.fixture
def mail_servers(dovecot: Dovecot, postfix: int) -> str:
    """In place of Gmail's."""
    imap = {"host": "127.0.0.1", "port": dovecot.tls_port}
    smtp = {"host": "127.0.0.1", "port": postfix, "tls": "starttls"}
    return f"imap={json.dumps(imap)}\nsmtp={json.dumps(smtp)}"


def client_of(provider: OAuthServer) -> bytes:
    return provider.client_file().replace(b"http://127.0.0.1:", b"http://localhost:")


# In a browser ---------------------------------------------------------------------------------------------------------


async def test_gmail_is_added_by_a_consent_and_signed_in_again(
    chromium: str, place: Path, provider: OAuthServer, mail_servers: str
) -> None:
    env = environment(place / "data", CHANNELS_DIR=str(place / "channels.d"), LOG_LEVEL="debug")
    file, seen = place / "channels.d/gmail.toml", [CLIENT_SECRET]
    with running(env, "up", cwd=place) as server:
        async with open_tab(chromium, DESK) as tab:
            await tab.open((await asyncio.to_thread(told, server.environment, "open"))["url"])
            await tab.click("main button")
            url = server.environment["SWITCHBOARD_URL"]
            await tab.open(f"{url}/ui/connections/add/gmail")
            await _fill_in(tab, client_of(provider), mail_servers)
            barriers = await _look_at(tab, "consent")
            provider.person = OAuthPerson(denies=True)
            await tab.click("main a.button")
            await tab.until("document.body.innerText.includes('The consent was denied at the provider')")
            provider.person = OAuthPerson()
            await tab.click("main a.button")
            await tab.until("document.body.innerText.includes('Google has agreed')")
            assert await tab.evaluate("!location.href.includes('code=') && document.referrer === ''")
            barriers += await _look_at(tab, "consent-answered")
            await tab.click("main form button")
            assert "Added" in await tab.text()
            kept = read_tokens(place / "channels.d/gmail.token")
            seen += [kept.refresh_token, kept.access_token]
            assert (kept.user, kept.scopes, kept.sign_in) == (ANN, (MAIL,), "switchboard channels login gmail")
            assert (place / "channels.d/gmail.token").stat().st_mode & 0o777 == 0o600
            await _connected(server)

            provider.end_consents()
            write_tokens(place / "channels.d/gmail.token", replace(kept, failed="it was taken back"))
            await tab.open(f"{url}/ui/connections/accounts/gmail")
            assert "The sign-in at Google has ended" in await tab.text()
            barriers += await _look_at(tab, "connection-signed-out")
            await tab.click("form[action$='/sign-in'] button")
            await tab.click("main a.button")
            await tab.until("document.body.innerText.includes('Google has agreed')")
            await tab.click("main form button")
            assert "Signed in again" in await tab.text()
            seen += [read_tokens(place / "channels.d/gmail.token").refresh_token]
            await _on_the_record(server)
            assert (barriers, tab.troubles) == ([], [])
            codes = {
                one for address in tab.requests for name, one in parse_qsl(urlsplit(address).query) if name == "code"
            }
            seen += codes
        said = await asyncio.to_thread(_end, server)
    with running(env, "up", cwd=place) as server:
        await _connected(server)
        said += await asyncio.to_thread(_end, server)
    assert (len(codes), len({*seen})) == (2, 6), "the second consent gave tokens of its own"
    seen += [code for page in provider.pages for code in (page["state"], page["code_challenge"])]
    assert _holders(place, seen) == {file.with_suffix(".token")}
    assert not any(secret in said for secret in seen)


async def _look_at(tab: Tab, name: str) -> list[str]:
    """What is wrong with the page that is open, also on a phone."""
    wrong = await tab.find_barriers()
    for size in (PHONE, DESK):
        await tab.resize(size)
        wrong += [f"{name}: one has to scroll sideways"] if await tab.is_wider_than_window() else []
        if pictures := os.environ.get("WEB_PICTURES"):
            await tab.picture(Path(pictures) / f"{name}-{size[0]}.png", whole=True)
    return wrong


def _holders(place: Path, secrets: Sequence[str]) -> set[Path]:
    """The files with a secret in them, of which the database has many."""
    kept = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
    assert sum(map(len, kept.values())) > 1_000_000, "the database is among them"
    return {file for file, content in kept.items() if any(one.encode() in content for one in secrets)}


async def _fill_in(tab: Tab, client: bytes, more: str) -> None:
    await tab.evaluate(f"document.querySelector('#address').value = {json.dumps(ANN)}")
    await tab.evaluate(f"document.querySelector('#more').value = {json.dumps(more)}")
    await tab.evaluate(
        f"(() => {{ const one = new DataTransfer(); one.items.add(new File([{json.dumps(client.decode())}], 'c.json'));"
        " document.querySelector('#client_file').files = one.files; })()"
    )
    await tab.click("main form button")
    assert "Say yes there" in await tab.text(), await tab.text()


async def _connected(server: Server) -> None:
    async def holds() -> bool:
        [account] = (await asyncio.to_thread(told, server.environment, "channels", "list"))["channels"]
        return bool(account["state"] == "healthy")

    await eventually(holds)


async def _on_the_record(server: Server) -> None:
    entries = (await asyncio.to_thread(told, server.environment, "audit", "list"))["entries"]
    done = {one["action"]: one["detail"] for one in entries if one["action"].startswith("account:")}
    assert done["account:signed_in"] == {"name": "gmail", "user": ANN}
    assert done["account:added"]["account"] == f"email/{ANN}"


def _end(server: Server) -> str:
    server.process.terminate()
    return "".join(server.process.communicate())


# Attacks --------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def office(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    more = {"channels_dir": tmp_path / "channels.d", "log_level": "debug"}
    async with open_server(database_url, tmp_path / "data", more=more) as opened:
        yield opened


@dataclass
class Visitor:
    """A browser that is signed in, and what it has entered for a mailbox."""

    http: httpx2.AsyncClient
    fields: dict[str, str]
    client: bytes

    async def begin(self) -> tuple[str, str]:
        """The path of a consent that was begun, and the address of the provider's page."""
        shown = (await self.http.get("/ui/connections/add/gmail")).text
        data = {**self.fields, "form_token": _form_token(shown, FORM)}
        begun = await self.http.post(FORM, data=data, files={"client_file": ("c.json", self.client)})
        assert begun.status_code == 303, begun.text
        path = begun.headers["location"]
        return path, await self.page_of(path)

    async def page_of(self, path: str) -> str:
        found = re.search(r'rel="noreferrer" href="([^"]+)"', (await self.http.get(path)).text)
        assert found
        return unescape(found[1])

    async def finish(self, path: str, address: str = "") -> httpx2.Response:
        shown = (await self.http.get(path)).text
        token = _form_token(shown, f"{path}/finish")
        return await self.http.post(f"{path}/finish", data={"form_token": token, "address": address})


def _form_token(page: str, path: str) -> str:
    return page.partition(f'action="{path}"')[2].partition('name="form_token" value="')[2].partition('"')[0]


@asynccontextmanager
async def visitor_of(office: Opened, provider: OAuthServer, more: str = "") -> AsyncIterator[Visitor]:
    headers = {"origin": office.url}
    async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, headers=headers, timeout=60) as http:
        await http.post((await link_of(office)).removeprefix(office.url))
        yield Visitor(http, {"address": ANN, "more": more}, client_of(provider))


def _answer_in(final: str) -> str:
    """As our own path, without the origin."""
    return f"/?{urlsplit(final).query}"


async def test_an_answer_counts_once_for_who_began_it(
    office: Opened, provider: OAuthServer, tmp_path: Path, mail_servers: str
) -> None:
    async with (
        visitor_of(office, provider, mail_servers) as ann,
        visitor_of(office, provider, mail_servers) as eve,
        httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, follow_redirects=True) as stranger,
    ):
        path, page = await ann.begin()
        asked = dict(parse_qsl(urlsplit(page).query))
        assert (asked["code_challenge_method"], len(asked["state"]) * 6 >= 256) == ("S256", True)
        assert asked["redirect_uri"] == office.url
        other_path, other_page = await eve.begin()
        answer, other = await final_address(page), await final_address(other_page)
        code, state = (dict(parse_qsl(urlsplit(answer).query))[name] for name in ("code", "state"))
        wrong = [
            f"/?code={code}",
            f"/ui/signed-in?code={code}&state=",
            f"/ui/signed-in?code={code}&state={state[:-1]}",
            f"/?code={code}&state={uuid4().hex}",
        ]
        for one in wrong:
            refused = await stranger.get(one)
            assert "code=" not in str(refused.url)
            assert "is not known here" in refused.text or one.startswith("/?code"), one
            assert "Say yes there" in (await ann.http.get(path)).text, one
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert (await stranger.request(method, f"/ui/signed-in?code={code}&state={state}")).status_code in {
                403,
                405,
            }
        part = {"sec-fetch-dest": "image", "sec-fetch-site": "cross-site"}
        assert (await stranger.get(_answer_in(answer), headers=part)).status_code == 403
        assert "Say yes there" in (await ann.http.get(path)).text
        for theirs in (path, f"{path}/finish"):
            assert (await eve.http.get(theirs)).status_code == 404, "of another session"
        assert (await eve.http.post(f"{path}/finish", data={"form_token": "x"})).status_code == 403
        assert "belongs to another sign-in" in (await eve.finish(other_path, answer)).text
        elsewhere = answer.replace(office.url, "https://evil.example")
        assert "This address leads to https://evil.example" in (await ann.finish(path, elsewhere)).text
        assert "Nobody has consented" in (await ann.finish(path)).text

        arrived = await ann.http.get(f"/ui/signed-in?{urlsplit(answer).query}", follow_redirects=False)
        assert (arrived.status_code, arrived.headers["location"]) == (303, f"{office.url}{path}")
        assert arrived.headers["referrer-policy"] == "no-referrer"
        replayed = await stranger.get(_answer_in(answer))
        assert "is not known here" in replayed.text
        assert not (tmp_path / "channels.d").exists(), "nothing was written so far"
        cross = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert (await ann.http.post(f"{path}/finish", headers=cross)).status_code == 403

        done = await asyncio.gather(ann.finish(path), ann.finish(path))
        assert {one.headers.get("location") for one in done} == {"/ui/connections/accounts/gmail?done=added"}
        assert [one.grant for one in provider.calls] == ["authorization_code"]
        assert len(await audited(office, "account:added")) == 1
        refused = await eve.finish(other_path, other)
        assert (refused.status_code, "The account gmail exists" in refused.text) == (409, True)
        assert sorted(one.name for one in (tmp_path / "channels.d").iterdir()) == ["gmail.token", "gmail.toml"]


@pytest.mark.parametrize(
    ("person", "says"),
    [
        (OAuthPerson(user="ben@example.org"), "ben@example.org has signed in, and the account is that of"),
        (OAuthPerson(leaves_out=frozenset({MAIL})), "leave every box ticked"),
        (OAuthPerson(denies=True), "The consent was denied at the provider"),
    ],
    ids=["another account", "unticked", "denied"],
)
async def test_a_consent_that_does_not_suffice_can_be_given_again(
    office: Opened, provider: OAuthServer, tmp_path: Path, mail_servers: str, person: OAuthPerson, says: str
) -> None:
    provider.person = person
    async with visitor_of(office, provider, mail_servers) as ann:
        path, page = await ann.begin()
        refused = await ann.finish(path, await final_address(page))
        assert (refused.status_code, says in unescape(refused.text)) == (422, True), refused.text
        assert not (tmp_path / "channels.d/gmail.toml").exists()
        provider.person = OAuthPerson()
        again = await ann.page_of(path)
        assert dict(parse_qsl(again))["state"] != dict(parse_qsl(page))["state"]
        done = await ann.finish(path, await final_address(again))
        assert done.headers.get("location") == "/ui/connections/accounts/gmail?done=added", done.text


async def test_what_the_provider_does_not_accept_is_told_without_secrets(
    office: Opened, provider: OAuthServer, tmp_path: Path
) -> None:
    """Without its verifier, a code is worth nothing; no refresh token, a client of nobody, and a code that is old."""
    async with visitor_of(office, provider) as ann:
        path, page = await ann.begin()
        pages = [await final_address(page.replace("&code_challenge_method=S256", ""))]
        assert "PKCE with S256 is required" in unescape((await ann.finish(path, pages[0])).text).replace("+", " ")
        wrong = re.sub(r"code_challenge=[^&]+", f"code_challenge={'x' * 43}", await ann.page_of(path))
        refused = await ann.finish(path, await final_address(wrong))
        assert (refused.status_code, "Invalid code verifier" in refused.text) == (422, True)
        short = (await ann.page_of(path)).replace("&access_type=offline", "")
        assert "has given no refresh token" in (await ann.finish(path, await final_address(short))).text
        late = await final_address(await ann.page_of(path))
        provider.clock.move(601)
        assert "does not accept the code" in (await ann.finish(path, late)).text
        provider.client_secret = "another"
        final = await final_address(await ann.page_of(path))
        refused = await ann.finish(path, final)
        assert (refused.status_code, "does not accept the OAuth client" in refused.text) == (422, True)
        assert CLIENT_SECRET not in refused.text
    assert not (tmp_path / "channels.d").exists()


async def test_after_ten_minutes_it_is_begun_again(
    office: Opened, provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart, since nothing of it is on the disk."""
    async with visitor_of(office, provider) as ann:
        path, page = await ann.begin()
        await ann.finish(path, (await final_address(page)).replace("code=", "error="))
        monkeypatch.setattr("switchboard.app.accounts.consents.CONSENT_LASTS", timedelta(0))
        await ann.finish(path, (await final_address(await ann.page_of(path))).replace("code=", "error="))
        late = await ann.http.get(path)
        assert (late.status_code, "begin it again, under Connections" in late.text) == (404, True)


async def test_who_may_begin_a_consent_and_with_what(office: Opened, provider: OAuthServer, tmp_path: Path) -> None:
    async with visitor_of(office, provider) as ann:
        shown = (await ann.http.get("/ui/connections/add/gmail")).text
        token = {"form_token": _form_token(shown, FORM)}
        for fields, client, says in (
            ({"address": "nobody"}, ann.client, "Write one address"),
            ({}, b"", "Give the OAuth client"),
            ({}, b"{}", "it has no client of a program"),
            ({}, provider.client_file("web"), "make one of the type Desktop app"),
            ({}, ann.client.replace(b"http://localhost", b"http://evil.example"), "begins with https://"),
            ({"name": "../evil"}, ann.client, "not a valid name"),
            ({"more": "token_file=/etc/shadow"}, ann.client, "names a program or a file"),
            ({"more": 'token_command=["touch", "evil"]'}, ann.client, "names a program or a file"),
            ({"client": CLIENT_ID, "secret.client": CLIENT_SECRET, "tenant": "../x"}, b"", "the tenant is an ID"),
        ):
            refused = await ann.http.post(
                FORM, data={**ann.fields, **fields, **token}, files={"client_file": ("c.json", client)}
            )
            assert (refused.status_code, says in unescape(refused.text)) == (422, True), says
            assert CLIENT_SECRET not in refused.text
        await office.lab.database.run("update web_session set created_at = created_at - interval '11 minutes'")
        refused = await ann.http.post(FORM, data={**ann.fields, **token}, files={"client_file": ("c.json", ann.client)})
        assert (refused.status_code, "more than ten minutes ago" in refused.text) == (422, True)
    for whose in (Principal("connector", "ben", "dashboard", "ben"), Principal("approver", "cid")):
        await office.token_of(whose)
        async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, headers={"origin": office.url}) as http:
            await http.post((await link_of(office, whose.name)).removeprefix(office.url))
            for form in (FORM, "/ui/connections/accounts/gmail/sign-in", f"/ui/connections/consents/{uuid4()}/finish"):
                assert (await http.post(form, data={"address": ANN})).status_code == 403
    assert not (tmp_path / "channels.d").exists()
    assert provider.pages == []


async def test_a_program_begins_and_finishes_a_consent(
    office: Opened, provider: OAuthServer, tmp_path: Path, mail_servers: str
) -> None:
    """Over the API, with the address of the last page; in Testing, it says when the sign-in will end."""
    provider.trial = provider.tells_trial = True
    provider.clock.move(0)
    settings: dict[str, Any] = {
        name: json.loads(value) for name, _, value in (one.partition("=") for one in mail_servers.splitlines())
    }
    wanted = {"channel": "gmail", "address": ANN, "client_file": client_of(provider).decode(), "settings": settings}
    begun = await office.http.post("/v1/channels/consents", json=wanted)
    assert begun.status_code == 201, begun.text
    finish = f"/v1/channels/consents/{begun.json()['consent_id']}/finish"
    assert (await office.http.post(finish)).status_code == 409
    other = Principal("operator", "operator-2")
    headers = await office.token_for(other)
    final = await final_address(begun.json()["page"])
    assert (await office.http.post(finish, json={"address": final}, headers=headers)).status_code == 404
    async with httpx2.AsyncClient(base_url=office.url, verify=NO_TLS, follow_redirects=True) as browser:
        assert "Switchboard has the answer" in (await browser.get(_answer_in(final))).text
    done = (await office.http.post(finish, timeout=60)).json()
    assert (done["name"], done["user"], done["added"]["endpoint"]) == ("gmail", ANN, ANN)
    assert "in Testing: publish it first" in done["ends"]
    again = await office.http.post("/v1/channels/gmail/login")
    finish = f"/v1/channels/consents/{again.json()['consent_id']}/finish"
    before = read_tokens(tmp_path / "channels.d/gmail.token")
    address = {"address": await final_address(again.json()["page"])}
    assert (await office.http.post(finish, json=address)).json()["added"] is None
    assert read_tokens(tmp_path / "channels.d/gmail.token").refresh_token != before.refresh_token
    again = await office.http.post("/v1/channels/gmail/login")
    assert (await office.http.delete("/v1/channels/gmail")).status_code == 200
    address = {"address": await final_address(again.json()["page"])}
    finish = f"/v1/channels/consents/{again.json()['consent_id']}/finish"
    assert (await office.http.post(finish, json=address)).status_code == 404, "it was removed meanwhile"
    assert list((tmp_path / "channels.d").glob("gmail*")) == [], "and no consent brings it back"


def write_gmail(place: Path, provider: OAuthServer, name: str = "gmail") -> tuple[Path, Path]:
    """The files of an account that signs in by `gmail.token`."""
    place.mkdir(mode=0o700)
    file, tokens = place / f"{name}.toml", place / "gmail.token"
    server = {"host": "127.0.0.1"}
    lines = {"address": ANN, "token_file": tokens.name, "imap": server, "smtp": server}
    told = "\n".join(f"{name} = {toml_value(value)}" for name, value in lines.items())
    file.write_text(f'channel = "email"\n[settings]\n{told}\n', encoding="utf-8")
    file.chmod(0o600)
    kept = KeptTokens(
        client=read_client(PROVIDERS["google"], client_of(provider)),
        user=ANN,
        scopes=(MAIL,),
        sign_in="switchboard channels login gmail",
        refresh_token="r",
        access_token="a",
        expires_at=datetime.now(UTC),
        consented_at=datetime.now(UTC),
    )
    write_tokens(tokens, kept)
    return file, tokens


@pytest.mark.parametrize("became", ["removed", "another"])
async def test_a_sign_in_is_for_the_account_for_which_it_was_begun(
    office: Opened, provider: OAuthServer, tmp_path: Path, became: str
) -> None:
    """Whoever has removed it meanwhile finds it removed; one of the same name keeps its own tokens."""
    file, tokens = write_gmail(tmp_path / "channels.d", provider)
    begun = (await office.http.post("/v1/channels/gmail/login")).json()
    address = {"address": await final_address(begun["page"])}
    if became == "removed":
        file.unlink()
        tokens.unlink()
    else:
        write_tokens(tokens, replace(read_tokens(tokens), user="ben@example.org"))
    refused = await office.http.post(f"/v1/channels/consents/{begun['consent_id']}/finish", json=address)
    assert refused.status_code == (404 if became == "removed" else 409), refused.text
    assert (
        not [one for one in (file, tokens) if one.exists()] if became == "removed" else read_tokens(tokens).user != ANN
    )
    assert await audited(office, "account:signed_in") == []


async def test_a_new_account_leaves_the_tokens_of_another_alone(
    office: Opened, provider: OAuthServer, tmp_path: Path
) -> None:
    """Files of accounts may be renamed; their tokens are then called as before."""
    _, tokens = write_gmail(tmp_path / "channels.d", provider, "work")
    wanted = {"channel": "gmail", "address": "ben@example.org", "client_file": client_of(provider).decode()}
    refused = await office.http.post("/v1/channels/consents", json=wanted)
    assert (refused.status_code, "the account work signs in by" in refused.text) == (409, True), refused.text
    with pytest.raises(ConfigurationError, match="work"), tokens_for(tokens.with_suffix(".toml"), read_tokens(tokens)):
        pass
    assert read_tokens(tokens).user == ANN
    assert (await office.http.post("/v1/channels/consents", json={**wanted, "name": "ben"})).status_code == 201


@pytest.mark.parametrize("address", ["http://[x", "http://[::1/?state=1&code=1", "http://\u2100/?code=1", "\x00?a=1"])
async def test_what_is_pasted_may_be_anything(office: Opened, provider: OAuthServer, address: str) -> None:
    async with visitor_of(office, provider) as ann:
        path, _ = await ann.begin()
        assert (await ann.finish(path, address)).status_code == 422

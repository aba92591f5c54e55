"""`switchboard channels` and the tokens of accounts, against a real server and the Bot API server for tests."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer import BadParameter
from typer.testing import CliRunner

from switchboard.app.accounts.adding import sign_in_account
from switchboard.app.accounts.files import KeptSecret, write_account
from switchboard.app.accounts.tokens import lock_token, token_file
from switchboard.app.ops.doctor import check_machine
from switchboard.app.ownership import read_ours
from switchboard.app.settings import EmailSettings, Settings
from switchboard.cli.channels.account import connect_account
from switchboard.cli.channels.adding import secrets_of, settings_of
from switchboard.cli.channels.commands import remove
from switchboard.cli.channels.connecting import ConnectOptions, connect_new
from switchboard.cli.channels.standing import print_next, standing
from switchboard.cli.channels.tokens import AccountToken
from switchboard.connectors.kernel.accounts import (
    Configured,
    handling_of,
    manifest_of,
    pause_file,
    read_account,
    read_declarations,
)
from switchboard.connectors.kernel.answers import TokenRefused
from switchboard.connectors.kernel.intake import Handling
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.ports.connector import Account, Identity, Session, SignInRefused
from switchboard.store.ids import new_uuid7
from switchboard.testing.bot_api import TOKEN, BotApi
from tests.commands import Cli
from tests.lab import envelope_json
from tests.mail_servers import OWN, PASSWORD, running_pymap, running_smtp
from tests.ports import free_port
from tests.servers import Opened, open_server
from tests.waiting import eventually


@pytest.mark.parametrize("removed", [False, True])
def test_a_refused_token_is_no_error_of_an_account_that_is_being_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, removed: bool
) -> None:
    file, secret = tmp_path / "house.toml", tmp_path / "house.token"
    secret.write_text(TOKEN)
    secret.chmod(0o600)
    file.write_text('channel = "telegram"\nsecrets.token.file = "house.token"\n')

    async def connected(*_: object) -> int:
        if removed:
            file.unlink()
        raise TokenRefused("the token is revoked")

    monkeypatch.setattr("switchboard.cli.processes.connect.connect_account", connected)
    monkeypatch.setattr("switchboard.cli.processes.connect.set_up_logs", lambda _: None)
    code, _, err = Cli(capsys, monkeypatch, {"SWITCHBOARD_CHANNELS_DIR": str(tmp_path)}).run("connect", "house")
    assert (code, err) == ((0, "") if removed else (1, "error: the token is revoked\n"))


@pytest.fixture
async def server(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", worker=True) as opened:
        monkeypatch.setenv("SWITCHBOARD_URL", opened.url)
        yield opened


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "channels.d").mkdir()
    return Settings(data_dir=tmp_path / "data", channels_dir=tmp_path / "channels.d")


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Switchboard runs, even if one does on this machine."""
    monkeypatch.setenv("SWITCHBOARD_URL", f"http://127.0.0.1:{free_port()}")


@pytest.fixture
def account(settings: Settings, api: BotApi) -> Callable[[str], Configured]:
    """Accounts of the same bot, by any name."""

    def made(name: str) -> Configured:
        file = settings.channels_dir / f"{name}.toml"
        file.write_text(
            f'channel = "telegram"\nsettings = {{api_url = "{api.url}", poll_s = 1}}\n'
            'secrets.token.file = "bot.token"\n'
        )
        secret = settings.channels_dir / "bot.token"
        secret.touch(mode=0o600)
        secret.write_text(TOKEN)
        return read_account(file, read_ours)

    return made


HOUSE = Identity(f"bot:{TOKEN.partition(':')[0]}")


def kept(settings: Settings) -> str:
    return (settings.data_dir / "connectors/house.token").read_text()


async def accepted(token: AccountToken) -> int:
    """The status of a request with the token of an account."""
    async with await token.client(HOUSE) as http:
        asked = {"channel": "telegram", "endpoint": HOUSE.endpoint, "instance_id": "a"}
        return (await http.post("/v1/connectors/lease", json=asked)).status_code


@pytest.mark.usefixtures("server")
async def test_an_account_that_is_wrong_keeps_its_token(
    settings: Settings, account: Callable[[str], Configured]
) -> None:
    async def lacking(_: Account) -> Session:
        raise ConfigurationError("a program is missing")

    house = account("house")
    assert await accepted(AccountToken(settings, house)) == 200
    before = kept(settings)
    with pytest.raises(ConfigurationError, match="a program is missing"):
        await connect_account(settings, replace(house, manifest=replace(house.manifest, open=lacking)), asyncio.Event())
    assert kept(settings) == before
    assert await accepted(AccountToken(settings, house)) == 200


async def test_a_token_that_was_revoked_is_replaced(
    server: Opened, settings: Settings, account: Callable[[str], Configured]
) -> None:
    house = account("house")
    assert await accepted(AccountToken(settings, house)) == 200
    before = kept(settings)
    assert (await server.http.delete("/v1/tokens/connector-house")).is_success
    with pytest.raises(TokenRefused):
        await connect_account(settings, house, asyncio.Event())
    stop = asyncio.Event()
    serving = asyncio.create_task(connect_account(settings, house, stop))
    try:
        await eventually(lambda: _leased(server))
    finally:
        stop.set()
        assert await serving == 0
    assert kept(settings) != before


async def _leased(server: Opened) -> bool:
    return bool(await server.lab.database.value("select count(*) from connector_account"))


async def test_two_first_starts_of_an_account_share_one_token(
    server: Opened, settings: Settings, account: Callable[[str], Configured]
) -> None:
    tokens = [AccountToken(settings, account("house")) for _ in range(4)]
    assert await asyncio.gather(*map(accepted, tokens)) == [200] * 4
    assert await connectors_of(server) == ["connector-house"]


@pytest.mark.parametrize("ended", [lambda file: file.unlink(), lambda file: pause_file(file).touch()])
async def test_an_account_that_ends_while_it_signs_in_gets_no_token(
    server: Opened, settings: Settings, account: Callable[[str], Configured], ended: Callable[[Path], None]
) -> None:
    token = AccountToken(settings, account("house"))
    ended(settings.channels_dir / "house.toml")
    with pytest.raises(ConfigurationError, match="has been paused or removed"):
        await token.client(HOUSE)
    assert await connectors_of(server) == []


async def test_a_token_that_is_made_while_its_account_is_removed_is_revoked(
    server: Opened, settings: Settings, account: Callable[[str], Configured], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_TOKEN", server.token)
    monkeypatch.setattr("switchboard.cli.channels.commands.load_settings", lambda: settings)
    account("house")
    async with lock_token(token_file(settings, "house")):
        removing = asyncio.create_task(asyncio.to_thread(remove, "house", yes=True))
        await asyncio.wait([removing], timeout=1)  # it is to wait for us, so this is over without it
        asked = {"name": "connector-house", "role": "connector", "channel": "telegram", "endpoint": HOUSE.endpoint}
        assert (await server.http.post("/v1/tokens", json=asked)).is_success
    await removing
    assert await connectors_of(server) == []


async def test_the_tokens_of_a_sign_in_go_with_their_account(
    server: Opened, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_TOKEN", server.token)
    monkeypatch.setattr("switchboard.cli.channels.commands.load_settings", lambda: settings)
    settings.channels_dir.mkdir(exist_ok=True)
    files = [settings.channels_dir / name for name in ("gmail.toml", "gmail.token", "gmail.token.lock", "other.token")]
    for file in files:
        file.write_text('channel = "email"\nsettings = {token_file = "gmail.token"}\n')
    await asyncio.to_thread(remove, "gmail", yes=True)
    assert [file.name for file in files if file.exists()] == ["other.token"]


async def connectors_of(server: Opened) -> list[str]:
    """The tokens of connectors that are valid."""
    listed = (await server.http.get("/v1/tokens")).json()["tokens"]
    return [one["name"] for one in listed if one["role"] == "connector" and not one["revoked_at"]]


@pytest.mark.usefixtures("server")
async def test_who_was_refused_an_old_token_takes_nobody_the_new_one(
    settings: Settings, account: Callable[[str], Configured]
) -> None:
    first, second = AccountToken(settings, account("house")), AccountToken(settings, account("house"))
    assert await accepted(first) == 200
    await first.forget()
    assert await accepted(second) == 200
    await first.forget()
    assert kept(settings).split() != [HOUSE.endpoint]
    assert await accepted(second) == 200


@pytest.mark.usefixtures("server")
async def test_no_endpoint_has_two_accounts(settings: Settings, account: Callable[[str], Configured]) -> None:
    assert await accepted(AccountToken(settings, account("house"))) == 200
    with pytest.raises(SignInRefused, match="connected by the account house already"):
        await AccountToken(settings, account("twin")).client(HOUSE)
    assert await accepted(AccountToken(settings, account("house"))) == 200, "nothing was revoked"


@pytest.mark.usefixtures("server")
async def test_no_account_gets_a_second_endpoint(settings: Settings, account: Callable[[str], Configured]) -> None:
    house = account("house")
    assert await accepted(AccountToken(settings, house)) == 200
    before = kept(settings)
    with pytest.raises(SignInRefused, match="the secret belongs to telegram/bot:7"):
        await AccountToken(settings, house).client(Identity("bot:7"))
    assert kept(settings) == before


async def test_another_bots_secret_is_a_state_and_does_no_damage(
    server: Opened, settings: Settings, account: Callable[[str], Configured]
) -> None:
    async def swapped(given: Account) -> Session:
        session = await house.manifest.open(given)
        session.identity = Identity("bot:7")
        return session

    house = account("house")
    assert await accepted(AccountToken(settings, house)) == 200
    before, stop = kept(settings), asyncio.Event()
    serving = asyncio.create_task(
        connect_account(settings, replace(house, manifest=replace(house.manifest, open=swapped)), stop)
    )
    try:
        await eventually(lambda: _says(server, "the secret belongs to bot:7"))
    finally:
        stop.set()
        assert await serving == 0, "it goes on, and does not end in an error"
    assert kept(settings) == before


async def test_a_secret_that_was_revoked_while_all_was_down_is_a_state(
    server: Opened, settings: Settings, account: Callable[[str], Configured]
) -> None:
    house = account("house")
    assert await accepted(AccountToken(settings, house)) == 200
    (settings.channels_dir / "bot.token").write_text("123:revoked")
    stop = asyncio.Event()
    serving = asyncio.create_task(
        connect_account(settings, read_account(settings.channels_dir / "house.toml", read_ours), stop)
    )
    try:
        await eventually(lambda: _says(server, "Telegram does not accept the token"))
    finally:
        stop.set()
        with suppress(asyncio.CancelledError):
            assert await serving == 0


async def _says(server: Opened, why: str) -> bool:
    """Whether the connector reports an error with this reason."""
    listed = (await server.http.get("/v1/connectors")).json()["connectors"]
    return any(one["state"] == "failed" and why in one["error_message"] for one in listed)


def test_what_was_typed_is_read_again_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested settings, lists, quotes and letters of any script; one secret in a file, one in the environment."""
    manifest = manifest_of("email")
    name = 'Zoë "Desk" \\ 🏠 \x7f'
    servers = ("imap.host=imap.example.org", "imap.port=993", "smtp.host=smtp.example.org", "smtp.port=465")
    given = ("address=desk@example.org", f"display_name={name}", 'token_command=["oama", "access"]', *servers)
    values = settings_of(manifest, given, ask=False)
    monkeypatch.setenv("DESK_PASSWORD", "of the environment")
    for kept in (KeptSecret('pa"ss ✓'), KeptSecret("of the environment", "DESK_PASSWORD")):
        opened = Account("desk", values, {"password": kept.value}, directory=tmp_path)
        account = Configured(manifest, opened, handling_of(manifest, Handling()), "desk@example.org")
        file, *secrets = write_account(tmp_path / "desk.toml", account, {"password": kept}, "listed")
        assert read_account(file, read_ours) == account
        assert [one.stat().st_mode & 0o777 for one in secrets] == [0o600] * (kept.env is None)
        assert kept.value not in file.read_text()
        assert read_declarations(file, read_ours).strangers == "listed"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("address",), "write NAME=VALUE"),
        (("address=desk@example.org",), "imap.host is missing: the help pages of your provider name it"),
        (("address=d@example.org", "imap.host=a", "imap.port=1", "smtp.host=b"), "smtp.port is missing: as a rule 993"),
        (("imap.host=a", "smtp.host=b"), "address is missing: of the mailbox"),
        (
            ("address=x", "imap.host=a", "smtp.host=b"),
            "address must be a mail address such as",
        ),
        (
            ("address=d@example.org", "imap.host=a", "smtp.host=b", "imp=1"),
            "imp is not a setting; there are: address, ",
        ),
        (("imap=x", "imap.host=y"), "imap is a value already"),
    ],
)
def test_settings_that_are_wrong_are_named(given: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        settings_of(manifest_of("email"), given, ask=False)


def test_what_a_webhook_needs_is_said_and_its_only_secret_needs_no_name(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="verify is missing: standard, github, stripe, bearer"):
        settings_of(manifest_of("webhook"), (), ask=False)
    for name in ("new", "old"):
        (tmp_path / name).write_text(f"{name} one")
    given = (str(tmp_path / "new"), f"second={tmp_path / 'old'}")
    found = secrets_of(manifest_of("webhook"), given, (), ask=False)
    assert {name: one.value for name, one in found.items()} == {"secret": "new one", "second": "old one"}


@pytest.mark.parametrize(
    ("given", "typed", "event_id"),
    [
        (("verify=standard",), "{body.order\n{body.order}-{body.type}\n", "{body.order}-{body.type}"),
        (("verify=standard",), "\n", ""),
        (("verify=standard", "map.event_id={body.id}"), "", "{body.id}"),
    ],
)
def test_adding_a_webhook_asks_what_names_the_event(given: tuple[str, ...], typed: str, event_id: str) -> None:
    with CliRunner().isolation(input=typed) as (_, asked, _):
        settings = settings_of(manifest_of("webhook"), given, ask=True).model_dump()
        questions = asked.getvalue().decode()
    assert settings["map"]["event_id"] == event_id
    assert ("what names the event" in questions) is bool(typed)


def test_servers_of_usual_providers_are_known_and_given_ones_go_first() -> None:
    manifest = manifest_of("email")
    known = settings_of(manifest, ["address=ann@GoogleMail.com"], ask=False).model_dump()
    assert (known["imap"]["host"], known["imap"]["port"]) == ("imap.gmail.com", 993)
    assert (known["smtp"]["host"], known["smtp"]["tls"]) == ("smtp.gmail.com", "tls")
    own = ("smtp.host=relay.example.org", "smtp.port=587")
    given = settings_of(manifest, ["address=ann@web.de", *own], ask=False).model_dump()
    assert (given["imap"]["host"], given["smtp"]["host"]) == ("imap.web.de", "relay.example.org")
    assert (given["imap"]["tls"], given["smtp"]["tls"]) == ("tls", "starttls")
    with pytest.raises(BadParameter, match="imap"):
        settings_of(manifest, ["address=ann@example.org"], ask=False)


async def test_mail_that_could_be_read_and_not_sent_is_refused_when_it_is_added() -> None:
    manifest = manifest_of("email")
    with running_pymap() as imap, running_smtp(PASSWORD) as (_, port):
        servers = (f"imap.port={imap.port}", f"smtp.port={port}", "imap.tls=none", "smtp.tls=none")
        given = (f"address={OWN}", f"user={imap.user}", "imap.host=127.0.0.1", "smtp.host=127.0.0.1", *servers)
        values = settings_of(manifest, given, ask=False)
        right = Account("desk", values, {"password": PASSWORD})
        assert (await sign_in_account(manifest, right)).endpoint == OWN
    with running_pymap() as imap, running_smtp("another password") as (_, port):
        servers = (f"imap.port={imap.port}", f"smtp.port={port}", "imap.tls=none", "smtp.tls=none")
        given = (f"address={OWN}", f"user={imap.user}", "imap.host=127.0.0.1", "smtp.host=127.0.0.1", *servers)
        account = Account("desk", settings_of(manifest, given, ask=False), {"password": PASSWORD})
        with pytest.raises(SignInRefused, match="the SMTP server refuses the sign-in") as refused:
            await sign_in_account(manifest, account)
        assert PASSWORD not in str(refused.value)
    with running_pymap() as imap:
        servers = (f"imap.port={imap.port}", f"smtp.port={free_port()}", "imap.tls=none", "smtp.tls=none")
        given = (f"address={OWN}", f"user={imap.user}", "imap.host=127.0.0.1", "smtp.host=127.0.0.1", *servers)
        account = Account("desk", settings_of(manifest, given, ask=False), {"password": PASSWORD})
        with pytest.raises(Unavailable, match=r"the SMTP server 127\.0\.0\.1:\d+ is not reached"):
            await sign_in_account(manifest, account)


def wanted(channel: str, *given: str, secret: str = "") -> ConnectOptions:
    return ConnectOptions(channel, None, given, (secret,), (), None, asking=False)


def test_who_adds_a_mailbox_hears_which_server_must_be_trusted(capsys: pytest.CaptureFixture[str]) -> None:
    added = {
        "name": "desk",
        "channel": "email",
        "endpoint": OWN,
        "display_name": "",
        "strangers": "listed",
        "connects": True,
    }
    print_next({**added, "files": []})
    said = capsys.readouterr().out
    assert f'[email.trusted_servers]\n  "{OWN}" = ["mx.example.org"]' in said
    assert "every mail is held" in said
    assert f"pairing allow email/{OWN} no-reply@YOUR-SITE" in said
    assert "--filter email_sender=no-reply@YOUR-SITE --to BUTLER --reply-to-automatic" in said


@pytest.mark.parametrize(
    ("strangers", "trusted", "warned"),
    [
        ("listed", {}, True),
        ("listed", {"other@home.example": ("mx.home.example",)}, True),
        ("listed", {OWN: ("mx.home.example",)}, False),
        ("pair", {"*": ("mx.home.example",)}, False),
        ("open", {}, False),
    ],
)
def test_doctor_tells_of_a_mailbox_whose_senders_nobody_vouches_for(
    settings: Settings, strangers: str, trusted: dict[str, tuple[str, ...]], warned: bool
) -> None:
    (settings.channels_dir / "desk.toml").write_text(
        f'channel = "email"\nendpoint = "email/{OWN}"\nstrangers = "{strangers}"\nsecrets.password.file = "pw"\n'
        f'[settings]\naddress = "{OWN}"\nimap = {{host = "i.example", port = 993}}\n'
        'smtp = {host = "s.example", port = 465}\n'
    )
    secret = settings.channels_dir / "pw"
    secret.touch(mode=0o600)
    secret.write_text(PASSWORD)
    found = check_machine(settings.model_copy(update={"email": EmailSettings(trusted_servers=trusted)}))
    [finding] = [one for one in found if one.name.startswith("account")]
    assert finding.status == ("warning" if warned else "ok")
    assert (f'[email.trusted_servers] "{OWN}" = ["mx.example.org"]' in finding.remedy) == warned


def test_only_what_is_posted_to_gets_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    """A channel of a package that fetches its messages itself may serve the channel `webhook`."""
    added: dict[str, object] = {
        "name": "folder",
        "channel": "webhook",
        "endpoint": "/srv/letters",
        "display_name": None,
        "files": [],
    }
    print_next({**added, "strangers": "pair", "pairing": None, "hook_url": None, "connects": True})
    said = capsys.readouterr().out
    assert "pairing code webhook//srv/letters" in said
    assert "PUBLIC_URL" not in said
    print_next({**added, "strangers": "open", "pairing": None, "hook_url": None, "connects": False})
    assert "PUBLIC_URL/hooks/folder" in capsys.readouterr().out


def test_a_mailbox_gets_no_code_for_owners(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    given = replace(wanted("email"), strangers="pair", owner="butler")
    with pytest.raises(BadParameter, match=re.escape('"owners": ["email:you@example.org"]')):
        connect_new(settings, given)
    assert not list(settings.channels_dir.glob("*"))
    added = {"name": "desk", "channel": "email", "endpoint": OWN, "display_name": "", "files": [], "connects": True}
    print_next({**added, "strangers": "pair", "pairing": None})
    said = capsys.readouterr().out
    assert '"owners": ["email:YOUR-ID"]' in said
    assert "--owner" not in said


@pytest.mark.parametrize("strangers", ["pair", "listed", "open"])
@pytest.mark.parametrize(("butlers", "told"), [(None, True), (["System1/clerk"], True), ([], False)])
def test_owners_are_spoken_of_only_where_a_butler_has_tools(
    capsys: pytest.CaptureFixture[str], strangers: str, butlers: list[str] | None, told: bool
) -> None:
    added = {"name": "house", "channel": "telegram", "endpoint": "bot:1", "display_name": "", "files": []}
    more = {"connects": True, "pairing": None, "butlers_with_tools": butlers}
    print_next({**added, **more, "strangers": strangers})
    assert ("owners" in capsys.readouterr().out) == told


@pytest.mark.usefixtures("server")
async def test_an_account_that_was_just_added_is_starting(
    settings: Settings, account: Callable[[str], Configured], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(settings.data_dir))
    account("house")
    for age, state in ((0, "starting"), (60, "not connected")):
        then = time.time() - age
        os.utime(settings.channels_dir / "house.toml", (then, then))
        [shown] = (await asyncio.to_thread(standing, settings))["channels"]
        assert shown["state"] == state


@pytest.mark.usefixtures("no_server")
async def test_a_webhook_account_is_added_with_its_address(settings: Settings, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("whsec_QUFB")
    public = settings.model_copy(update={"public_url": "https://hooks.example/"})
    given = wanted("webhook", "verify=standard", "map.text={body.order}", secret=f"secret={secret}")
    added = await asyncio.to_thread(connect_new, public, given)
    assert added["hook_url"] == "https://hooks.example/hooks/webhook"
    account = read_account(settings.channels_dir / "webhook.toml", read_ours)
    assert account.account.secrets == {"secret": "whsec_QUFB"}
    assert read_declarations(settings.channels_dir / "webhook.toml", read_ours).strangers == "open"


@pytest.mark.usefixtures("no_server")
async def test_a_channel_says_what_to_paste_and_what_is_left_to_do(
    settings: Settings, api: BotApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def to_do(account: Account, identity: Identity) -> str:
        return f"Invite {identity.display_name} for {account.name}:\n  https://invite.example/[a]\u202e"

    described = replace(manifest_of("telegram"), to_paste='{"app": ["[b]house"]}', to_do=to_do)
    monkeypatch.setattr("switchboard.cli.channels.connecting.manifest_of", lambda _: described)
    given = replace(wanted("telegram", f"api_url={api.url}"), secret_files=(), asking=True)
    with CliRunner().isolation(input=f"{TOKEN}\n") as (_, asked, _):
        added = await asyncio.to_thread(connect_new, settings, given)
        steps = asked.getvalue().decode()
    assert steps.index("4. To read whole groups") < steps.index('{"app": ["[b]house"]}') < steps.index("token: ")
    print_next(added)
    assert "Invite @house_bot for telegram:\n  https://invite.example/[a]\n" in capsys.readouterr().out


@pytest.mark.usefixtures("no_server")
async def test_telegram_posts_only_to_an_address_that_the_world_reaches(
    settings: Settings, api: BotApi, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(TOKEN)
    given = wanted("telegram", f"api_url={api.url}", "webhook=true", secret=str(secret))
    with pytest.raises(ConfigurationError, match="public_url"):
        await asyncio.to_thread(connect_new, settings, given)
    assert not list(settings.channels_dir.glob("*"))
    public = settings.model_copy(update={"public_url": "https://hooks.example"})
    assert (await asyncio.to_thread(connect_new, public, given))["hook_url"] == "https://hooks.example/hooks/telegram"
    assert api.webhook is None, "its connector sets it"


async def test_all_that_waits_for_an_account_is_counted_over_however_many_pages(
    server: Opened, settings: Settings, account: Callable[[str], Configured], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_TOKEN", server.token)
    account("house")
    file = token_file(settings, "house")
    file.parent.mkdir(exist_ok=True)
    file.touch(mode=0o600)
    file.write_text("a token\nbot:house\n")
    assert (await server.submit(envelope_json(channel="telegram"))).is_success
    await eventually(lambda: _waiting(server))
    await server.lab.database.run(
        "insert into outbox (outbox_id, lane, seq, request_id, system_id, channel, endpoint, recipient, reply_to, text,"
        " state, created_at) select ids.id, o.lane, o.seq + n, o.request_id, o.system_id, o.channel, o.endpoint,"
        " o.recipient, o.reply_to, o.text, o.state, o.created_at"
        " from outbox o cross join unnest($1::uuid[]) with ordinality as ids (id, n)",
        [new_uuid7() for _ in range(500)],
    )
    [shown] = (await asyncio.to_thread(standing, settings))["channels"]
    assert (shown["account"], shown["waiting"]) == ("telegram/bot:house", 501)


async def _waiting(server: Opened) -> bool:
    return await server.lab.count("select count(*) from outbox where state = 'pending'") == 1

"""Signing in by OAuth 2, and the tokens that are renewed afterwards, at the strict server of `testing/oauth.py`."""

from __future__ import annotations

import asyncio
import logging
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from google.auth.transport.requests import Request as GoogleRequest
from google.oauth2.credentials import Credentials

from switchboard.app.settings import Settings
from switchboard.app.sign_ins import check_sign_ins
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.ports.connector import SignInRefused
from switchboard.testing.oauth import CLIENT_ID, CLIENT_SECRET, OAuthPerson, OAuthServer, Rotation
from switchboard.testing.platform_server import Cut
from switchboard.transport.oauth.requests import refresh_tokens
from switchboard.transport.oauth.token_file import KeptTokens, OAuthClient, read_tokens, write_tokens
from switchboard.transport.oauth.tokens import TokenFile
from tests.oauth import SIGN_IN, Terminal, now_of, signed_in
from tests.oauth_node import POINTS

DAY: Final = 86_400.0


@pytest.fixture
async def server() -> AsyncIterator[OAuthServer]:
    async with OAuthServer() as one:
        yield one


def refreshes(server: OAuthServer) -> list[str]:
    return [call.error for call in server.calls if call.grant == "refresh_token"]


def opened(file: Path, server: OAuthServer) -> TokenFile:
    return TokenFile(file, lambda: now_of(server))


async def kept_in(tmp_path: Path, server: OAuthServer, **changes: Any) -> Path:
    file = tmp_path / "google-ann.token"
    write_tokens(file, replace(await signed_in(server), **changes))
    return file


# Signing in -----------------------------------------------------------------------------------------------------------


async def test_a_browser_here_ends_the_sign_in(server: OAuthServer) -> None:
    terminal = Terminal()
    kept = await signed_in(server, terminal)
    assert server.user_of(kept.access_token) == kept.user == "ann@example.org"
    assert kept.scopes == ("https://www.googleapis.com/auth/calendar.readonly", "https://mail.google.com/")
    assert server.pages[0]["access_type"] == "offline"
    assert ["You can close this window" in page for page in terminal.seen] == [True]
    assert kept.refresh_token not in repr(kept)
    assert kept.access_token not in repr(kept)
    assert CLIENT_SECRET not in repr(kept)


async def test_the_final_address_is_pasted_where_there_is_no_browser(server: OAuthServer) -> None:
    terminal = Terminal(
        browses=False,
        pastes=(
            lambda _: "what do you want",
            lambda address: address.replace("state=", "state=x"),
            lambda address: address.replace(f":{urlsplit(address).port}", ":1"),
            lambda address: f"  {address} ",
        ),
    )
    kept = await signed_in(server, terminal)
    assert server.user_of(kept.access_token) == "ann@example.org"
    told = [one for one in terminal.said if "paste" in one and "Then paste" not in one]
    assert [
        word in line for word, line in zip(("is not the address", "another sign-in", "127.0.0.1:1,"), told, strict=True)
    ]


async def test_microsoft_needs_no_secret_and_comes_back_to_localhost(server: OAuthServer) -> None:
    """Nor the address of the mailbox, which may be an alias, or shared."""
    server.client_secret = ""
    server.person = OAuthPerson("ann@tenant.example")
    kept = await signed_in(server, provider="microsoft", secret="")
    assert kept.user == "ann@example.org"
    assert server.pages[0]["redirect_uri"].startswith("http://localhost:")
    assert kept.scopes == (
        "https://outlook.office.com/IMAP.AccessAsUser.All",
        "https://outlook.office.com/SMTP.Send",
    )


@pytest.mark.parametrize(
    ("person", "says"),
    [
        (OAuthPerson(denies=True), "the consent was denied at the provider"),
        (
            OAuthPerson(leaves_out=frozenset({"https://mail.google.com/"})),
            r"missing: https://mail.google.com/\. Sign in again, and leave every box ticked",
        ),
        (OAuthPerson("bob@example.org"), "bob@example.org has signed in, and the account is that of ann@example.org"),
    ],
)
async def test_a_consent_that_does_not_suffice(server: OAuthServer, person: OAuthPerson, says: str) -> None:
    server.person = person
    with pytest.raises(SwitchboardError, match=says) as caught:
        await signed_in(server)
    assert_quotes_no_secret(caught.value)


async def test_a_wrong_secret_of_the_client_is_said_and_not_quoted(server: OAuthServer) -> None:
    with pytest.raises(SignInRefused, match="does not accept the OAuth client") as caught:
        await signed_in(server, secret="GOCSPX-mistyped")
    assert "mistyped" not in str(caught.value)


def assert_quotes_no_secret(error: SwitchboardError, *secrets: str) -> None:
    for secret in (CLIENT_SECRET, *secrets):
        assert secret not in str(error)


# Tokens ---------------------------------------------------------------------------------------------------------------


async def test_a_token_is_renewed_before_it_expires(tmp_path: Path, server: OAuthServer) -> None:
    file = await kept_in(tmp_path, server)
    one = opened(file, server)
    first = await one.access_token()
    assert (await one.access_token(), refreshes(server)) == (first, [])
    server.clock.move(3500)
    second = await one.access_token()
    assert (server.user_of(second), refreshes(server)) == ("ann@example.org", [""])
    assert (second != first, await opened(file, server).access_token()) == (True, second)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_refused_token_is_replaced_once_for_all(tmp_path: Path, server: OAuthServer) -> None:
    one = opened(await kept_in(tmp_path, server), server)
    old = await one.access_token()
    server.expire_access()
    new = await asyncio.gather(*(one.access_token(refused=old) for _ in range(5)))
    assert (len({*new}), server.user_of(new[0]), refreshes(server)) == (1, "ann@example.org", [""])


async def test_a_sign_in_that_ended_is_asked_for_no_more(tmp_path: Path, server: OAuthServer) -> None:
    file = await kept_in(tmp_path, server)
    kept = read_tokens(file)
    server.end_consents()
    server.clock.move(DAY)
    for one in (opened(file, server), opened(file, server)):
        with pytest.raises(SignInRefused, match=f"expired or revoked.*sign in again: `{SIGN_IN}`") as caught:
            await one.access_token()
        assert_quotes_no_secret(caught.value, kept.refresh_token)
    assert refreshes(server) == ["invalid_grant"]
    write_tokens(file, await signed_in(server))
    assert server.user_of(await opened(file, server).access_token()) == "ann@example.org"


@pytest.mark.parametrize(("days", "named"), [(6.4, False), (7.1, True), (7.4, True), (7.6, False)])
async def test_a_death_after_seven_days_is_that_of_testing(
    tmp_path: Path, server: OAuthServer, days: float, named: bool
) -> None:
    file = await kept_in(tmp_path, server)
    if days < 7:
        server.end_consents()
    server.trial = True
    server.clock.move(days * DAY)
    with pytest.raises(SignInRefused) as caught:
        await opened(file, server).access_token()
    assert ("your Google project is in Testing: publish it first" in str(caught.value)) is named


async def test_a_provider_that_cannot_be_asked_is_asked_again(tmp_path: Path, server: OAuthServer) -> None:
    one = opened(await kept_in(tmp_path, server), server)
    server.clock.move(DAY)
    server.spoil("token", Cut(taken=False))
    with pytest.raises(OSError, match=r"127\.0\.0\.1 cannot be reached"):
        await one.access_token()
    assert server.user_of(await one.access_token()) == "ann@example.org"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.unlink(), "is missing: sign in again"),
        (lambda file: file.chmod(0o640), "can be read by other users; close it: chmod 600"),
        (lambda file: file.write_text('{"refresh_token": "1//secret"'), "is damaged: sign in again"),
    ],
)
async def test_a_file_that_cannot_be_used(
    tmp_path: Path, server: OAuthServer, spoil: Callable[[Path], object], says: str
) -> None:
    file = await kept_in(tmp_path, server)
    spoil(file)
    with pytest.raises(ConfigurationError, match=says) as caught:
        await opened(file, server).access_token()
    assert "1//secret" not in str(caught.value)


async def test_doctor_names_sign_ins_that_end_and_have_ended(tmp_path: Path, server: OAuthServer) -> None:
    """Those of a channel and of a module; the trial ends after seven days, and is told of a day before."""
    server.trial = server.tells_trial = True
    file = await kept_in(tmp_path, server)
    (tmp_path / "channels.d").mkdir()
    account = 'channel = "email"\nsettings = {token_file = "../google-ann.token"}\n'
    (tmp_path / "channels.d/gmail.toml").write_text(account)
    modules = {
        "calendar": {"accounts": {"ann": {"token_file": str(file)}, "bob": {"token_file": str(tmp_path / "no")}}}
    }
    both = Settings(channels_dir=tmp_path / "channels.d", modules=modules)
    one = Settings(channels_dir=tmp_path / "channels.d")

    def doctor(settings: Settings) -> list[tuple[str, str]]:
        return [(found.status, found.remedy) for found in check_sign_ins(settings, now_of(server))]

    assert [status for status, _ in doctor(one)] == ["ok"]
    assert [status for status, _ in doctor(both)] == ["error"]
    server.clock.move(6.2 * DAY)
    assert doctor(one) == [("warning", SIGN_IN)]
    server.clock.move(DAY)
    with pytest.raises(SignInRefused):
        await opened(file, server).access_token()
    [(status, remedy)] = doctor(one)
    assert (status, remedy) == ("error", SIGN_IN)
    assert check_sign_ins(Settings(channels_dir=tmp_path / "nothing")) == []


async def test_secrets_are_in_no_log(
    tmp_path: Path, server: OAuthServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (None, "httpx2", "httpcore2"):  # other tests have set up logs, which makes these quieter
        caplog.set_level(logging.DEBUG, name)
    file = await kept_in(tmp_path, server)
    first = read_tokens(file)
    server.clock.move(DAY)
    second = await opened(file, server).access_token()
    server.end_consents()
    with pytest.raises(SignInRefused):
        await opened(file, server).access_token(refused=second)
    logged = caplog.text + "".join(capsys.readouterr())
    assert "a sign-in has ended" in logged
    assert f"POST {server.url}/token" in logged
    for secret in (first.access_token, first.refresh_token, second, CLIENT_SECRET):
        assert secret not in logged


# Several processes, and their ends ------------------------------------------------------------------------------------


class Node:
    """A process of `tests/oauth_node.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def token(self) -> str:
        """What it prints once it is told to go on; empty if it was killed. Nothing of it goes to standard error."""
        out, err = await self._process.communicate(b"go\n")
        assert err == b""
        return out.decode().strip()


async def node(file: Path, point: str = "-") -> Node:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.oauth_node", str(file), point),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return Node(process)


def outdated(kept: KeptTokens) -> dict[str, Any]:
    return {"expires_at": kept.consented_at}


async def test_two_processes_never_spend_one_refresh_token(tmp_path: Path) -> None:
    async with OAuthServer(rotation="strict") as server:
        kept = await signed_in(server)
        file = await kept_in(tmp_path, server, **outdated(kept))
        found = await asyncio.gather(*[one.token() for one in [await node(file) for _ in range(2)]])
        assert (server.user_of(found[0]), found[0] == found[1], refreshes(server)) == ("ann@example.org", True, [""])
        server.expire_access()
        assert server.user_of(await opened(file, server).access_token(refused=found[0])) == "ann@example.org"


@pytest.mark.parametrize("rotation", ["none", "grace"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_process_killed_while_it_renews_costs_nobody_the_sign_in(
    tmp_path: Path, rotation: Rotation, point: str
) -> None:
    async with OAuthServer(rotation=rotation) as server:
        kept = await signed_in(server)
        file = await kept_in(tmp_path, server, **outdated(kept))
        assert await (await node(file, point)).token() == ""
        assert server.user_of(await opened(file, server).access_token()) == "ann@example.org"
        assert refreshes(server) == ([""] if point == "replaced" else ["", ""])


async def test_an_answer_lost_under_strict_rotation_is_told_with_the_command(tmp_path: Path) -> None:
    async with OAuthServer(rotation="strict") as server:
        file = await kept_in(tmp_path, server)
        server.clock.move(DAY)
        server.spoil("token", Cut(taken=True))
        with pytest.raises(OSError, match="cannot be reached"):
            await opened(file, server).access_token()
        with pytest.raises(SignInRefused, match=SIGN_IN):
            await opened(file, server).access_token()


# The server -----------------------------------------------------------------------------------------------------------


async def test_googles_own_client_is_given_tokens(server: OAuthServer) -> None:
    kept = await signed_in(server)
    make: Any = Credentials
    theirs = make(
        None,
        scopes=list(kept.scopes),
        refresh_token=kept.refresh_token,
        token_uri=f"{server.url}/token",
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
    )
    await asyncio.to_thread(theirs.refresh, GoogleRequest())
    assert server.user_of(theirs.token) == "ann@example.org"
    assert theirs.granted_scopes[0] == "https://www.googleapis.com/auth/calendar.readonly"


async def test_the_trial_is_announced_where_the_server_does_so(server: OAuthServer) -> None:
    server.trial = server.tells_trial = True
    kept = await signed_in(server)
    assert kept.refresh_expires_at is not None
    assert round((kept.refresh_expires_at - kept.consented_at).total_seconds() / DAY) == 7


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"access_token": "a", "expires_in": 1e300}', "makes no sense"),
        (b'{"access_token": "a", "expires_in": "nan"}', "makes no sense"),
        (b'{"access_token": "a", "refresh_token_expires_in": 1e300}', "makes no sense"),
        (None, "has not answered within"),
    ],
    ids=["time", "no number", "end", "byte by byte"],
)
async def test_an_answer_of_no_use_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, body: bytes | None, says: str
) -> None:
    monkeypatch.setattr("switchboard.transport.oauth.requests._WHOLE_S", 0.5)
    dripping = asyncio.Event()
    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (9999 if body is None else len(body)))
            writer.write(b" " if body is None else body)
            while body is None and not writer.is_closing():
                dripping.set()
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as listening:
        place = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/token"
        client = OAuthClient(provider="google", client_id="c", authorization_endpoint=place, token_endpoint=place)
        with pytest.raises(ConnectionError, match=says):
            await refresh_tokens(client, "r", datetime.now(UTC))
    for one in served:
        one.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    assert dripping.is_set() == (body is None)

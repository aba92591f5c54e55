"""Mailboxes opened by OAuth 2: Dovecot and Postfix ask the strict provider about each token, as Google's servers do."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.connectors.email.channel import EmailSession
from switchboard.connectors.email.manifest import MANIFEST
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError
from switchboard.modules.email.connections import Deadline, MailConnections
from switchboard.modules.email.settings import ImapPlace, MailAccount
from switchboard.ports.connector import Account, Inbound, Later, Part, Sent, SignInRefused
from switchboard.store.database import Database
from switchboard.store.people import people
from switchboard.testing.oauth import CLIENT_SECRET, OAuthPerson, OAuthServer
from switchboard.transport.oauth.token_file import read_tokens, write_tokens
from tests.consenting import consent
from tests.mail_servers import MAIL, OWN, PASSWORD, Dovecot, imap_proxy, running_dovecot, running_postfix
from tests.oauth import SIGN_IN, signed_in
from tests.ports import free_port

pytestmark = pytest.mark.slow

ANN: Final = "ann@example.org"
TO: Final[dict[str, Any]] = {
    "to": "desk@example.org",
    "subject": "Hi",
    "message_id": "<m1@x.example>",
    "references": [],
}
PROVIDER_PORT: Final = free_port()


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


async def account_of(directory: Path, provider: OAuthServer, dovecot: Dovecot, postfix: int, **more: Any) -> Account:
    """Ann has signed in; the file of the account names that of her tokens, which is beside it."""
    write_tokens(directory / "ann.token", await signed_in(provider))
    made = {
        "address": ANN,
        "token_file": "ann.token",
        "imap": {"host": "127.0.0.1", "port": dovecot.tls_port},
        "smtp": {"host": "127.0.0.1", "port": postfix, "tls": "starttls"},
    }
    return Account("ann", EmailAccountSettings.model_validate(made | more), {}, directory=directory)


def refreshes(provider: OAuthServer) -> list[str]:
    return [call.error for call in provider.calls if call.grant == "refresh_token"]


async def test_a_token_that_a_server_refuses_is_renewed_on_the_spot(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot, postfix: int
) -> None:
    account = await account_of(tmp_path, provider, dovecot, postfix)
    session = await MANIFEST.open(account)
    assert MANIFEST.can_send is not None
    await MANIFEST.can_send(account)
    provider.expire_access()
    assert await session.latest()
    assert refreshes(provider) == [""]
    provider.expire_access()
    assert isinstance(await session.send(Part(address=TO, text="Fine."), "key-1"), Sent)
    assert refreshes(provider) == ["", ""]
    await session.close()


async def test_an_ended_sign_in_is_told_with_its_command(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot, postfix: int
) -> None:
    account = await account_of(tmp_path, provider, dovecot, postfix)
    session = await MANIFEST.open(account)
    provider.end_consents()
    for _ in range(3):
        with pytest.raises(SignInRefused, match=f"sign in again: `{SIGN_IN}`"):
            await MANIFEST.open(account)
        later = await session.send(Part(address=TO, text="Fine."), "key-2")
        assert isinstance(later, Later)
        assert SIGN_IN in later.reason
    assert refreshes(provider) == ["invalid_grant"]
    await session.close()


async def test_a_mailbox_of_somebody_else_is_refused_after_one_renewal(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot, postfix: int
) -> None:
    account = await account_of(tmp_path, provider, dovecot, postfix, user="bob@example.org")
    with pytest.raises(SignInRefused, match=f"refuses the sign-in: .* sign in again: `{SIGN_IN}`"):
        await MANIFEST.open(account)
    assert refreshes(provider) == [""]


async def test_a_persons_mailbox_is_opened_by_a_token_file(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot
) -> None:
    write_tokens(tmp_path / "ann.token", await signed_in(provider))
    place = ImapPlace("127.0.0.1", dovecot.tls_port)
    account = MailAccount(place, ANN, person="ann", token_file=tmp_path / "ann.token")
    account.check()
    provider.expire_access()
    async with MailConnections().open_box("ann", account, Deadline()) as box:
        assert await box.open_folder("INBOX") > 0
    assert refreshes(provider) == [""]


async def test_one_way_to_sign_in_is_enough(tmp_path: Path, provider: OAuthServer, dovecot: Dovecot) -> None:
    account = await account_of(tmp_path, provider, dovecot, 25)
    with pytest.raises(ConfigurationError, match="has a `token_file`, and needs no other way"):
        await MANIFEST.open(Account("ann", account.settings, {"password": PASSWORD}, directory=tmp_path))


THREADS: Final = {b"1": b"1278455344230334865", b"2": b"1278455344230334865", b"3": b"1266894439832287888"}


def with_threads(data: bytes) -> bytes:
    """What Dovecot answers, with the thread of each mail, as Gmail has it."""
    data = data.replace(b"CAPABILITY IMAP4rev1", b"CAPABILITY IMAP4rev1 X-GM-EXT-1")
    pattern = re.compile(rb"(FETCH \(UID (\d+) INTERNALDATE )")
    return pattern.sub(lambda found: found[1].replace(b"UID", b"X-GM-THRID " + THREADS[found[2]] + b" UID"), data)


async def test_mails_of_a_thread_at_gmail_are_one_conversation(dovecot: Dovecot, postfix: int) -> None:
    """Also the answer whose References are lost; a mail that names another one's thread is in its own."""
    heads = ("one@x.example>", "two@x.example>", "three@x.example>\r\nReferences: <one@x.example>")
    dovecot.deliver(*(MAIL.replace("<{name}@x.example>", f"<{head}").format(name="x").encode() for head in heads))

    def without_threads(line: bytes) -> bytes:
        return line.replace(b"X-GM-THRID ", b"")

    with imap_proxy(dovecot, asked=without_threads, told=with_threads) as port:
        imap = {"host": "127.0.0.1", "port": port, "tls": "none"}
        made = {"address": OWN, "user": "bot", "imap": imap, "smtp": {"host": "127.0.0.1", "port": postfix}}
        session = EmailSession(EmailAccountSettings.model_validate(made), PASSWORD)
        found: list[Envelope] = []
        async with asyncio.timeout(60), aclosing(session.receive(None)) as batches:
            async for batch in batches:
                found += [one.envelope for one in batch.events if isinstance(one, Inbound)]
                if len(found) == len(heads):
                    break
        await session.close()
    threads = [f"gmail:{thread.decode()}" for thread in THREADS.values()]
    assert [one.event.external_thread_id for one in found] == threads


# Accounts of channels -------------------------------------------------------------------------------------------------


def servers(dovecot: Dovecot, postfix: int) -> list[str]:
    """In place of Gmail's."""
    imap = {"host": "127.0.0.1", "port": dovecot.tls_port}
    smtp = {"host": "127.0.0.1", "port": postfix, "tls": "starttls"}
    return ["--set", f"imap={json.dumps(imap)}", "--set", f"smtp={json.dumps(smtp)}"]


async def test_gmail_is_added_by_a_consent_and_signed_in_again(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot, postfix: int
) -> None:
    (tmp_path / "client.json").write_bytes(provider.client_file())
    given = ["--set", f"address={ANN}", "--set", "client=client.json", *servers(dovecot, postfix)]
    here = {"SWITCHBOARD_DATA_DIR": str(tmp_path / "data"), "SSL_CERT_FILE": str(dovecot.certificate)}
    code, said = await consent(["channels", "add", "gmail", *given], tmp_path, **here)
    assert code == 0, said
    account, tokens = tmp_path / "channels.d/gmail.toml", tmp_path / "channels.d/gmail.token"
    kept = read_tokens(tokens)
    assert (kept.user, kept.scopes) == (ANN, ("https://mail.google.com/",))
    assert tomllib.loads(account.read_text())["settings"]["token_file"] == "gmail.token"
    for secret in (kept.refresh_token, kept.access_token, CLIENT_SECRET):
        assert secret not in said + account.read_text()

    provider.end_consents()
    write_tokens(tokens, replace(kept, failed="it was taken back"))
    code, said = await consent(["channels", "login", "gmail"], tmp_path, **here)
    assert (code, read_tokens(tokens).failed) == (0, ""), said
    assert provider.user_of(read_tokens(tokens).access_token) == ANN


async def test_at_a_terminal_it_asks_for_what_is_missing(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot, postfix: int
) -> None:
    (tmp_path / "client.json").write_bytes(provider.client_file())
    here = {"SWITCHBOARD_DATA_DIR": str(tmp_path / "data"), "SSL_CERT_FILE": str(dovecot.certificate)}
    command = ["channels", "add", "gmail", "post", *servers(dovecot, postfix)]
    code, said = await consent(command, tmp_path, "nobody", ANN, "client.json", **here)
    assert code == 0, said
    assert "publish the app" in said
    assert "write one address" in said
    assert read_tokens(tmp_path / "channels.d/post.token").sign_in == "switchboard channels login post"


@pytest.mark.parametrize(
    ("kind", "person", "says"),
    [
        ("web", OAuthPerson(), "make one of the type Desktop app"),
        ("installed", OAuthPerson(denies=True), "the consent was denied at the provider"),
        ("installed", OAuthPerson(leaves_out=frozenset({"https://mail.google.com/"})), "leave every box ticked"),
    ],
)
async def test_nothing_is_written_for_a_sign_in_that_fails(
    tmp_path: Path, provider: OAuthServer, kind: str, person: OAuthPerson, says: str
) -> None:
    provider.person = person
    (tmp_path / "client.json").write_bytes(provider.client_file(kind))
    given = ["--set", f"address={ANN}", "--set", "client=client.json"]
    code, said = await consent(["channels", "add", "gmail", *given], tmp_path)
    assert code != 0
    assert says in " ".join(said.split())
    assert not (tmp_path / "channels.d").exists()


# Mailboxes of persons -------------------------------------------------------------------------------------------------


async def test_a_mailbox_at_microsoft_is_logged_in_for_a_household(
    tmp_path: Path, provider: OAuthServer, dovecot: Dovecot, database: Database, database_url: str
) -> None:
    async with database.transaction() as one:
        await people.create(one, "ann", "ann")
        await people.join_group(one, "ann", "family")
    (tmp_path / "client.json").write_bytes(provider.client_file())
    (tmp_path / "switchboard.toml").write_text('log_level = "warning"\n')
    place = {"host": "127.0.0.1", "port": str(dovecot.tls_port)}
    answers = {"address": ANN, "client": "client.json", "whose": "group:family", **place}
    command = ["modules", "login", "microsoft", *(f"--set={name}={value}" for name, value in answers.items())]
    here = {"SWITCHBOARD_DATABASE_URL": database_url, "SWITCHBOARD_DATA_DIR": str(tmp_path / "data")}
    code, said = await consent(command, tmp_path, SSL_CERT_FILE=str(dovecot.certificate), **here)
    assert code == 0, said
    tables = tomllib.loads((tmp_path / "switchboard.toml").read_text())["modules"]["email"]["accounts"]
    assert tables == {
        "family": {
            "imap": {"host": "127.0.0.1", "port": dovecot.tls_port, "tls": "tls"},
            "user": ANN,
            "group": "family",
            "token_file": "microsoft-family.token",
        }
    }
    assert "https://outlook.office.com/SMTP.Send" in read_tokens(tmp_path / "microsoft-family.token").scopes

"""The wizards `switchboard modules login google` and `microsoft`: a person consents, then the accounts are kept.

The manifests of calendar and email name them. One consent may open a calendar, contacts and a mailbox; each becomes an
account of its module, and all name one token file. In: a context with a `LoginDesk`; out: that file, and the accounts
in the settings. With `again` the file alone is replaced. Next: `transport/oauth/sign_in.py`, `wizard.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, Unavailable
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.questions import AccountOwner, ask_owner, check_account_name, check_addresses
from switchboard.modules.accounts.surveys import NAMES, AccountSurvey, Surveyed
from switchboard.modules.accounts.wizard import ask_of_calendar, ask_region
from switchboard.ports.collection_server import CollectionServer, ServerError
from switchboard.ports.login_desk import LOGIN_DESK, LoginDesk
from switchboard.ports.module import ModuleContext
from switchboard.transport.google.calendars import open_google_calendars
from switchboard.transport.google.client import CALENDAR_API, PEOPLE_API
from switchboard.transport.google.contacts import open_google_contacts
from switchboard.transport.mail_servers.mailbox import Mailbox, SignIn
from switchboard.transport.mail_servers.server import Server, Tls
from switchboard.transport.mail_servers.token_sign_in import sign_in_with_token
from switchboard.transport.oauth.asking import CLIENT_QUESTIONS, ask_client
from switchboard.transport.oauth.providers import PROVIDERS, OAuthProvider, Opens
from switchboard.transport.oauth.sign_in import AskedAccess, sign_in_person
from switchboard.transport.oauth.token_file import KeptTokens, lock_of, read_tokens, replace_tokens, write_tokens
from switchboard.transport.oauth.tokens import TokenFile

_MODULES: Final[Mapping[Opens, str]] = {"calendar": "calendar", "contacts": "contacts", "mail": "email"}
_USUAL: Final = "calendar,contacts"
_QUESTIONS: Final = CLIENT_QUESTIONS | {"address", "opens", "write", "again", "whose", "name"}
_OF_ACCOUNTS: Final = frozenset(("addresses", "zone", "busy_for", "sends", "region", "writes_as"))
_UNASKED: Final = frozenset(("url", "host", "port", "tls"))
"""What can be answered beforehand, by options of the command; the last are never asked."""
_IMAP: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "google": ("imap.gmail.com", ("mx.google.com",)),
    "microsoft": ("outlook.office365.com", ()),
}
"""Where mailboxes are, and by which name their servers mark mails whose senders they have checked."""
_TLS: Final[Mapping[str, Tls]] = {"tls": "tls", "starttls": "starttls", "none": "none"}


class _NewAccounts(Struct, frozen=True):
    """What becomes of a consent: an account of this name in each module of what it opens."""

    provider: OAuthProvider
    opens: tuple[Opens, ...]
    address: str
    owned: AccountOwner
    name: str
    write: bool

    @property
    def tokens(self) -> Path:
        return Path(f"{self.provider.name}-{self.name}.token")

    @property
    def table(self) -> JsonObject:
        """What the tables of all of them say."""
        return {"user": self.address, "token_file": self.tokens.name, **self.owned.table}


async def log_in_google(context: ModuleContext) -> None:
    """Connect calendars, contacts, a mailbox. Raises InvalidInput, Conflict, ConfigurationError, Unavailable."""
    await _log_in(context.needs[LOGIN_DESK], PROVIDERS["google"])


async def log_in_microsoft(context: ModuleContext) -> None:
    """Connect a mailbox. Raises as `log_in_google`."""
    await _log_in(context.needs[LOGIN_DESK], PROVIDERS["microsoft"])


async def _log_in(desk: LoginDesk, provider: OAuthProvider) -> None:
    desk.require_known_answers(_QUESTIONS | _OF_ACCOUNTS | _UNASKED)
    if file := desk.given_answer("again"):
        await _sign_in_again(desk, provider, Path(file))
        return
    new = _ask_accounts(desk, provider)
    client = ask_client(desk, provider)
    scopes = provider.scopes_for(new.opens, write=new.write)
    command = f"switchboard modules login {provider.name} --again {new.tokens}"
    kept = await _sign_in(desk, AskedAccess(client, provider, scopes, command, new.address))
    with _kept_if_used(new.tokens, kept):
        tables = [await _survey_account(desk, new, one) for one in new.opens]
        for opened, table in zip(new.opens, tables, strict=True):
            desk.keep_account(_MODULES[opened], new.name, {**table, **new.table}, None)


async def _sign_in_again(desk: LoginDesk, provider: OAuthProvider, file: Path) -> None:
    kept = read_tokens(file)
    if kept.client.provider != provider.name:
        raise InvalidInput(f"{file} is of {kept.client.provider}: switchboard modules login {kept.client.provider}")
    opens = tuple(one for one in provider.scopes if {*provider.scopes[one]} <= {*kept.scopes})
    write = desk.given_answer("write") == "yes"
    wanted = tuple(dict.fromkeys((*kept.scopes, *provider.scopes_for(opens, write=write))))
    if write and wanted == kept.scopes:
        raise InvalidInput(f"{file}: nothing more is to be consented to: only calendars of Google can be written to")
    renewed = await _sign_in(desk, AskedAccess(kept.client, provider, wanted, kept.sign_in, kept.user))
    await replace_tokens(file, renewed)
    desk.say(f"{renewed.user} has signed in; {file} is replaced, and counts at once.")
    if write:
        desk.say('For invitations by mail from Google, set sends = "server" in the table of the account.')


async def _sign_in(desk: LoginDesk, asked: AskedAccess) -> KeptTokens:
    try:
        return await sign_in_person(asked, desk)
    except OSError as error:
        raise Unavailable(f"{asked.provider.title} cannot be asked: {error}; nothing was changed") from error


@contextmanager
def _kept_if_used(file: Path, kept: KeptTokens) -> Iterator[None]:
    """The token file is there within the block, and stays unless that fails."""
    if file.exists():
        raise Conflict(f"{file} is there already: remove it, or give the account another name")
    _write_file(file, kept)
    try:
        yield
    except BaseException:
        file.unlink(missing_ok=True)
        lock_of(file).unlink(missing_ok=True)
        raise


def _write_file(file: Path, kept: KeptTokens) -> None:
    try:
        write_tokens(file, kept)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or file} cannot be written: {error.strerror}") from error


# What is asked before the consent -------------------------------------------------------------------------------------


def _ask_accounts(desk: LoginDesk, provider: OAuthProvider) -> _NewAccounts:
    opens: tuple[Opens, ...] = ("mail",)
    if len(provider.scopes) > 1:
        question = f"What to connect, divided by commas: {', '.join(provider.scopes)}"
        typed = desk.answer_to("opens", question, _USUAL, partial(_check_opens, provider))
        opens = tuple(one for one in provider.scopes if one in typed.split(","))
    write = desk.given_answer("write") == "yes"
    if write and not any(one in provider.writing for one in opens):
        raise InvalidInput(f"--write: of {provider.title}, only calendars can be written to")
    address = desk.answer_to("address", "The address of the account, such as ann@example.org", None, _check_address)
    owned = ask_owner(desk)
    usual = owned.whose.partition(":")[2]
    name = desk.answer_to("name", "A name for it, which people see", usual, partial(_check_free, desk, opens))
    return _NewAccounts(provider, opens, address, owned, name, write)


def _check_opens(provider: OAuthProvider, typed: str) -> str:
    found = [one.strip() for one in typed.split(",") if one.strip()]
    if not found or {*found} - {*provider.scopes}:
        raise ValueError(f"write some of {', '.join(provider.scopes)}, divided by commas")
    return ",".join(found)


def _check_address(typed: str) -> str:
    found = check_addresses(typed)
    if not found or "," in found:
        raise ValueError("write one address, such as ann@example.org")
    return found


def _check_free(desk: LoginDesk, opens: tuple[Opens, ...], typed: str) -> str:
    for opened in opens:
        check_account_name(desk, _MODULES[opened], typed)
    return typed


# What is looked up after it -------------------------------------------------------------------------------------------


async def _survey_account(desk: LoginDesk, new: _NewAccounts, opened: Opens) -> JsonObject:
    """The table of an account, but for what all of them have. Raises InvalidInput."""
    if opened == "mail":
        return await _survey_mail(desk, new)
    url = desk.given_answer("url").rstrip("/")
    tokens, place = TokenFile(new.tokens), {"url": url} if url else {}
    if opened == "contacts":
        async with open_google_contacts(tokens, api=f"{url}/v1" if url else PEOPLE_API) as server:
            _say_found(desk, "carddav", await _find_collections(server))
        return {"provider": new.provider.name, **place, **ask_region(desk)}
    api = f"{url}/calendar/v3" if url else CALENDAR_API
    async with open_google_calendars(tokens, new.address, sends=False, api=api) as server:
        found = await _find_collections(server)
    _say_found(desk, "caldav", found)
    survey = AccountSurvey(found, scheduling=new.write, addresses=(new.address,))
    return {"provider": new.provider.name, **place, **ask_of_calendar(desk, survey, new.address)}


async def _find_collections(server: CollectionServer) -> tuple[Surveyed, ...]:
    try:
        return tuple(Surveyed(one, 0) for one in await server.find_collections())
    except ServerError as error:
        raise InvalidInput(
            f"{server.host} cannot be used: {error}; see whether the API is enabled in the project of the client"
        ) from error


def _say_found(desk: LoginDesk, kind: str, found: tuple[Surveyed, ...]) -> None:
    for one in found:
        rights = ", can only be read" if one.collection.writable is False else ""
        desk.say(f"  {NAMES[kind][0]} {one.collection.name!r}{rights}")


async def _survey_mail(desk: LoginDesk, new: _NewAccounts) -> JsonObject:
    usual, marked_by = _IMAP[new.provider.name]
    host, port = desk.given_answer("host") or usual, int(desk.given_answer("port") or 993)
    server = Server(host=host, port=port, tls=_TLS.get(desk.given_answer("tls"), "tls"))

    async def connect(sign_in: SignIn) -> None:
        (await asyncio.to_thread(Mailbox, server, sign_in)).abandon()

    try:
        await sign_in_with_token(TokenFile(new.tokens), new.address, connect)
    except OSError as error:
        raise InvalidInput(f"the IMAP server {host}:{port} cannot be used: {error}"[:500]) from error
    desk.say(f"  mailbox of {new.address}")
    typed = desk.answer_to("writes_as", "The addresses from which they write", new.address, check_addresses)
    others = [one for one in typed.split(",") if one and one != new.address]
    table: JsonObject = {"imap": {"host": host, "port": port, "tls": server.tls}}
    table |= {"writes_as": others} if others else {}
    return table | ({"trusted_servers": list(marked_by)} if marked_by else {})

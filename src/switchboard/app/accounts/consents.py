"""Accounts that are added, or signed in again, by a person's consent (OAuth 2) in two requests of a browser.

The page and the API call it. A consent that was begun is kept in this process alone, for ten minutes and for whoever
began it. Of it, only the address of the provider's page is shown, whose `state` is good for one answer. The browser
comes back without a session; what it brings is kept, and used when whoever began it says so. Next: `presets.py`,
`service.py`, `transport/oauth/sign_in.py`.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl
from uuid import UUID, uuid4

from msgspec import Struct

from switchboard.app.access import Principal
from switchboard.app.accounts.adding import AskedAccount, require_room
from switchboard.app.accounts.entered import NewChannelAccount, find_manifest, hide_secrets, read_entered
from switchboard.app.accounts.files import find_new_file
from switchboard.app.accounts.presets import (
    access_again,
    access_of,
    check_mailbox,
    find_preset,
    replace_sign_in,
    require_own_tokens,
    settings_by_consent,
    tokens_for,
)
from switchboard.app.accounts.service import AddedAccount, ChannelAccounts
from switchboard.app.ownership import read_ours
from switchboard.app.runtime import Runtime
from switchboard.connectors.kernel.accounts import read_declarations
from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, NotFound, Unavailable
from switchboard.ports.connector import SignInPreset, SignInRefused
from switchboard.transport.oauth.clients import EVERYBODY, read_client, typed_client
from switchboard.transport.oauth.consent import ConsentFailed, ConsentRequest
from switchboard.transport.oauth.providers import PROVIDERS, OAuthProvider
from switchboard.transport.oauth.sign_in import AskedAccess, new_request, redeem_code
from switchboard.transport.oauth.token_file import KeptTokens, OAuthClient, read_tokens
from switchboard.transport.oauth.tokens import describe_end, explain_trial

CONSENT_LASTS: Final = timedelta(minutes=10)
_MOST: Final = 100
"""Of those that were begun, the newest, are kept."""
_GONE: Final = (
    "this sign-in is not known here: it was answered already, or ended, as it does ten minutes after it was begun and "
    "when the server is restarted; begin it again, under Connections"
)


@dataclass(frozen=True, slots=True)
class GivenClient:
    """The OAuth client of the user: its downloaded file, or its id, with a secret if it has one."""

    file: bytes = field(default=b"", repr=False)
    client_id: str = ""
    secret: str = field(default="", repr=False)
    tenant: str = ""


class NewConsent(Struct, frozen=True):
    """What was entered for a mailbox that is opened by consent: an account without secrets.

    Its `channel` is a preset, as in `switchboard channels add`; its `settings` are those besides what the preset has.
    """

    account: NewChannelAccount
    address: str
    client: GivenClient


class ConsentSeat(Struct, frozen=True):
    """Who begins a consent: nobody else can go on with it. The provider leads to `port` of this machine.

    `back`: where the browser is led from there, as in `http://127.0.0.1:8000/ui/connections/consents/`, to which the id
    is appended; None: a program has begun it.
    """

    whose: str
    port: int
    back: str | None = None


@dataclass(frozen=True, slots=True)
class ConsentView:
    """A consent that was begun. `page`: the address of the provider's page, which leads to `redirect_uri` at its end.

    `answered`: the provider has agreed, so that it can be finished. `told`: what went wrong at its page.
    """

    consent_id: UUID
    provider: str
    name: str
    again: bool
    user: str
    page: str
    redirect_uri: str
    expires_at: datetime
    one_week: bool
    answered: bool
    told: str
    finished: bool


@dataclass(frozen=True, slots=True)
class FinishedConsent:
    """An account that is signed in. `added` is there if it is new; `ends`: when and why the sign-in ends, if known."""

    name: str
    user: str
    added: AddedAccount | None
    ends: str | None


class SignInState(Struct, frozen=True):
    """The sign-in of an account: at which provider, who has consented, and whether it has ended or ends soon."""

    provider: str
    user: str
    ended: str
    ends: str | None


@dataclass(slots=True)
class _Begun:
    consent_id: UUID
    seat: ConsentSeat
    name: str
    asked: AskedAccess
    complete: Callable[[Principal, KeptTokens], Awaitable[AddedAccount | None]]
    again: bool
    request: ConsentRequest
    expires_at: datetime
    code: str = ""
    kept: KeptTokens | None = None
    told: str = ""
    finished: FinishedConsent | None = None

    def renew(self, told: str, now: datetime) -> None:
        """Ask once more, with secrets of its own: what was asked before is good for nothing from now on."""
        self.request, self.expires_at = new_request(self.asked, self.request.redirect_uri), now + CONSENT_LASTS
        self.code, self.told = "", told

    def waits_for(self, state: str) -> bool:
        """Whether it is the one of this `state`, and has no answer yet."""
        known = hmac.compare_digest(self.request.state.encode(), state.encode())
        return known and not self.code and self.kept is None and self.finished is None

    @property
    def view(self) -> ConsentView:
        provider = self.asked.provider
        return ConsentView(
            consent_id=self.consent_id,
            provider=provider.title,
            name=self.name,
            again=self.again,
            user=self.asked.user,
            page=self.request.page(provider),
            redirect_uri=self.request.redirect_uri,
            expires_at=self.expires_at,
            one_week=provider.one_week,
            answered=bool(self.code or self.kept),
            told=self.told,
            finished=self.finished is not None,
        )


class AccountConsents:
    """Consents that were begun in this process."""

    def __init__(self, runtime: Runtime, accounts: ChannelAccounts) -> None:
        self._settings = runtime.settings
        self._accounts = accounts
        self._begun: dict[UUID, _Begun] = {}
        self._finishing = asyncio.Lock()

    async def begin_new(self, seat: ConsentSeat, wanted: NewConsent) -> ConsentView:
        """Ask for an account's mailbox. Raises InvalidInput, Conflict."""
        account = wanted.account
        found = find_preset(account.channel)
        if found is None:
            raise InvalidInput(f"{account.channel[:64]!r} is no provider at which one signs in", field="channel")
        channel, preset = found
        address, client = _read_entered(wanted, PROVIDERS[preset.provider])
        asked = await asyncio.to_thread(self._read_account, account, channel, preset, address)
        add = partial(self._add_account, asked, account.owner_of)
        return self._begin_consent(
            seat, account.name, access_of(preset, client, account.name, address), add, again=False
        )

    async def begin_again(self, seat: ConsentSeat, name: str) -> ConsentView:
        """Ask for the same as when the account was added. Raises NotFound, InvalidInput, Conflict."""
        try:
            _, _, access = await self._find_access(name)
        except ConfigurationError as error:
            raise Conflict(error.message) from error
        return self._begin_consent(seat, name, access, partial(self._replace_tokens, name, access), again=True)

    def _begin_consent(
        self,
        seat: ConsentSeat,
        name: str,
        asked: AskedAccess,
        complete: Callable[[Principal, KeptTokens], Awaitable[AddedAccount | None]],
        *,
        again: bool,
    ) -> ConsentView:
        now = datetime.now(UTC)
        redirect_uri = f"http://{asked.provider.redirect_host}:{seat.port}"
        try:
            request = new_request(asked, redirect_uri)
        except ConfigurationError as error:
            raise InvalidInput(error.message, field="client") from error
        begun = _Begun(uuid4(), seat, name, asked, complete, again, request, now + CONSENT_LASTS)
        self._forget_old(now)
        self._begun[begun.consent_id] = begun
        return begun.view

    def find(self, whose: str, consent_id: UUID) -> ConsentView:
        """One that they began. Raises NotFound."""
        return self._find_begun(whose, consent_id).view

    def take_answer(self, query: str) -> str | None:
        """Keep what a browser brings from the provider's page, once; returns where it goes on, if anywhere.

        Whoever knows the `state` comes from that page. Raises NotFound for any other.
        """
        self._forget_old(datetime.now(UTC))
        state = dict(parse_qsl(query)).get("state", "")
        begun = next((one for one in self._begun.values() if one.waits_for(state)), None)
        if begun is None:
            raise NotFound(_GONE)
        self._read_answer(begun, f"{begun.request.redirect_uri}/?{query}")
        return f"{begun.seat.back}{begun.consent_id}" if begun.seat.back else None

    async def finish(self, caller: Principal, whose: str, consent_id: UUID, address: str = "") -> FinishedConsent:
        """Have the tokens, and the account with them; `address`: the last one of the browser, if it did not get here.

        Raises NotFound, InvalidInput, Conflict, Unavailable; then no account was written, and no error holds a secret.
        """
        async with self._finishing:
            begun = self._find_begun(whose, consent_id)
            if begun.finished is not None:
                return begun.finished
            if address and not begun.code and begun.kept is None:
                self._read_pasted(begun, address)
            kept = begun.kept = begun.kept or await self._redeem_code(begun)
            try:
                added = await begun.complete(caller, kept)
            except ConfigurationError as error:
                raise Conflict(error.message) from error
            user = kept.user
            begun.finished = FinishedConsent(begun.name, user, added, _describe_end(kept))
            begun.kept = None
            return begun.finished

    async def sign_in_state(self, name: str) -> SignInState | None:
        """That of an account; None: it signs in by other means, or its token file cannot be read. Raises NotFound."""
        file = await asyncio.to_thread(self._accounts.find_file, name)
        return await asyncio.to_thread(_read_state, file)

    def _find_begun(self, whose: str, consent_id: UUID) -> _Begun:
        self._forget_old(datetime.now(UTC))
        begun = self._begun.get(consent_id)
        if begun is None or begun.seat.whose != whose:
            raise NotFound(_GONE)
        return begun

    def _forget_old(self, now: datetime) -> None:
        fresh = {key: one for key, one in self._begun.items() if one.expires_at > now}
        self._begun = dict([*fresh.items()][-_MOST:])

    def _read_answer(self, begun: _Begun, address: str) -> None:
        try:
            begun.code, begun.told = begun.request.code_in(address), ""
        except ConsentFailed as error:
            begun.renew(error.message, datetime.now(UTC))

    def _read_pasted(self, begun: _Begun, address: str) -> None:
        """Raises InvalidInput."""
        try:
            self._read_answer(begun, address)
        except InvalidInput as error:
            raise InvalidInput(error.message, field="address") from None
        if not begun.code:
            raise InvalidInput(begun.told, field="address")

    async def _redeem_code(self, begun: _Begun) -> KeptTokens:
        """Whatever comes of it, the code is used up. Raises InvalidInput, Conflict, Unavailable."""
        if not begun.code:
            raise Conflict(f"nobody has consented at {begun.asked.provider.title} yet: open its page first")
        request, code, now = begun.request, begun.code, datetime.now(UTC)
        begun.renew("", now)
        try:
            return await redeem_code(begun.asked, request, code, now)
        except OSError as error:
            raise Unavailable(
                f"{begun.asked.provider.title} cannot be asked: {error}; nothing was changed, sign in once more"
            ) from None
        except (SignInRefused, InvalidInput, ConfigurationError) as error:
            hidden = [one for one in (request.client.client_secret, code, request.verifier) if one]
            raise InvalidInput(hide_secrets(hidden, error.message), code="sign_in_refused") from None

    def _read_account(
        self, wanted: NewChannelAccount, channel: str, preset: SignInPreset, address: str
    ) -> AskedAccount:
        """What was entered, checked without the provider. Raises InvalidInput, Conflict."""
        manifest, file = find_manifest(channel), find_new_file(self._settings, wanted.name)
        try:
            require_room(self._settings, manifest)
            require_own_tokens(file)
        except ConfigurationError as error:
            raise Conflict(error.message) from error
        return read_entered(wanted, manifest, settings_by_consent(preset, file, address, wanted.settings), {})

    async def _add_account(
        self, asked: AskedAccount, owner_of: str | None, caller: Principal, kept: KeptTokens
    ) -> AddedAccount:
        file = await asyncio.to_thread(find_new_file, self._settings, asked.name)
        with tokens_for(file, kept):
            return await self._accounts.add_asked(caller, asked, owner_of)

    async def _find_access(self, name: str) -> tuple[Path, Path, AskedAccess]:
        """Its file, its token file, and what it asks for. Raises NotFound, InvalidInput, ConfigurationError."""
        file = await asyncio.to_thread(self._accounts.find_file, name)
        return file, *await asyncio.to_thread(access_again, file)

    async def _replace_tokens(self, name: str, asked: AskedAccess, caller: Principal, kept: KeptTokens) -> None:
        """Raises NotFound, Conflict, also for another account that has got this name meanwhile."""
        file, tokens, access = await self._find_access(name)
        if access != asked:
            raise Conflict(f"the account {name} is another one than when this was begun: begin it again")
        async with self._accounts.record_change(caller, "signed_in", {"name": name, "user": kept.user}):
            await replace_sign_in(file, tokens, kept)


def _read_entered(wanted: NewConsent, provider: OAuthProvider) -> tuple[str, OAuthClient]:
    """The address and the client. Raises InvalidInput; none quotes what may be a secret."""
    try:
        address = check_mailbox(wanted.address)
    except ValueError as error:
        raise InvalidInput(str(error), field="address") from None
    given = wanted.client
    if not given.file and not given.client_id:
        raise InvalidInput("give the OAuth client that you have made: its downloaded file, or its ID", field="client")
    try:
        if given.file:
            return address, read_client(provider, given.file)
        return address, typed_client(provider, given.client_id, given.secret, given.tenant or EVERYBODY)
    except ValueError as error:
        raise InvalidInput(f"the OAuth client cannot be used: {error}", field="client") from None


def _read_state(file: Path) -> SignInState | None:
    with suppress(ConfigurationError):
        tokens = read_declarations(file, read_ours).token_file
        if tokens is not None:
            kept = read_tokens(tokens)
            ended = describe_end(kept) if kept.failed else ""
            return SignInState(PROVIDERS[kept.client.provider].title, kept.user, ended, _describe_end(kept))
    return None


def _describe_end(kept: KeptTokens) -> str | None:
    """When the sign-in ends, if the provider has said that, and why if it is known."""
    end = kept.refresh_expires_at
    if end is None:
        return None
    why = explain_trial(kept, end)
    return f"{end:%Y-%m-%d %H:%M} UTC, {why}" if why else f"{end:%Y-%m-%d %H:%M} UTC"

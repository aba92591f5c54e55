"""Accounts of channels for the page and the API: listed, added, tested, paused, resumed and removed.

Operators only. They are files in `channels_dir`, which `switchboard up` watches: a new account is connected within a
second, and a paused one stays so over restarts. Every change is audited. Next: `entered.py`, `adding.py`,
`standing.py`.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog
from msgspec import Struct

from switchboard.app.access import OPERATOR, Access, Action, Principal
from switchboard.app.accounts.adding import (
    AskedAccount,
    TriedAccount,
    check_account,
    hook_url_of,
    keep_account,
    try_account,
)
from switchboard.app.accounts.entered import (
    NewChannelAccount,
    find_manifest,
    hide_secrets,
    read_entered,
    read_secrets,
)
from switchboard.app.accounts.files import (
    account_names,
    find_new_file,
    known_accounts,
    remove_account_files,
    require_single,
    resume_account,
)
from switchboard.app.accounts.names import PREFIX
from switchboard.app.accounts.standing import AccountFacts, AccountStanding, facts_of_connectors, find_standings
from switchboard.app.accounts.tokens import lock_token, require_free, token_file
from switchboard.app.connectors.pairing import PairingCode, PairingService
from switchboard.app.ownership import read_ours
from switchboard.app.runtime import Runtime
from switchboard.connectors.kernel.accounts import Configured, pause_file, read_account
from switchboard.connectors.kernel.pausing import pause_account, paused_account
from switchboard.core.people.strangers import Policy, owner_by_code_mistake
from switchboard.domain.errors import (
    ConfigurationError,
    Conflict,
    InvalidInput,
    NotFound,
    SwitchboardError,
    Unavailable,
)
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Capabilities, Identity, SignInRefused
from switchboard.store.connectors import heartbeats
from switchboard.store.connectors import standing as store
from switchboard.store.connectors.standing import LastTraffic
from switchboard.store.people import audit, tokens

__all__ = ["ChannelAccounts", "LastTraffic", "PairingCode", "Policy"]

CHANNEL_ACCOUNTS: Final = Action("channels", OPERATOR)
_AT_A_TIME: Final = 4
"""Sign-ins at platforms, each of which has a thread."""

log = structlog.get_logger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class AddedAccount:
    """An account that has signed in and is connected now.

    `hook_url`: where its platform is to post events; `to_do`: what is left to do there; `pairing`: a code for the
    person who added it, which this answer alone contains.
    """

    name: str
    channel: str
    endpoint: str
    display_name: str
    strangers: Policy
    connects: bool
    hook_url: str | None
    to_do: str | None
    pairing: PairingCode | None


@dataclass(frozen=True, slots=True)
class CheckedAccount:
    """The owner of a secret: the account as in `telegram/bot:123456`."""

    name: str
    account: str
    display_name: str


class AccountsPlace(Struct, frozen=True):
    """Where accounts are kept: the directory, the machine, and whether this process may write there."""

    directory: str
    machine: str
    writable: bool


class AccountView(Struct, frozen=True):
    """One account with what belongs to it. `endpoint` is empty if it is not known yet.

    `start`: what a code is sent with; `limits` are None if the package of its channel cannot be loaded. `hook_url` and
    `to_do` as in `AddedAccount`.
    """

    standing: AccountStanding
    title: str
    channel: str
    endpoint: str
    policy: Policy
    makes_owners: bool
    start: str
    limits: Capabilities | None
    traffic: LastTraffic | None
    hook_url: str | None
    to_do: str | None


class ChannelAccounts:
    """The accounts in `channels_dir` of the machine on which this runs."""

    def __init__(self, runtime: Runtime, access: Access, pairing: PairingService) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._database = runtime.database
        self._access = access
        self._pairing = pairing
        self._signing_in = asyncio.Semaphore(_AT_A_TIME)
        self._keeping = asyncio.Lock()

    def place(self) -> AccountsPlace:
        """Where accounts are kept."""
        directory = self._settings.channels_dir.absolute()
        there = next(one for one in (directory, *directory.parents) if one.exists())
        return AccountsPlace(str(directory), platform.node(), os.access(there, os.W_OK | os.X_OK))

    async def standings(self, *, limit: int, cursor: str | None = None) -> tuple[list[AccountStanding], str | None]:
        """A page of the accounts, by name, and the cursor of the next."""
        names = [one for one in await asyncio.to_thread(account_names, self._settings) if one > (cursor or "")]
        page = names[:limit]
        found = await asyncio.to_thread(find_standings, self._settings, await self._find_facts(), page)
        return found, page[-1] if len(names) > limit else None

    async def standing(self, name: str) -> AccountStanding:
        """One account. Raises NotFound."""
        await asyncio.to_thread(self.find_file, name)
        [found] = await asyncio.to_thread(find_standings, self._settings, await self._find_facts(), [name])
        return found

    async def describe(self, name: str) -> AccountView:
        """One account with what belongs to it. Raises NotFound."""
        standing = await self.standing(name)
        channel, endpoint = split_account(standing.account)
        known = self._runtime.channels[channel or standing.channel]
        configured = await asyncio.to_thread(self._read_or_none, name)
        manifest = None if configured is None else configured.manifest
        self._runtime.policies.look()
        return AccountView(
            standing=standing,
            title=standing.channel if manifest is None else manifest.platform,
            channel=channel,
            endpoint=endpoint,
            policy=self._runtime.policies.get((channel, endpoint), "open"),
            makes_owners=owner_by_code_mistake(known) is None,
            start=f"{known.command_mark}start",
            limits=None if manifest is None else manifest.capabilities,
            traffic=(await self.traffic([standing])).get(standing.account or ""),
            hook_url=None if configured is None else hook_url_of(configured.manifest, configured.account),
            to_do=None if configured is None else _describe_to_do(configured, endpoint),
        )

    async def traffic(self, accounts: Sequence[AccountStanding]) -> Mapping[str, LastTraffic]:
        """The last messages in and out, by account as in `telegram/bot:123456`."""
        keys = [
            (channel, endpoint) for channel, endpoint in (split_account(one.account) for one in accounts) if endpoint
        ]
        found = await store.last_traffic(self._database, keys)
        return {"/".join(key): one for key, one in found.items()}

    async def add(self, caller: Principal, wanted: NewChannelAccount) -> AddedAccount:
        """Sign in, write the files of the account, and make a code for who added it.

        One that is there with the same secrets is added: this came twice. Raises InvalidInput, Conflict, Unavailable;
        then nothing was written. No error holds a secret.
        """
        if (there := await asyncio.to_thread(self._find_added, wanted)) is not None:
            return there
        asked = await asyncio.to_thread(self._read_wanted, wanted)
        return await self.add_asked(caller, asked, wanted.owner_of)

    async def add_asked(self, caller: Principal, asked: AskedAccount, owner_of: str | None) -> AddedAccount:
        """The same for an account that was checked so far. Raises InvalidInput, Conflict, Unavailable."""
        if owner_of is not None:
            self._pairing.find_butler(owner_of)
        tried = await self._try_account(asked)
        detail = {"name": asked.name, "account": tried.endpoint, "strangers": asked.policy}
        async with self._keeping:
            await self._require_free(tried)
            await asyncio.to_thread(self._require_new, tried)
            channel, endpoint = split_account(tried.endpoint)
            code = None
            async with self.record_change(caller, "added", detail):
                if asked.policy == "pair":
                    code = await self._pairing.code(caller, channel, endpoint, owner_of)
                await self._in_thread(lambda: keep_account(tried))
        return AddedAccount(
            name=asked.name,
            channel=channel,
            endpoint=endpoint,
            display_name=tried.identity.display_name,
            strangers=asked.policy,
            connects=asked.manifest.connects,
            hook_url=tried.hook_url,
            to_do=tried.to_do,
            pairing=code,
        )

    def _find_added(self, wanted: NewChannelAccount) -> AddedAccount | None:
        """The account, if it is there just so."""
        there = self._read_or_none(wanted.name) if wanted.name in account_names(self._settings) else None
        given = {name: value.strip() for name, value in wanted.secrets.items() if value.strip()}
        if there is None or (there.manifest.name, there.account.secrets) != (wanted.channel, given):
            return None
        endpoint = there.endpoint or ""
        return AddedAccount(
            name=wanted.name,
            channel=there.manifest.channel,
            endpoint=endpoint,
            display_name=wanted.name,
            strangers=wanted.strangers or there.manifest.strangers,
            connects=there.manifest.connects,
            hook_url=hook_url_of(there.manifest, there.account),
            to_do=_describe_to_do(there, endpoint),
            pairing=None,
        )

    async def check(self, caller: Principal, name: str) -> CheckedAccount:
        """Sign in to the platform with the account's secret. Raises NotFound, InvalidInput, Conflict, Unavailable."""
        file = await asyncio.to_thread(self.find_file, name)
        account, identity = await self._in_thread(lambda: asyncio.run(check_account(self._settings, file)))
        found = CheckedAccount(name, f"{account.manifest.channel}/{identity.endpoint}", identity.display_name)
        await audit.append(self._database, caller.name, "account:tested", {"name": name, "account": found.account})
        return found

    async def pause(self, caller: Principal, name: str, reason: str | None = None) -> None:
        """Disconnect an account until it is resumed, over all restarts. Raises NotFound, Conflict."""
        file = await asyncio.to_thread(self.find_file, name)
        if not pause_file(file).exists():
            async with self.record_change(caller, "paused", _detail_of(name, reason)):
                await self._in_thread(lambda: pause_account(file))

    async def resume(self, caller: Principal, name: str, reason: str | None = None) -> None:
        """Let a paused account go on where it stopped. Raises NotFound, Conflict."""
        file = await asyncio.to_thread(self.find_file, name)
        if pause_file(file).exists():
            async with self.record_change(caller, "resumed", _detail_of(name, reason)):
                await self._in_thread(lambda: resume_account(file))

    async def remove(self, caller: Principal, name: str, reason: str | None = None) -> None:
        """Take an account out of service, with its secret and its token. Raises NotFound, Conflict."""
        file = await asyncio.to_thread(self.find_file, name)
        async with self.record_change(caller, "removed", _detail_of(name, reason)):
            try:
                with paused_account(file):  # then its process ends by no accident, and no process takes a new token
                    async with lock_token(token_file(self._settings, name)):
                        if name in await self._find_served():
                            await self._access.revoke(caller, f"{PREFIX}{name}")
            except ConfigurationError as error:
                raise Conflict(error.message) from error
            await self._in_thread(lambda: remove_account_files(self._settings, file))

    @asynccontextmanager
    async def record_change(self, caller: Principal, done: str, detail: JsonObject) -> AsyncIterator[None]:
        """Record a change of files before it is made: whatever is in force has its row, wherever this process dies.

        Of one that fails, another row says so.
        """
        await audit.append(self._database, caller.name, f"account:{done}", detail)
        try:
            yield
        except SwitchboardError as error:
            failed = {**detail, "doing": done, "error": error.message}
            await audit.append(self._database, caller.name, "account:failed", failed)
            raise

    def find_file(self, name: str) -> Path:
        """The file of an account, which is one that the directory lists: no name leads elsewhere. Raises NotFound."""
        if name not in account_names(self._settings):
            raise NotFound(f"there is no account {name[:64]!r} in {self._settings.channels_dir.absolute()}")
        return self._settings.channels_dir / f"{name}.toml"

    def _read_or_none(self, name: str) -> Configured | None:
        with suppress(ConfigurationError):
            return read_account(self.find_file(name), read_ours, self._settings.public_url)
        return None

    def _read_wanted(self, wanted: NewChannelAccount) -> AskedAccount:
        """What was entered, checked without the platform. Raises InvalidInput, Conflict."""
        manifest = find_manifest(wanted.channel)
        find_new_file(self._settings, wanted.name)
        return read_entered(wanted, manifest, wanted.settings, read_secrets(manifest, wanted.secrets))

    async def _try_account(self, asked: AskedAccount) -> TriedAccount:
        secrets = [one.value for one in asked.secrets.values()]
        return await self._in_thread(lambda: asyncio.run(try_account(self._settings, asked)), secrets)

    async def _require_free(self, tried: TriedAccount) -> None:
        try:
            require_free(await self._find_served(), tried.asked.name, tried.endpoint)
        except SignInRefused as error:
            raise Conflict(error.message) from error

    def _require_new(self, tried: TriedAccount) -> None:
        """Another request may have written one meanwhile. Raises Conflict."""
        find_new_file(self._settings, tried.asked.name)
        require_single(known_accounts(self._settings)[0], tried.endpoint)

    async def _in_thread(self, work: Callable[[], _T], secrets: Sequence[str] = ()) -> _T:
        """Done beside the server's loop: packages of platforms import their SDKs, and may be slow.

        Its errors are ours, and hold no secret. Raises InvalidInput, Conflict, Unavailable.
        """
        async with self._signing_in:
            try:
                return await asyncio.to_thread(work)
            except SignInRefused as error:
                raise InvalidInput(
                    hide_secrets(secrets, error.message), code="sign_in_refused", field="secrets"
                ) from None
            except ConfigurationError as error:
                raise Conflict(hide_secrets(secrets, error.message)) from None
            except SwitchboardError as error:
                error.message = hide_secrets(secrets, error.message)
                error.args = (error.message,)
                raise error from None
            except OSError as error:
                raise Conflict(f"{error.filename or self._settings.channels_dir}: {error.strerror}") from None
            except Exception as error:  # it is the code of others, and what it says may hold the secret
                kind = type(error).__name__
                log.warning("sign-in failed", kind=kind)
                raise Unavailable(f"the package of the channel failed with the error {kind}") from None

    async def _find_served(self) -> Mapping[str, str]:
        """The accounts with a token, as in `{"house": "telegram/bot:123456"}`."""
        return {
            one.name.removeprefix(PREFIX): f"{one.channel}/{one.endpoint}"
            for one in await tokens.list_tokens(self._database)
            if one.role == "connector" and one.revoked_at is None and one.name.startswith(PREFIX)
        }

    async def _find_facts(self) -> AccountFacts:
        connectors, standing_by = facts_of_connectors(await heartbeats.list_connectors(self._database))
        work: dict[str, Counter[str]] = {"waiting": Counter(), "held": Counter(), "quarantined": Counter()}
        for one in await store.open_work(self._database):
            work[one.kind][f"{one.channel}/{one.endpoint}"] = one.number
        return AccountFacts(await self._find_served(), connectors, Counter(standing_by), **work)


def _describe_to_do(account: Configured, endpoint: str) -> str | None:
    to_do = account.manifest.to_do
    return to_do(account.account, Identity(endpoint)) if to_do else None


def _detail_of(name: str, reason: str | None) -> JsonObject:
    return {"name": name} | ({"reason": reason} if reason else {})


def split_account(account: str | None) -> tuple[str, str]:
    """Channel and endpoint of `telegram/bot:123456`."""
    channel, _, endpoint = (account or "").partition("/")
    return channel, endpoint

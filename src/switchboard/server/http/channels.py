"""`/v1/channels`: the accounts of channels on the server's machine. Operators only.

Next: `app/accounts/service.py`.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Request, Response

from switchboard.app.access import Principal
from switchboard.app.accounts.consents import AccountConsents, ConsentSeat, GivenClient, NewConsent
from switchboard.app.accounts.entered import NewChannelAccount
from switchboard.app.accounts.service import CHANNEL_ACCOUNTS, ChannelAccounts
from switchboard.server.contracts.base import Cursor, Limit, Line, Word
from switchboard.server.contracts.channels import (
    AccountPage,
    AccountStanding,
    AddedAccount,
    ChangedAccount,
    CheckedAccount,
    ConsentAddressBody,
    ConsentView,
    FinishedConsent,
    NewAccountBody,
    NewConsentBody,
)
from switchboard.server.contracts.messages import ReasonBody
from switchboard.server.http.pairing import PAIRING_SERVICE
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("channels", prefix="/v1/channels")
CHANNEL_ACCOUNT_SERVICE: Final = ServiceFactory(
    lambda services: ChannelAccounts(services.runtime, services.access, services.of(PAIRING_SERVICE))
)
ACCOUNT_CONSENTS: Final = ServiceFactory(
    lambda services: AccountConsents(services.runtime, services.of(CHANNEL_ACCOUNT_SERVICE))
)

Operator = Annotated[Principal, Depends(needs(CHANNEL_ACCOUNTS))]


@router.get("", **operation("list_channel_accounts", "List accounts", AccountPage, needing=CHANNEL_ACCOUNTS))
async def list_accounts(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """Those with a file in `channels_dir` of the server's machine, by name."""
    return answer(page("channels", await parts.of(CHANNEL_ACCOUNT_SERVICE).standings(limit=limit, cursor=cursor)))


@router.post("", **operation("add_channel_account", "Add an account", AddedAccount, 409, status=201))
async def add_account(caller: Operator, parts: Parts, body: NewAccountBody) -> Response:
    """Sign in at the platform; if it accepts the secrets, write the account's files, which connects it.

    422 `sign_in_refused` if it does not, 503 if it cannot be reached; then nothing was written.
    """
    wanted = NewChannelAccount(
        body.channel, body.name or body.channel, body.settings, body.secrets, body.strangers, body.owner_of
    )
    return answer(await parts.of(CHANNEL_ACCOUNT_SERVICE).add(caller, wanted), 201)


@router.post("/consents", **operation("begin_consent", "Add an account by signing in", ConsentView, 409, status=201))
async def begin_consent(caller: Operator, parts: Parts, request: Request, body: NewConsentBody) -> Response:
    """Make the address of the provider's page, which a person opens within ten minutes; nothing is written.

    The browser comes back to this server if it runs on the same machine; otherwise its last address is what finishes
    the sign-in.
    """
    given = GivenClient(body.client_file.encode(), body.client_id, body.client_secret, body.tenant)
    name = body.name or body.channel
    account = NewChannelAccount(body.channel, name, body.settings, {}, body.strangers, body.owner_of)
    wanted = NewConsent(account, body.address, given)
    return answer(await parts.of(ACCOUNT_CONSENTS).begin_new(_seat_of(caller, request), wanted), 201)


@router.post(
    "/consents/{consent_id}/finish",
    **operation("finish_consent", "Finish a sign-in", FinishedConsent, 404, 409),
)
async def finish_consent(
    caller: Operator, parts: Parts, consent_id: UUID, body: ConsentAddressBody | None = None
) -> Response:
    """With the answer of the provider, write the tokens into a file that only the server may read; and the account.

    409 if nobody has consented yet, 422 `sign_in_refused` if the consent does not suffice, 503 if the provider or its
    servers cannot be reached; then no account was written.
    """
    address = "" if body is None else body.address
    finished = await parts.of(ACCOUNT_CONSENTS).finish(caller, _asker_of(caller), consent_id, address)
    return answer(finished)


@router.get(
    "/{name}", **operation("get_channel_account", "Get an account", AccountStanding, 404, needing=CHANNEL_ACCOUNTS)
)
async def get_account(parts: Parts, name: Word) -> Response:
    """How it is, and what waits there."""
    return answer(await parts.of(CHANNEL_ACCOUNT_SERVICE).standing(name))


@router.post("/{name}/test", **operation("test_channel_account", "Test an account", CheckedAccount, 404, 409))
async def check_account(caller: Operator, parts: Parts, name: Word) -> Response:
    """Sign in at the platform with its secret. 422 `sign_in_refused` if it is not accepted."""
    return answer(await parts.of(CHANNEL_ACCOUNT_SERVICE).check(caller, name))


@router.post("/{name}/pause", **operation("pause_channel_account", "Pause an account", ChangedAccount, 404, 409))
async def pause_account(caller: Operator, parts: Parts, name: Word, body: ReasonBody | None = None) -> Response:
    """It neither receives nor sends until it is resumed, over all restarts."""
    await parts.of(CHANNEL_ACCOUNT_SERVICE).pause(caller, name, None if body is None else body.reason)
    return answer({"name": name, "state": "paused"})


@router.post("/{name}/resume", **operation("resume_channel_account", "Resume an account", ChangedAccount, 404, 409))
async def resume_account(caller: Operator, parts: Parts, name: Word, body: ReasonBody | None = None) -> Response:
    """It goes on where it stopped."""
    await parts.of(CHANNEL_ACCOUNT_SERVICE).resume(caller, name, None if body is None else body.reason)
    return answer({"name": name, "state": "resumed"})


@router.delete("/{name}", **operation("remove_channel_account", "Remove an account", ChangedAccount, 404, 409))
async def remove_account(caller: Operator, parts: Parts, name: Word, reason: Line | None = None) -> Response:
    """Its files, its secret and its token are removed; its messages stay."""
    await parts.of(CHANNEL_ACCOUNT_SERVICE).remove(caller, name, reason)
    return answer({"name": name, "state": "removed"})


@router.post("/{name}/login", **operation("begin_login", "Sign an account in again", ConsentView, 404, 409, status=201))
async def begin_login(caller: Operator, parts: Parts, request: Request, name: Word) -> Response:
    """Ask once more for what the account has: the same person, client and scopes. Finish it as any other sign-in."""
    return answer(await parts.of(ACCOUNT_CONSENTS).begin_again(_seat_of(caller, request), name), 201)


def _seat_of(caller: Principal, request: Request) -> ConsentSeat:
    return ConsentSeat(_asker_of(caller), served_port(request))


def served_port(request: Request) -> int:
    """The port of this machine at which the request came in; 0: at none, but at a socket of Unix."""
    return (request.scope.get("server") or ("", 0))[1] or 0


def _asker_of(caller: Principal) -> str:
    return f"token {caller.name}"

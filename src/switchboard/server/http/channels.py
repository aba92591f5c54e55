"""`/v1/channels`: the accounts of channels on the server's machine. Operators only.

Next: `app/accounts/service.py`.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.accounts.service import CHANNEL_ACCOUNTS, ChannelAccounts, NewChannelAccount
from switchboard.server.contracts.base import Cursor, Limit, Line, Word
from switchboard.server.contracts.channels import (
    AccountPage,
    AccountStanding,
    AddedAccount,
    ChangedAccount,
    CheckedAccount,
    NewAccountBody,
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

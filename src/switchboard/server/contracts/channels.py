"""The shapes of requests and answers about accounts of channels. Next: `app/accounts/service.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from switchboard.app.accounts.service import AddedAccount, CheckedAccount
from switchboard.app.accounts.standing import AccountStanding
from switchboard.core.people.strangers import Policy
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.base import Body, ResponseBody, Word

__all__ = ["AccountStanding", "AddedAccount", "CheckedAccount"]

_SecretValue = Annotated[str, StringConstraints(max_length=16_384, pattern=r"^[^\x00]*$")]


class NewAccountBody(Body):
    """A new account: `channel` as in `switchboard channels add`, `name` by default the same.

    `settings` are those of the account's file, and `secrets` the secrets by name; each goes into a file that only the
    server may read. `owner_of`: the butler that the sender of the code will own.
    """

    channel: Word
    name: Word | None = None
    settings: JsonObject = Field(default_factory=dict)
    secrets: Annotated[Mapping[Word, _SecretValue], Field(max_length=16, repr=False)] = Field(default_factory=dict)
    strangers: Policy | None = None
    owner_of: Word | None = None


class AccountPage(ResponseBody):
    """By name. `next_cursor` is null on the last page."""

    channels: list[AccountStanding]
    next_cursor: str | None


class ChangedAccount(ResponseBody):
    """What became of the account."""

    name: str
    state: Literal["paused", "resumed", "removed"]

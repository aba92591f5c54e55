"""The shapes of requests and answers about accounts of channels. Next: `app/accounts/service.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from switchboard.app.accounts.consents import ConsentView, FinishedConsent
from switchboard.app.accounts.service import AddedAccount, CheckedAccount
from switchboard.app.accounts.standing import AccountStanding
from switchboard.core.people.strangers import Policy
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.base import Body, Line, ResponseBody, Word

__all__ = ["AccountStanding", "AddedAccount", "CheckedAccount", "ConsentView", "FinishedConsent"]

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


class NewConsentBody(Body):
    """A mailbox that is opened by signing in at its provider: `channel` is `gmail` or `microsoft`.

    The OAuth client is one that you have made there: the text of its downloaded file in `client_file`, or its
    `client_id`, with a `client_secret` if it has one, and at Microsoft the `tenant` if only one organisation may use
    it. Anything else is as for other accounts.
    """

    channel: Word
    name: Word | None = None
    address: Line
    client_file: Annotated[_SecretValue, Field(repr=False)] = ""
    client_id: Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")] = ""
    client_secret: Annotated[_SecretValue, Field(repr=False)] = ""
    tenant: Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00]*$")] = ""
    settings: JsonObject = Field(default_factory=dict)
    strangers: Policy | None = None
    owner_of: Word | None = None


class ConsentAddressBody(Body):
    """`address`: that of the last page of the browser, if it cannot be opened; it begins with `redirect_uri`."""

    address: Annotated[str, StringConstraints(max_length=16_384, pattern=r"^[^\x00]*$"), Field(repr=False)] = ""


class AccountPage(ResponseBody):
    """By name. `next_cursor` is null on the last page."""

    channels: list[AccountStanding]
    next_cursor: str | None


class ChangedAccount(ResponseBody):
    """What became of the account."""

    name: str
    state: Literal["paused", "resumed", "removed"]

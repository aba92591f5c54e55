"""Connections: the accounts of channels, how each is, and what one does with it.

Next: `app/accounts/service.py`; `connecting.py` beside it adds one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from uuid import UUID

from starlette.responses import Response

from switchboard.app.accounts.offers import butlers_with_tools
from switchboard.app.accounts.service import CHANNEL_ACCOUNTS, PairingCode
from switchboard.app.connectors.pairing import CODE_VALID, Contact
from switchboard.app.messages.searching import MessageFilter, Period
from switchboard.app.messages.views import MessageView
from switchboard.domain.errors import NotFound
from switchboard.server.http.channels import ACCOUNT_CONSENTS, CHANNEL_ACCOUNT_SERVICE
from switchboard.server.http.pairing import PAIRING_SERVICE
from switchboard.server.services import ServiceFactory
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, line_from, reason_from
from switchboard.server.web.freshness import is_fresh, require_fresh
from switchboard.server.web.looking import MESSAGE_SEARCH
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_LAST: Final = 5
_MOST_CODES: Final = 100
_OUTCOMES: Final = {
    "added": "Added: the platform has accepted the secret, and the account is being connected.",
    "tested": "The platform accepts the secret.",
    "paused": "Paused: nothing is received or sent there until you resume it. What arrives waits at the platform.",
    "resumed": "Resumed: it goes on where it stopped, within a second or two.",
    "allowed": "On the list: their messages are answered from now on.",
    "signed_in": "Signed in again: it is being connected.",
    "removed": "Removed, with its secret. Its messages stay.",
    "gone": "There is no such account any more.",
}


class ShownCodes:
    """Codes that this process made for visitors, until they are too old: only answers contain them, no table does."""

    def __init__(self) -> None:
        self._codes: dict[tuple[UUID, str, str], PairingCode] = {}

    def keep(self, session_id: UUID, code: PairingCode) -> None:
        """Show it to this session, in place of an older one of the account."""
        now = datetime.now(UTC)
        fresh = {key: one for key, one in self._codes.items() if one.expires_at > now}
        self._codes = dict([*fresh.items()][-_MOST_CODES:])
        self._codes[session_id, code.channel, code.endpoint] = code

    def find(self, session_id: UUID, account: tuple[str, str], messages: Sequence[MessageView]) -> PairingCode | None:
        """The code, unless it is too old, or one was used since."""
        code = self._codes.get((session_id, *account))
        if code is None or code.expires_at <= datetime.now(UTC):
            return None
        made_at = code.expires_at - CODE_VALID
        return None if any(one.is_code and one.received_at > made_at for one in messages) else code


SHOWN_CODES: Final = ServiceFactory(lambda _: ShownCodes())


async def show_connections(visit: Visit) -> Response:
    """All accounts, by name."""
    accounts = visit.services.of(CHANNEL_ACCOUNT_SERVICE)
    found, following = await accounts.standings(limit=_ROWS, cursor=visit.asked("cursor"))
    return visit.page(
        "connections.html",
        accounts=found,
        traffic_of=await accounts.traffic(found),
        following=following,
        place=accounts.place(),
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def show_connection(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """One, with what waits and what came last."""
    accounts = visit.services.of(CHANNEL_ACCOUNT_SERVICE)
    view = await accounts.describe(_name_in(visit))
    messages = await _last_messages(visit, view.channel, view.endpoint)
    code = visit.services.of(SHOWN_CODES).find(visit.session.session_id, (view.channel, view.endpoint), messages)
    open_code = None if code else await visit.services.of(PAIRING_SERVICE).open_code(view.channel, view.endpoint)
    return visit.page(
        "connection.html",
        entered.status,
        view=view,
        account=view.standing,
        messages=messages,
        names=await name_senders(visit, messages),
        first=_first_answered(messages),
        code=code,
        sign_in=await visit.services.of(ACCOUNT_CONSENTS).sign_in_state(_name_in(visit)),
        open_code=open_code,
        place=accounts.place(),
        owners=butlers_with_tools(visit.services.runtime) if view.makes_owners else [],
        is_fresh=is_fresh(visit),
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def _last_messages(visit: Visit, channel: str, endpoint: str) -> list[MessageView]:
    if not endpoint:
        return []
    search, wanted = visit.services.of(MESSAGE_SEARCH), MessageFilter(channel=channel, endpoint=endpoint)
    return list((await search.find(visit.caller, wanted, Period(), cursor=None, limit=_LAST)).messages)


def _first_answered(messages: Sequence[MessageView]) -> MessageView | None:
    """The newest one that a butler has answered."""
    return next((one for one in messages if one.state == "answered" and one.went_to and not one.is_code), None)


async def check_connection(visit: Visit, _: Fields) -> Response:
    """Sign in at the platform with the secret that is there."""
    await visit.services.of(CHANNEL_ACCOUNT_SERVICE).check(visit.caller, _name_in(visit))
    return visit.go(f"{_address_of(visit)}?done=tested")


async def pause_connection(visit: Visit, fields: Fields) -> Response:
    """Disconnect it until it is resumed."""
    await visit.services.of(CHANNEL_ACCOUNT_SERVICE).pause(visit.caller, _name_in(visit), reason_from(fields))
    return visit.go(f"{_address_of(visit)}?done=paused")


async def resume_connection(visit: Visit, fields: Fields) -> Response:
    """Let it go on where it stopped."""
    await visit.services.of(CHANNEL_ACCOUNT_SERVICE).resume(visit.caller, _name_in(visit), reason_from(fields))
    return visit.go(f"{_address_of(visit)}?done=resumed")


async def remove_connection(visit: Visit, fields: Fields) -> Response:
    """Take it out of service; its page is gone afterwards."""
    try:
        await visit.services.of(CHANNEL_ACCOUNT_SERVICE).remove(visit.caller, _name_in(visit), reason_from(fields))
    except NotFound:
        return visit.go("/connections?done=gone")
    return visit.go("/connections?done=removed")


async def make_code(visit: Visit, fields: Fields) -> Response:
    """Make a code by which one person gets in; shown to this session alone."""
    owner_of = fields.get("owner_of") or None
    if owner_of is not None:
        await require_fresh(visit, fields)
    view = await visit.services.of(CHANNEL_ACCOUNT_SERVICE).describe(_name_in(visit))
    code = await visit.services.of(PAIRING_SERVICE).code(visit.caller, view.channel, view.endpoint, owner_of)
    visit.services.of(SHOWN_CODES).keep(visit.session.session_id, code)
    return visit.go(_address_of(visit))


async def allow_sender(visit: Visit, fields: Fields) -> Response:
    """Put somebody on the list of those who may write."""
    view = await visit.services.of(CHANNEL_ACCOUNT_SERVICE).describe(_name_in(visit))
    contact = Contact(view.channel, view.endpoint, "person", line_from(fields, "identity", "the address"))
    await visit.services.of(PAIRING_SERVICE).allow(visit.caller, contact)
    return visit.go(f"{_address_of(visit)}?done=allowed")


def _name_in(visit: Visit) -> str:
    return visit.path_text("name")


def _address_of(visit: Visit) -> str:
    return f"/connections/accounts/{quote(_name_in(visit), safe='')}"


_ONE: Final = "/connections/accounts/{name}"
PAGES: Final = (
    WebPage("/connections", show_connections, CHANNEL_ACCOUNTS, "Connections"),
    WebPage(_ONE, show_connection, CHANNEL_ACCOUNTS),
    WebForm(f"{_ONE}/test", check_connection, CHANNEL_ACCOUNTS, if_refused=show_connection),
    WebForm(f"{_ONE}/pause", pause_connection, CHANNEL_ACCOUNTS, if_refused=show_connection),
    WebForm(f"{_ONE}/resume", resume_connection, CHANNEL_ACCOUNTS, if_refused=show_connection),
    WebForm(f"{_ONE}/remove", remove_connection, CHANNEL_ACCOUNTS, if_refused=show_connection),
    WebForm(f"{_ONE}/code", make_code, CHANNEL_ACCOUNTS, if_refused=show_connection),
    WebForm(f"{_ONE}/allow", allow_sender, CHANNEL_ACCOUNTS, if_refused=show_connection),
)

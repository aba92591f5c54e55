"""Connections, adding one: what can be connected, and the form of a channel, made of its manifest.

A secret that is entered goes into the file of the account, and nowhere else: a form that is shown again has lost it.
Next: `app/accounts/offers.py`, `app/accounts/service.py`.
"""

from __future__ import annotations

from typing import Final, get_args

from starlette.responses import Response

from switchboard.app.accounts.entered import NewChannelAccount
from switchboard.app.accounts.offers import ChannelOffer, butlers_with_tools, find_offer, list_offers
from switchboard.app.accounts.questions import put_given, put_value, read_value
from switchboard.app.accounts.service import CHANNEL_ACCOUNTS, Policy
from switchboard.domain.json_values import JsonObject
from switchboard.server.http.channels import CHANNEL_ACCOUNT_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, SECRET_FIELDS, Entered, Fields, choice_from
from switchboard.server.web.freshness import is_fresh, require_fresh
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages.connections import SHOWN_CODES
from switchboard.server.web.visit import Visit

_POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)


async def show_offers(visit: Visit) -> Response:
    """What can be connected, the easiest first."""
    return visit.page("connect.html", offers=list_offers(), place=visit.services.of(CHANNEL_ACCOUNT_SERVICE).place())


async def show_offer(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """How to get an account of a channel, and its form."""
    offer = find_offer(visit.path_text("channel"))
    return visit.page(
        "connect_account.html",
        entered.status,
        offer=offer,
        owners=butlers_with_tools(visit.services.runtime) if offer.makes_owners else [],
        place=visit.services.of(CHANNEL_ACCOUNT_SERVICE).place(),
        is_fresh=is_fresh(visit),
        policies=_POLICIES,
        entered=entered,
    )


async def add_connection(visit: Visit, fields: Fields) -> Response:
    """Sign in with what was entered; if the platform accepts it, it is connected."""
    offer = find_offer(visit.path_text("channel"))
    await require_fresh(visit, fields)
    wanted = NewChannelAccount(
        channel=offer.name,
        name=fields.get("name", "").strip() or offer.name,
        settings=read_settings(offer, fields),
        secrets={one.name: fields.get(f"{SECRET_FIELDS}{one.name}", "") for one in offer.secrets},
        strangers=read_policy(fields),
        owner_of=fields.get("owner_of") or None,
    )
    added = await visit.services.of(CHANNEL_ACCOUNT_SERVICE).add(visit.caller, wanted)
    if added.pairing is not None:
        visit.services.of(SHOWN_CODES).keep(visit.session.session_id, added.pairing)
    return visit.go(f"/connections/accounts/{added.name}?done=added")


def read_settings(offer: ChannelOffer, fields: Fields) -> JsonObject:
    """The tree of settings. Raises InvalidInput."""
    values: JsonObject = {}
    for question in (*offer.questions, *offer.further):
        if typed := fields.get(f"set.{question.name}", "").strip():
            put_value(values, question.path, read_value(typed))
    for line in fields.get("more", "").splitlines():
        if line.strip():
            put_given(values, line.strip())
    return values


def read_policy(fields: Fields) -> Policy | None:
    """Who may write, if that was chosen. Raises InvalidInput."""
    typed = fields.get("strangers", "")
    return choice_from(typed, _POLICIES, "strangers") if typed else None


_FORM: Final = "/connections/add/{channel}"
PAGES: Final = (
    WebPage("/connections/add", show_offers, CHANNEL_ACCOUNTS),
    WebPage(_FORM, show_offer, CHANNEL_ACCOUNTS),
    WebForm(_FORM, add_connection, CHANNEL_ACCOUNTS, if_refused=show_offer),
)

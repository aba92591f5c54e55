"""Connections, by consent: an account is added, or signed in again, at the page of its provider.

What was entered begins it; the visitor follows a link to the provider, whose answer comes back by
`consent_answers.py`, and then finishes it here. Next: `app/accounts/consents.py`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from starlette.responses import Response

from switchboard.app.accounts.consents import ConsentSeat, GivenClient, NewConsent
from switchboard.app.accounts.entered import NewChannelAccount
from switchboard.app.accounts.offers import find_offer
from switchboard.app.accounts.service import CHANNEL_ACCOUNTS
from switchboard.server.http.channels import ACCOUNT_CONSENTS, served_port
from switchboard.server.paths import WEB
from switchboard.server.web.arrivals import is_loopback
from switchboard.server.web.forms import NOTHING_ENTERED, SECRET_FIELDS, Entered, Fields
from switchboard.server.web.freshness import require_fresh
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages.connecting import read_policy, read_settings, show_offer
from switchboard.server.web.pages.connections import SHOWN_CODES, show_connection
from switchboard.server.web.visit import Visit

_MOST_BYTES: Final = 65_536


async def begin_adding(visit: Visit, fields: Fields) -> Response:
    """Ask for a mailbox at a provider: with what was entered, its page can be opened."""
    offer = find_offer(visit.path_text("channel"))
    await require_fresh(visit, fields)
    client = GivenClient(
        await visit.files[0].read(_MOST_BYTES) if visit.files else b"",
        fields.get("client", "").strip(),
        fields.get(f"{SECRET_FIELDS}client", "").strip(),
        fields.get("tenant", "").strip(),
    )
    account = NewChannelAccount(
        channel=offer.name,
        name=fields.get("name", "").strip() or offer.name,
        settings=read_settings(offer, fields),
        secrets={},
        strangers=read_policy(fields),
        owner_of=fields.get("owner_of") or None,
    )
    wanted = NewConsent(account, fields.get("address", "").strip(), client)
    begun = await visit.services.of(ACCOUNT_CONSENTS).begin_new(_seat_of(visit), wanted)
    return visit.go(f"{_CONSENTS}/{begun.consent_id}")


async def begin_again(visit: Visit, _: Fields) -> Response:
    """Ask for the same once more, for an account that is there."""
    begun = await visit.services.of(ACCOUNT_CONSENTS).begin_again(_seat_of(visit), visit.path_text("name"))
    return visit.go(f"{_CONSENTS}/{begun.consent_id}")


async def show_consent(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """Where it leads, or that the provider has agreed."""
    found = visit.services.of(ACCOUNT_CONSENTS).find(_asker_of(visit), visit.path_id("consent_id"))
    return visit.page("consent.html", entered.status, consent=found, entered=entered)


async def finish_consent(visit: Visit, fields: Fields) -> Response:
    """Have the tokens, and the account with them."""
    consents, address = visit.services.of(ACCOUNT_CONSENTS), fields.get("address", "").strip()
    finished = await consents.finish(visit.caller, _asker_of(visit), visit.path_id("consent_id"), address)
    if finished.added is not None and finished.added.pairing is not None:
        visit.services.of(SHOWN_CODES).keep(visit.session.session_id, finished.added.pairing)
    done = "added" if finished.added is not None else "signed_in"
    return visit.go(f"/connections/accounts/{quote(finished.name, safe='')}?done={done}")


def _seat_of(visit: Visit) -> ConsentSeat:
    """Providers send the browser to its own machine: it gets to us only if the server runs there."""
    host = visit.arrival.host
    port = _port_in(host) if is_loopback(host) and not visit.arrival.https else None
    return ConsentSeat(
        _asker_of(visit), port or served_port(visit.request), f"{visit.arrival.scheme}://{host}{WEB}{_CONSENTS}/"
    )


def _port_in(host: str) -> int | None:
    try:
        return urlsplit(f"//{host}").port
    except ValueError:
        return None


def _asker_of(visit: Visit) -> str:
    return f"session {visit.session.session_id}"


_CONSENTS: Final = "/connections/consents"
_ONE: Final = f"{_CONSENTS}/{{consent_id:uuid}}"
PAGES: Final = (
    WebForm("/connections/consent/{channel}", begin_adding, CHANNEL_ACCOUNTS, if_refused=show_offer, with_files=True),
    WebForm("/connections/accounts/{name}/sign-in", begin_again, CHANNEL_ACCOUNTS, if_refused=show_connection),
    WebPage(_ONE, show_consent, CHANNEL_ACCOUNTS),
    WebForm(f"{_ONE}/finish", finish_consent, CHANNEL_ACCOUNTS, if_refused=show_consent),
)

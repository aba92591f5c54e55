"""A browser that comes back from the page of a provider, with its answer in the address.

`site.py` calls it, without a session: browsers withhold the cookie on the way in from another site. So the answer is
only kept, for the person who began the sign-in, and the browser is led to their page, at the name by which they opened
it; the cookie may count under that name alone. The address with the answer stays in no history and is in no log. Next:
`app/accounts/consents.py`, `pages/consenting.py`.
"""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from switchboard.domain.errors import Forbidden, NotFound
from switchboard.server.http.channels import ACCOUNT_CONSENTS
from switchboard.server.paths import CONSENT_ANSWERS
from switchboard.server.web.visit import Visit


async def take_consent_answer(visit: Visit) -> Response:
    """Keep the answer in the address, if there is one; else say what became of it."""
    if visit.request.headers.get("sec-fetch-dest", "document") != "document":
        raise Forbidden("the answer of a provider is brought by a browser itself, as no part of another page")
    query = visit.request.url.query
    if "state" not in visit.request.query_params:
        return visit.page("consent_back.html", kept=query == "kept")
    try:
        back = visit.services.of(ACCOUNT_CONSENTS).take_answer(query)
    except NotFound:
        return _lead_to(visit, CONSENT_ANSWERS)
    return _lead_to(visit, back or f"{CONSENT_ANSWERS}?kept")


def _lead_to(visit: Visit, address: str) -> Response:
    return RedirectResponse(address, 303, {**visit.headers, "referrer-policy": "no-referrer"})

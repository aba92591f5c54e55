"""Whether somebody has signed in just now: a browser that is found signed in makes nobody an owner.

Pages that connect accounts and make codes of owners call it. Next: `app/access.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from switchboard.app.accounts.service import CHANNEL_ACCOUNTS
from switchboard.domain.errors import InvalidInput, Unauthenticated
from switchboard.server.web.forms import TOKEN_FIELD, Fields
from switchboard.server.web.visit import Visit

_FRESH: Final = timedelta(minutes=10)
"""For so long after its sign-in a browser is not asked who it is."""


def is_fresh(visit: Visit) -> bool:
    """Whether the token need not be entered."""
    return datetime.now(UTC) - visit.session.created_at < _FRESH


async def require_fresh(visit: Visit, fields: Fields) -> None:
    """Raises InvalidInput unless the sign-in is fresh, or the operator's token was entered."""
    if is_fresh(visit):
        return
    try:
        caller = await visit.services.access.authenticate(f"Bearer {fields.get(TOKEN_FIELD, '').strip()}")
    except Unauthenticated:
        raise InvalidInput(
            "you signed in more than ten minutes ago: enter the operator's token too, or sign in again with a new "
            "link from `switchboard open`",
            field=TOKEN_FIELD,
        ) from None
    await visit.services.access.check(caller, CHANNEL_ACCOUNTS)

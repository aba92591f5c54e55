"""What the senders of a page are called, asked for once with all of its rows.

Pages call `name_senders` and pass the answer on as `names`, which the macros of `templates/parts.html` ask. Next:
`app/people/naming.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol
from uuid import UUID

from switchboard.app.people.naming import KnownSenders, SenderNames, SenderPlace, place_of
from switchboard.server.services import ServiceFactory
from switchboard.server.web.visit import Visit

SENDER_NAMES: Final = ServiceFactory(lambda services: SenderNames(services.runtime))


class HasSender(Protocol):
    """A row about a message."""

    @property
    def request_id(self) -> UUID:
        """The message."""
        ...

    @property
    def channel(self) -> str:
        """Where it came in."""
        ...

    @property
    def sender(self) -> str | None:
        """Who wrote it, if that is still known."""
        ...


async def name_senders(
    visit: Visit,
    rows: Iterable[HasSender],
    *,
    conversations: Iterable[str] = (),
    others: Iterable[tuple[SenderPlace, UUID | None]] = (),
) -> KnownSenders:
    """The senders of these rows, those of these conversations, and others, as `SenderNames.find` takes them."""
    wrote: list[tuple[SenderPlace, UUID | None]] = [
        (SenderPlace(row.channel, getattr(row, "endpoint", ""), row.sender), row.request_id)
        for row in rows
        if row.sender is not None
    ]
    wrote += [(place, None) for one in conversations if (place := place_of(one)) is not None]
    wrote += others
    return await visit.services.of(SENDER_NAMES).find(wrote)

"""Whose mailboxes a call of a tool sees: asked for each call, in one place. It imports no library.

`looking.py` and `reading.py` begin with it. In: the scope of a call; out: accounts, or why there are none. Next:
`modules/accounts/walls.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from switchboard.modules.accounts.walls import accounts_seen, why_nothing
from switchboard.modules.email.settings import MailAccount
from switchboard.ports.people_seen import PeopleSeen
from switchboard.ports.tools import ToolScope


class EmailRefusal(LookupError):
    """The sentence that the model is told: why nothing was found, and what would be right."""


def as_sentence(told: str) -> str:
    """A clause as a sentence."""
    return f"{told[:1].upper()}{told[1:]}{'' if told.endswith(('.', '?')) else '.'}"


class MailAccounts(Struct, frozen=True):
    """The accounts of the settings, and who knows people."""

    accounts: Mapping[str, MailAccount]
    people: PeopleSeen

    async def seen_by(self, scope: ToolScope) -> Mapping[str, MailAccount]:
        """Those whose mails are told in answer to this call. Raises EmailRefusal if there are none."""
        seen = await self.people.seen_in(scope)
        sights = accounts_seen(seen, self.accounts)
        if not sights:
            raise EmailRefusal(why_nothing(seen, self.accounts))
        return {name: self.accounts[name] for name in sights}

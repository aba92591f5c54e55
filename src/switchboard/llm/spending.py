"""The cost of an installation's models today: the port, and an implementation in memory.

`dispatch.py` reserves before it asks and settles after. The store keeps the spending for all processes; `DayBook` is
for one process, and for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Protocol

from msgspec import Struct

from switchboard.core.policy.budget import Amount, BudgetAccount, BudgetRefusal, Cap, Share, on, reserve, settle
from switchboard.domain.llm import Bill


class Reserved(Struct, frozen=True):
    """What was reserved for one session; `key` identifies the stored reservation."""

    amount: Amount
    key: str = ""


def amount_of(bill: Bill) -> Amount:
    """The amount that counts against a budget."""
    return Amount(bill.usage.tokens, bill.micros)


class Spending(Protocol):
    """The spending of the day, for all callers. Reservations count as spent until they are settled."""

    async def reserve(self, wanted: Amount, cap: Cap, share: Share | None = None) -> Reserved | BudgetRefusal:
        """Reserve `wanted`, within the cap of the day and the share of a sender, or say why not."""

    async def settle(self, reserved: Reserved, bill: Bill | None) -> None:
        """Release the reservation and book the actual cost; None: no model was asked."""


class DayBook:
    """The spending in memory. `today` returns the current day."""

    def __init__(self, today: Callable[[], date]) -> None:
        self._today = today
        self.account = BudgetAccount(today())

    async def reserve(self, wanted: Amount, cap: Cap, share: Share | None = None) -> Reserved | BudgetRefusal:
        """Reserve `wanted`, or say why not. The caller is the only sender."""
        del share
        found = reserve(on(self.account, self._today()), wanted, cap)
        if isinstance(found, BudgetRefusal):
            return found
        self.account = found
        return Reserved(wanted)

    async def settle(self, reserved: Reserved, bill: Bill | None) -> None:
        """Release the reservation and book the actual cost."""
        spent = Amount() if bill is None else amount_of(bill)
        self.account = settle(on(self.account, self._today()), reserved.amount, spent)

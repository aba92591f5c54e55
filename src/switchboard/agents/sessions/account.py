"""What the models of an installation have cost today: the port, and an account in memory.

`dispatch.py` reserves before it asks and settles after. The store keeps the account for all processes; `DayBook` is for
one process, and for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from switchboard.core.policy.budget import Account, Amount, Cap, Refusal, on, reserve, settle


@dataclass(frozen=True, slots=True)
class Hold:
    """What was reserved for one session; `key` finds it again where it is kept."""

    amount: Amount
    key: str = ""


class DayAccount(Protocol):
    """The account of the day, for all who spend. What is reserved counts as spent until it is settled."""

    async def reserve(self, wanted: Amount, cap: Cap) -> Hold | Refusal:
        """Set `wanted` aside, or say why not."""

    async def settle(self, hold: Hold, actual: Amount) -> None:
        """Free the hold and book what it really cost."""


class DayBook:
    """An account in memory. `today` says which day it is."""

    def __init__(self, today: Callable[[], date]) -> None:
        self._today = today
        self.account = Account(today())

    async def reserve(self, wanted: Amount, cap: Cap) -> Hold | Refusal:
        """Set `wanted` aside, or say why not."""
        found = reserve(on(self.account, self._today()), wanted, cap)
        if isinstance(found, Refusal):
            return found
        self.account = found
        return Hold(wanted)

    async def settle(self, hold: Hold, actual: Amount) -> None:
        """Free the hold and book what it really cost."""
        self.account = settle(on(self.account, self._today()), hold.amount, actual)

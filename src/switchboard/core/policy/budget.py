"""What models may cost: tokens and money per message and per day.

Called by `llm/dispatch.py` before a model is asked (`reserve`, with an estimate) and after (`settle`, with
what the provider reported). In: spending and amounts; out: the new spending. Money is in whole micro-dollars.

A reservation counts as spent until it is settled, so that concurrent sessions together stay within the cap, by their
estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.numbers import Limit, NotNegative

Scope = Literal["message", "day", "sender"]
"""What a cap applies to: a task, everybody's day, or the turns of one sender in a day."""


_SCOPES: Final[Mapping[Scope, str]] = {
    "message": "a message",
    "day": "a day",
    "sender": "a sender's day (turn.sender_tokens_per_day)",
}


class SenderCaps(Struct, frozen=True):
    """Sessions per sender and minute; tokens per sender and day, and per day of all new senders. 0: no limit."""

    per_minute: int = 0
    tokens: int = 0
    newcomer_tokens: int = 0


class Amount(Struct, frozen=True):
    """Input and output tokens together, and micro-dollars; never negative."""

    tokens: int = 0
    micros: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.micros < 0:
            raise ValueError(f"an amount cannot be negative: {self.tokens} tokens, {self.micros} micro-dollars")

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.micros + other.micros)


ZERO: Final = Amount()


class Price(Struct, frozen=True):
    """Micro-dollars per million tokens: a model at $3 in and $15 out is Price(3_000_000, 15_000_000)."""

    input: int
    output: int


class Cap(Struct, frozen=True):
    """The limits; None: no limit."""

    tokens: int | None = None
    micros: int | None = None


class SpendingSettings(Struct, frozen=True):
    """`[spending]`: what all models may use in a day (UTC), for whatever purpose; `cost_per_day` in dollars."""

    tokens_per_day: Limit = 20_000_000
    cost_per_day: NotNegative | None = None

    @property
    def cap(self) -> Cap:
        """The same in tokens and micro-dollars."""
        cost = None if self.cost_per_day is None else round(self.cost_per_day * 1_000_000)
        return Cap(self.tokens_per_day or None, cost)


class Share(Struct, frozen=True):
    """The tokens that turns may use in a day for the sender of a message."""

    request_id: UUID
    tokens: int


class BudgetAccount(Struct, frozen=True):
    """What was spent on `day` (None: for one message) and what is reserved for running calls."""

    day: date | None = None
    spent: Amount = ZERO
    reserved: Amount = ZERO


class BudgetRefusal(Struct, frozen=True):
    """Why a call may not be made: which cap it would exceed. `held` is the part of `used` that is only reserved."""

    scope: Scope
    unit: Literal["tokens", "micros"]
    cap: int
    used: int
    wanted: int
    held: int = 0

    @property
    def passing(self) -> bool:
        """Whether there would be room after the running calls if they cost nothing."""
        return self.used - self.held + self.wanted <= self.cap

    def __str__(self) -> str:
        unit = "tokens" if self.unit == "tokens" else "micro-dollars"
        of = _SCOPES[self.scope]
        return f"{self.wanted} {unit} more than the {self.used} used would exceed the {self.cap} of {of}"


def amount(input_tokens: int, output_tokens: int, price: Price | None = None) -> Amount:
    """What tokens cost, rounded up to a whole micro-dollar; without a price (a self-hosted model) no money."""
    if price is None:
        return Amount(input_tokens + output_tokens)
    micros = -(-(input_tokens * price.input + output_tokens * price.output) // 1_000_000)
    return Amount(input_tokens + output_tokens, micros)


def on(account: BudgetAccount, today: date | None) -> BudgetAccount:
    """The spending as of `today`: a new day starts at zero. A clock set back by a day does not start a new one."""
    if account.day is None or today is None or today <= account.day:
        return account
    return BudgetAccount(today, reserved=account.reserved)


def reserve(account: BudgetAccount, wanted: Amount, cap: Cap) -> BudgetAccount | BudgetRefusal:
    """The spending with `wanted` reserved, or why not: spent, reserved and wanted must stay within `cap`."""
    used, held = account.spent + account.reserved, account.reserved
    scope: Scope = "message" if account.day is None else "day"
    if cap.tokens is not None and used.tokens + wanted.tokens > cap.tokens:
        return BudgetRefusal(scope, "tokens", cap.tokens, used.tokens, wanted.tokens, held.tokens)
    if cap.micros is not None and used.micros + wanted.micros > cap.micros:
        return BudgetRefusal(scope, "micros", cap.micros, used.micros, wanted.micros, held.micros)
    return replace(account, reserved=account.reserved + wanted)


def settle(account: BudgetAccount, reserved: Amount, actual: Amount) -> BudgetAccount:
    """The spending after a call: its reservation is released, its actual cost is spent.

    The actual cost is recorded even if it is above the cap: it has been paid. A call that was never made is settled
    with ZERO. Raises ValueError if more is released than was reserved.
    """
    left = Amount(account.reserved.tokens - reserved.tokens, account.reserved.micros - reserved.micros)
    return replace(account, spent=account.spent + actual, reserved=left)

"""The configured models' present state, and what was spent on them.

HTTP calls `SpendingService`, for operators; `checks.py` asks `standing`. Money is in dollars, days are those of
UTC. In: settings and the spending in the database; out: frozen values. Next: `store/models/usage.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, NamedTuple

from switchboard.app.access import OPERATOR, Action
from switchboard.app.cursors import CursorText, Number, cursor_after, key_of
from switchboard.app.models.process import butlers_of
from switchboard.app.settings import Settings
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import Member
from switchboard.llm.spec import ModelSpec
from switchboard.store.database import Database
from switchboard.store.models import usage as store
from switchboard.store.models.usage import (
    By,
    Cooldown,
    Day,
    LearnedContext,
    ModelDay,
    RefusedKey,
    UsagePeriod,
    UsageRow,
    UsageTotals,
)

MODELS: Final = Action("models", OPERATOR)

__all__ = ["By", "CapView", "SpendingService", "standing"]

CapName = Literal["tokens_per_day", "cost_usd_per_day", "newcomer_tokens_per_day"]
_MICROS: Final = 1_000_000
_USUAL: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class CapView:
    """A daily limit: the amount spent, held by running sessions, and left."""

    name: CapName
    cap: float
    spent: float
    held: float
    left: float
    reached: bool


class Use(NamedTuple):
    """The purpose of a model, as in `ModelView`."""

    order: int | None
    butlers: Sequence[str]


@dataclass(frozen=True, slots=True)
class ModelView:
    """A configured model with its usage today, for everything that it was asked.

    `order` is its place among the models that classify, null if it does not; `butlers` are those that may ask it for
    their turns and plans. `cooldown` means that a worker does not use it until `until`, because of `why`; `paused` that
    its provider has refused its key. Of a model that is `ready`, `why` says how little it was found to read.
    """

    name: str
    kind: str
    model: str
    order: int | None
    butlers: Sequence[str]
    state: Literal["ready", "cooldown", "paused"]
    until: datetime | None
    why: str | None
    attempts: int
    failed: int
    tokens_in: int
    tokens_out: int
    tokens_cache_read: int
    tokens_cache_write: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class DayTotals:
    """How the day stands. `refused`: how often a cap of the day forbade to ask a model.

    Of one sender: sessions a minute and tokens a day, 0 for no limit; `senders_refused`: how often one of these, or the
    cap of senders who had asked no model before today, forbade to ask.
    """

    day: date
    tokens: int
    cost_usd: float
    refused: int
    tokens_per_message: int
    sender_per_minute: int
    sender_tokens_per_day: int
    senders_refused: int
    caps: Sequence[CapView]


@dataclass(frozen=True, slots=True)
class ModelsView(DayTotals):
    """The configured models, the daily limits, and the usage today."""

    models: Sequence[ModelView]


@dataclass(frozen=True, slots=True)
class UsageView:
    """The usage from `since` until `until`: a page by `key`, and the total of all pages."""

    by: By
    since: datetime
    until: datetime
    rows: Sequence[UsageRow]
    total: UsageTotals
    next_cursor: str | None


class SpendingService:
    """Reads for operators; the interface checks who asks."""

    def __init__(self, settings: Settings, database: Database, members: Callable[[], Iterable[Member]]) -> None:
        self._settings = settings
        self._database = database
        self._members = members

    async def models(self) -> ModelsView:
        """All models of the settings of this process, and how the day stands."""
        stood = await standing(self._settings, self._database)
        spent = {one.model: one for one in await store.models_of(self._database, stood.day)}
        pauses: dict[str, Cooldown | RefusedKey] = {one.model: one for one in await store.cooldowns(self._database)}
        pauses |= {one.model: one for one in await store.refused_keys(self._database)}
        short = {one.model: one for one in await store.contexts(self._database)}
        order = {name: place for place, name in enumerate(self._settings.classify.models, 1)}
        known = sorted(self._settings.models, key=lambda model: order.get(model.name, len(order) + 1))
        butlers = butlers_of(self._members(), self._settings)
        models = [
            _model_view(
                *(one, Use(order.get(one.name), butlers[one.name])),
                pauses.get(one.name) or short.get(one.name),
                spent.get(one.name),
            )
            for one in known
        ]
        return ModelsView(**{name: getattr(stood, name) for name in DayTotals.__slots__}, models=models)

    async def usage(
        self, by: By, since: datetime | None, until: datetime | None, *, limit: int, cursor: str | None
    ) -> UsageView:
        """A page of spending, by default of the last 30 days. Raises InvalidInput."""
        end = datetime.now(UTC) if until is None else until
        try:
            span = UsagePeriod(end - _USUAL if since is None else since, end)
        except OverflowError:
            raise InvalidInput("this is too early; give `from` as well", field="to") from None
        after = key_of(cursor, tuple[Number, Number, CursorText])
        rows = await store.usage(self._database, by, span, limit, after=after)
        following = cursor_after(*store.key_of_usage(by, rows[-1])) if len(rows) == limit else None
        return UsageView(by, span.since, span.until, rows, await store.total(self._database, by, span), following)


def reads_less(learned: LearnedContext) -> str:
    """What was learned from the refusals of a model."""
    until = f"{learned.until:%H:%M} UTC"
    return f"reads no more than {learned.tokens:,} tokens, as its refusals show; this counts until {until}"


async def standing(settings: Settings, database: Database) -> DayTotals:
    """Today's spending, measured against the caps of these settings."""
    classify = settings.classify
    today = datetime.now(UTC).date()
    day = await store.spending_of(database, today)
    caps = [cap for cap in _caps_of(settings, day) if cap is not None]
    senders = (classify.sender_per_minute, classify.sender_tokens_per_day, day.senders_refused)
    return DayTotals(today, day.tokens, day.micros / _MICROS, day.refused, classify.tokens_per_message, *senders, caps)


def _caps_of(settings: Settings, day: Day) -> tuple[CapView | None, ...]:
    most = settings.spending.cap
    return (
        _cap_view("tokens_per_day", 1, most.tokens, day.tokens, day.held_tokens),
        _cap_view("cost_usd_per_day", _MICROS, most.micros, day.micros, day.held_micros),
        _cap_view(
            "newcomer_tokens_per_day",
            1,
            settings.classify.newcomer_tokens_per_day or None,
            day.newcomer_tokens,
            day.held_newcomer_tokens,
        ),
    )


def _cap_view(name: CapName, unit: int, most: int | None, spent: int, held: int) -> CapView | None:
    """A cap. `most`, `spent` and `held` are counts of which `unit` make one of the named quantity."""
    if most is None:
        return None
    left = max(0, most - spent - held)
    shown = [count if unit == 1 else count / unit for count in (most, spent, held, left)]
    return CapView(name, shown[0], shown[1], shown[2], shown[3], reached=left == 0)


def _model_view(
    model: ModelSpec, use: Use, found: Cooldown | RefusedKey | LearnedContext | None, spent: ModelDay | None
) -> ModelView:
    pause = None if isinstance(found, LearnedContext) else found
    until = pause.until if isinstance(pause, Cooldown) else None
    spent = spent or ModelDay(model.name)
    return ModelView(
        *(model.name, model.kind, model.model, *use),
        state="ready" if pause is None else "cooldown" if until else "paused",
        until=until,
        why=reads_less(found) if isinstance(found, LearnedContext) else None if pause is None else pause.why,
        attempts=spent.attempts,
        failed=spent.failed,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        tokens_cache_read=spent.cache_read,
        tokens_cache_write=spent.cache_write,
        cost_usd=spent.cost_usd,
    )

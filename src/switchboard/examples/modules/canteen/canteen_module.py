"""A module of about 60 lines: what there is to eat, and ordering it. Dishes are in a JSON file, orders in another."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from switchboard.ports.module import ModuleContext, ModuleManifest, PreparedCall, typed_tool
from switchboard.ports.tools import ToolOutcome, ToolScope

Day = Annotated[date, "The day, such as 2026-03-02"]


class CanteenSettings(Struct, frozen=True):
    """`[modules.canteen]`: where the dishes of each day are, and how many portions need no approval."""

    dishes: str
    unasked: Annotated[int, Meta(ge=0)] = 2


class Canteen:
    """The opened module."""

    chores = ()

    def __init__(self, context: ModuleContext) -> None:
        self.settings: CanteenSettings = context.settings
        self.orders = Path(self.settings.dishes).with_name("orders.json")

    def dishes_of(self, day: date) -> dict[str, float]:
        found: dict[str, float] = json.loads(Path(self.settings.dishes).read_text()).get(day.isoformat(), {})
        return found

    async def aclose(self) -> None:
        """Nothing is open."""


async def canteen_dishes(canteen: Canteen, day: Day) -> dict[str, float]:
    """What there is to eat on a day, with prices."""
    return canteen.dishes_of(day)


async def prepare_order(canteen: Canteen, day: date, dish: str, portions: int) -> PreparedCall | ToolOutcome:
    """A price that has changed is asked about again."""
    if dish not in (there := canteen.dishes_of(day)):
        return ToolOutcome(f"there is no such dish; there are: {', '.join(there) or 'none'}", ok=False)
    price = f"{there[dish] * portions:.2f} on {day:%A}, {day}"
    return PreparedCall("queryable", "high" if portions > canteen.settings.unasked else "low", "", price, price)


async def canteen_order(
    canteen: Canteen, scope: ToolScope, day: Day, dish: str, portions: Annotated[int, Meta(ge=1, le=50)] = 1
) -> str:
    """Order a dish."""
    orders = json.loads(canteen.orders.read_text()) if canteen.orders.exists() else {}
    orders[str(scope.key)] = [day.isoformat(), dish, portions]  # the same call again is the same order
    canteen.orders.write_text(json.dumps(orders))
    return f"ordered: {portions} x {dish}"


TOOLS = (
    typed_tool(canteen_dishes, effect="idempotent", reach="inside"),
    typed_tool(canteen_order, effect="queryable", prepare=prepare_order),
)
MANIFEST = ModuleManifest("canteen", TOOLS, "canteen_module:Canteen", settings=CanteenSettings)

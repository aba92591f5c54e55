"""The shapes of requests about plans. Next: `app/plans/trying.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from switchboard.domain.shown import ShownPlan
from switchboard.server.contracts.base import Body, ResponseBody, Word

Text = Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")]


class PlanPage(ResponseBody):
    """Newest message first, without steps. `next_cursor` is null on the last page."""

    plans: list[ShownPlan]
    next_cursor: str | None


class PlansOfMessage(ResponseBody):
    """What the butlers of a message have planned for it, with all steps."""

    plans: list[ShownPlan]


class TryPlanBody(Body):
    """What a person might write, and which butler is to plan it; null: the only one that plans."""

    text: Text
    butler: Word | None = None

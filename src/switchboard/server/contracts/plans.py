"""The shapes of requests about plans. Next: `app/plans/trying.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from switchboard.server.contracts.messages import Body, Word

Text = Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")]


class TryPlanBody(Body):
    """What a person might write, and which butler is to plan it; null: the only one that plans."""

    text: Text
    butler: Word | None = None

"""The table `[modules.schedule]`. The kernel reads it; `opened.py` hands it on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class TaskLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of tasks. Those that are late because nothing was running are made up for a few at a time."""

    catch_up: Annotated[int, Meta(ge=0, le=10_000, description="Late ones a minute and person; 0: no limit.")] = 10
    tasks_per_person: Annotated[int, Meta(ge=1, le=10_000)] = 100

"""The kinds of numbers that values have limits for; settings outside them are refused, with their line.

Used by the Structs that are tables of `switchboard.toml`. Next: `core/models_of.py`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=0)]
"""0: no limit."""
Days = Annotated[int, Meta(ge=1, le=36_500)]

"""What repeating an action does, in steps of a journal and calls of tools. Next: `engine.py`."""

from __future__ import annotations

from typing import Literal

Effect = Literal["idempotent", "queryable", "effectful"]
"""The effect of a repetition. `idempotent`: none; `queryable`: we can ask first; `effectful`: a second one."""

"""How wide a test with many rounds is: as `make random` wants it, or a sample, which `make test` is content with."""

from __future__ import annotations

import os
from typing import Final

WIDE: Final = os.environ.get("HYPOTHESIS_PROFILE") in {"asked", "wide"}


def wide(rounds: int, sample: int) -> int:
    """So many rounds: all of them in `make random`, else the sample."""
    return rounds if WIDE else sample

"""Kernel limits and an environment without secrets, for child processes that read strangers' input.

`mail_process.py` and `tools/page_process.py` limit themselves; `mail_reading.py` and `tools/pages.py` start them.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Mapping
from typing import Final

_PASSED: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")


def limit(kind: int, value: int) -> None:
    """Set a limit, as far as the limits inherited by this process allow; macOS has none on memory."""
    hard = resource.getrlimit(kind)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def without_secrets(ours: Mapping[str, str]) -> dict[str, str]:
    """The part of our environment that Python needs to start."""
    return {name: ours[name] for name in _PASSED if name in ours}

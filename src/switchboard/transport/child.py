"""What child processes get that read what strangers wrote: limits of the kernel, and an environment without secrets.

`mail_process.py` and `tools/page_process.py` limit themselves; `mail_reading.py` and `tools/pages.py` start them.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Mapping
from typing import Final

_PASSED: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")


def limit(kind: int, value: int) -> None:
    """As far as the limits allow that this process was started with; macOS has none on memory."""
    hard = resource.getrlimit(kind)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def without_secrets(ours: Mapping[str, str]) -> dict[str, str]:
    """What Python needs of our environment to start."""
    return {name: ours[name] for name in _PASSED if name in ours}

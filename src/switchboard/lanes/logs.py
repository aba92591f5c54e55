"""Logs of a program that has Switchboard in its own process and has not configured structlog.

Called by `turns/hosting.py`, `pipeline.py` and `app/checked.py` as they begin. In and out: nothing; what structlog logs
by default changes. The commands set logs up for themselves, see `app/logs.py`.
"""

from __future__ import annotations

import structlog


def hide_variables() -> None:
    """Exceptions are logged without the variables of their frames, in which are tokens, keys and messages.

    That is what structlog shows by default. A program that has configured it, or does so later, gets what it says.
    """
    if not structlog.is_configured():
        structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

"""Logs of a program that embeds Switchboard and has not configured structlog.

Called by `turns/hosting.py`, `pipeline.py` and `app/checked.py` as they begin. In and out: nothing; it changes
structlog's defaults. The commands set up their own logs, see `app/logs.py`.
"""

from __future__ import annotations

import structlog


def hide_variables() -> None:
    """Log exceptions without the variables of their frames, which contain tokens, keys and messages.

    structlog shows them by default. Programs that configure it, before or later, get what they configure.
    """
    if not structlog.is_configured():
        structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

"""Checks, without calling them, whether the configured webhooks, models and collector can be called from here.

Called by `app/checked.py` before a worker starts, and by `engine_checks.py`. In: settings; out: nothing, or a
ConfigurationError with the fix. Next: `transport/signed_post.py`.
"""

from __future__ import annotations

from switchboard.agents.callback import callbacks_from
from switchboard.app.dead_letters.telling import destination_of
from switchboard.app.ops.traces import open_sink
from switchboard.app.settings import Settings


def check_calls(settings: Settings) -> None:
    """Raise ConfigurationError where a webhook, a model or a collector cannot be called from here as the settings say.

    The settings that are looked at here are named in `checked.py`, too.
    """
    check_webhooks(settings)
    open_sink(settings.traces)
    if settings.classify.models:
        from switchboard.app.models.classifier import check_models

        check_models(settings)


def check_webhooks(settings: Settings) -> None:
    """Raise ConfigurationError where one of the settings cannot be called from here: its URL, or its secret."""
    callbacks_from(settings.callbacks)
    if settings.dead_letters.tell is not None:
        destination_of(settings.dead_letters.tell)

"""Checks all input of a start before anything is written: settings, channels, team files, webhooks.

Called by `cli/processes/running.py`, which imports the rest while the database starts, so this module must import fast;
and by `wiring.py`. In: settings; out: a `CheckedSettings`, or a ConfigurationError. Next: `database.py`.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.app.channels import known_channels
from switchboard.app.rules.seed import Seed, read_seed
from switchboard.app.settings import Settings
from switchboard.core.channels.registry import Channels
from switchboard.lanes.logs import hide_variables


class CheckedSettings(Struct, frozen=True):
    """Settings, and the things that they name. `for_worker`: whether a worker's needs were checked too."""

    settings: Settings
    channels: Channels
    seed: Seed | None
    for_worker: bool


def check_settings(settings: Settings, *, for_worker: bool) -> CheckedSettings:
    """Read everything that the settings name. Raises ConfigurationError with all errors of one of them."""
    hide_variables()
    channels = known_channels(settings)
    seed = read_seed(settings.teams_dir, channels, written=settings.teams)
    if for_worker and _calls_others(settings):
        from switchboard.app.ops.calls import check_calls

        check_calls(settings)
    return CheckedSettings(settings, channels, seed, for_worker)


def _calls_others(settings: Settings) -> bool:
    return bool(settings.callbacks or settings.dead_letters.tell or settings.classify.models or settings.traces.url)

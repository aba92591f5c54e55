"""Who listens to the recordings of messages: put together from the settings, and checked by `doctor`.

Called by `app/wiring.py` for each worker, and by `app/ops/checks.py`. Without `transcription.url` nothing of `llm/` is
loaded, and nothing leaves the machine. Next: `journey/hearing.py`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from switchboard.app.settings import Settings
from switchboard.core.voice.settings import TranscriptionSettings
from switchboard.domain.errors import ConfigurationError
from switchboard.journey.hearing import Hearing
from switchboard.ports.checks import CheckResult, ok, warning
from switchboard.ports.engine import Files
from switchboard.ports.transcription import Transcriber
from switchboard.store.database import Database
from switchboard.transport.signed_post import header_with_key

_HINT = ", as the provider of transcriptions gives it"


def open_hearing(settings: Settings, database: Database, files: Files, closing: AsyncExitStack) -> Hearing:
    """The hearing of a worker; `closing` closes it. Raises ConfigurationError if there is no key where one is named."""
    transcription = settings.transcription
    transcriber = None if transcription.url is None else _open_transcriber(settings, database, closing)
    return Hearing(database, files, transcription, transcriber)


def check_transcription(settings: TranscriptionSettings) -> list[CheckResult]:
    """Whether recordings leave the machine, and where they go; whether the key is there."""
    if settings.url is None:
        return []
    try:
        _header_with_key(settings)
    except ConfigurationError as error:
        return [warning("transcription", error.message, "fix it where the workers run, and restart them")]
    what = ", ".join(settings.media)
    told = "" if settings.stays_here else " leave this machine: they"
    return [ok("transcription", f"recordings ({what}){told} are sent to {settings.host}")]


def _open_transcriber(settings: Settings, database: Database, closing: AsyncExitStack) -> Transcriber:
    from switchboard.app.models.transcriber import open_transcriber

    transcriber = open_transcriber(settings, database, _header_with_key(settings.transcription))
    closing.push_async_callback(transcriber.aclose)
    return transcriber


def _header_with_key(settings: TranscriptionSettings) -> dict[str, str]:
    return header_with_key(settings.api_key_env, "Authorization", hint=_HINT)

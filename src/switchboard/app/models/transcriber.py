"""The server that transcribes, and its account: imported late by `app/transcription.py`, as it loads what asks models.

In: settings, and the header with the key; out: a `Transcriber` of the port. Next: `llm/transcription.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchboard.app.models.dispatcher import StoredSpending
from switchboard.app.settings import Settings
from switchboard.llm.transcription import TranscriptionApi
from switchboard.llm.web import open_client
from switchboard.store.database import Database


def open_transcriber(settings: Settings, database: Database, key: Mapping[str, str]) -> TranscriptionApi:
    """What asks the server of the settings, within the day's budget of models; the caller closes it."""
    spending = StoredSpending(database)
    return TranscriptionApi(open_client(), settings.transcription, key, spending, settings.spending.cap)

"""Sessions, dispatcher and classifier from the settings; everything that knows the SDKs of providers hangs on this.

`app/wiring.py` imports it late, for a worker that classifies. Settings enter; a `Classifier` leaves, its clients closed
at the end. Next: `classifier.py`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

from switchboard.agents.sessions.build import Sessions
from switchboard.agents.sessions.dispatch import Dispatcher, Limits, Rested
from switchboard.app.classifier import Asking, ModelClassifier, StoredDay
from switchboard.app.settings import Settings
from switchboard.core.policy.budget import Cap
from switchboard.domain.errors import Unavailable
from switchboard.store import verdicts
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7


def open_classifier(settings: Settings, database: Database, closing: AsyncExitStack) -> ModelClassifier:
    """The models of the settings, in the order in which they are asked. Raises ConfigurationError."""
    classify = settings.classify
    known = {model.name: model.spec for model in settings.models}
    sessions = Sessions(known[name] for name in classify.models)
    closing.push_async_callback(sessions.aclose)
    limits = Limits(Cap(classify.tokens_per_message), classify.day_cap)
    dispatcher = Dispatcher(sessions.models, StoredDay(database), limits, rested=_on_record(database))
    return ModelClassifier(database, dispatcher, Asking(classify.attempts, classify.timeout, mcp_url(settings)))


def _on_record(database: Database) -> Rested:
    """For those who look from another process: breakers are this one's alone."""
    process = new_uuid7()

    async def rested(model: str, seconds: float, why: str) -> None:
        with suppress(Unavailable):  # a verdict that is there is worth more than this note
            await verdicts.rest(database, process, model, seconds, why)

    return rested


def mcp_url(settings: Settings) -> str:
    """Where command lines find our MCP server: as the settings say, else at our own doors on this machine."""
    if settings.classify.mcp_url is not None:
        return settings.classify.mcp_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/mcp"

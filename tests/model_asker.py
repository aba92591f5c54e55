"""A process that asks a model once, as a worker does: `python -m tests.model_asker DATABASE_URL LLM_URL TEXT`.

One session of the model at a time for all processes; a slot that is not renewed is free after three seconds. It prints
the answer, or the attempts.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from switchboard.app.models.dispatcher import open_models
from switchboard.app.settings import Settings
from switchboard.domain.llm import ChatMessage, Request
from switchboard.ports.models import Asking
from switchboard.store.database import Database


def settings(database_url: str, llm_url: str, **more: Any) -> Settings:
    """One model of that server."""
    model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm_url}/v1", "concurrency": 1, **more}
    return Settings.model_validate({"database_url": database_url, "models": [model], "worker": {"ttl": 3.0}})


async def _ask(database_url: str, llm_url: str, text: str) -> None:
    database = await Database.connect(database_url)
    models = open_models(settings(database_url, llm_url), database)
    try:
        report = await models.ask(Request((ChatMessage("user", text),), deadline=50.0), Asking(("m",)))
        print(report.attempts if report.reply is None else report.reply.text, flush=True)  # noqa: T201
    finally:
        await models.aclose()
        await database.close()


if __name__ == "__main__":
    asyncio.run(_ask(*sys.argv[1:4]))

"""The server that makes vectors, and its account: imported late by `app/memory`, as it loads what asks models.

In: the settings of the server, and the day's budget; out: an `Embedder` of the port. Next: `llm/remote_embedder.py`.
"""

from __future__ import annotations

from switchboard.app.models.dispatcher import StoredSpending
from switchboard.core.memory.settings import EmbedderSpec
from switchboard.core.policy.budget import Cap
from switchboard.llm.remote_embedder import RemoteEmbedder
from switchboard.llm.web import open_client
from switchboard.store.database import Database
from switchboard.transport.signed_post import header_with_key

_HINT = ", as the provider gives it"


def open_remote_embedder(spec: EmbedderSpec, database: Database, cap: Cap) -> RemoteEmbedder:
    """What asks this server, within the day's budget of models. Raises ConfigurationError without a key that is named.

    The caller closes it.
    """
    key = header_with_key(spec.api_key_env, "Authorization", hint=_HINT)
    return RemoteEmbedder(open_client(), spec, key, StoredSpending(database), cap)

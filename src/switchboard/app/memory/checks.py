"""Checks of memory: what makes vectors and compares them, where texts go, and whether facts are looked for.

Called by `app/ops/checks.py`. In: settings, and the database, whose books a question is in; out: findings. Next:
`embedding.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.app.memory.embedding import choose_embedder
from switchboard.app.settings import Settings
from switchboard.core.memory.settings import LOCAL, NONE, EmbedderSpec
from switchboard.core.memory.vectors import count_changed
from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError
from switchboard.llm.local_embedder import local_model, missing_package
from switchboard.ports.checks import CheckResult, count_of, error, ok, warning
from switchboard.ports.embedder import Embedder, EmbeddingFailed
from switchboard.store.database import Database
from switchboard.store.memory.consolidation import find_failing
from switchboard.store.memory.fact_vectors import EXACT, sample_vectors, vector_standing

_NAME: Final = "memory"
_BY_WORDS: Final = "it is searched by words alone"
_SAMPLED: Final = 10
_MAKE_PGVECTOR: Final = "as a superuser, run `create extension vector` in its database, and restart the workers"
_QUESTION: Final = "Who repaired the bicycle?"


async def check_embedder(database: Database, settings: Settings) -> list[CheckResult]:
    """A server is asked for a vector, and whether it still has the weights of those that are stored.

    Those of the local model are compared with their hashes when it is opened.
    """
    chosen = choose_embedder(settings)
    if isinstance(chosen, EmbedderSpec):
        return [await _ask_once(chosen, database, settings)]
    if chosen == NONE:
        more = "" if settings.memory.embedder == NONE else f"; to search by meaning, too: {install_command('memory')}"
        return [ok(_NAME, f"{_BY_WORDS}{more}")]
    if missing := missing_package():
        detail = f'memory.embedder = "{LOCAL}" needs the package {missing}, which is not installed: {_BY_WORDS}'
        return [error(_NAME, detail, f"{install_command('memory')}, and restart the workers")]
    return [ok(_NAME, f"it is searched by words and by meaning, with {local_model().name} on this machine")]


async def check_consolidation(database: Database) -> list[CheckResult]:
    """Conversations in which facts were looked for in vain, several times in a row."""
    failing = await find_failing(database)
    if failing is None:
        return []
    where = count_of(failing.conversations, "conversation")
    detail = f"no facts could be looked for in {where}, three times or more; last: {failing.reason or 'a worker died'}"
    return [warning(_NAME, detail, "nothing is lost, it is tried again; another memory.compact_model may do better")]


async def check_index(database: Database, settings: Settings) -> list[CheckResult]:
    """What compares vectors, and how many facts are not indexed yet."""
    if choose_embedder(settings) == NONE:
        return []
    standing = await vector_standing(database)
    waiting = [
        f"{count_of(count, 'fact')} {for_what}"
        for count, for_what in (
            (standing.unread, "not found by words yet"),
            (standing.unembedded, "without a vector yet"),
        )
        if count
    ]
    if not standing.models:
        return [ok(_NAME, "; ".join(("no worker has made vectors yet", *waiting)))]
    if standing.pgvector:
        return [ok(_NAME, "; ".join(("PostgreSQL compares vectors, with pgvector", *waiting)))]
    detail = f"vectors are compared without pgvector: beyond {EXACT:,} facts that one may see, words alone decide"
    return [ok(_NAME, "; ".join((f"{detail}; pgvector 0.8 makes it faster: {_MAKE_PGVECTOR}", *waiting)))]


async def _ask_once(spec: EmbedderSpec, database: Database, settings: Settings) -> CheckResult:
    from switchboard.app.models.embedder import open_remote_embedder

    try:
        embedder = open_remote_embedder(spec, database, settings.spending.cap)
    except ConfigurationError as lack:
        return error(_NAME, f"embedders: {spec.name}: {lack.message}; {_BY_WORDS}", "fix it where the workers run")
    try:
        await embedder.embed_query(_QUESTION)
        changed = await _count_changed(embedder, database)
    except EmbeddingFailed as failure:
        return warning(
            _NAME,
            f"{failure.reason}; {_BY_WORDS} meanwhile",
            "see to that server, or correct [[embedders]] in the settings",
        )
    finally:
        await embedder.aclose()
    if changed:
        remedy = f"set another revision of {spec.name} in [[embedders]], and restart: all vectors are made again"
        return error(_NAME, f"{changed} stored vectors are not what {spec.model} at {spec.host} makes today", remedy)
    what = "all facts and questions" if spec.local else "facts and questions, but none of health, money or secrets,"
    return ok(_NAME, f"it is searched by words and by meaning; {what} are sent to {spec.host}")


async def _count_changed(embedder: Embedder, database: Database) -> int:
    """How many of ten stored vectors are not what is made of the same texts today. Raises EmbeddingFailed."""
    sampled = await sample_vectors(database, embedder.model, _SAMPLED)
    fresh = await embedder.embed_passages([one.text for one in sampled])
    return count_changed([one.vector for one in sampled], fresh)

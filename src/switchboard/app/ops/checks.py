"""The checks of `switchboard doctor`, in the order in which to fix what they find. A feature adds its line here.

Called by `doctor.py`. In: settings, and the database; out: findings of the machine, and checks of the
database. Next: the `checks.py` of each package.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from switchboard.app.channels import is_full
from switchboard.app.mcp_servers import check_servers
from switchboard.app.memory.checks import check_consolidation, check_embedder, check_index
from switchboard.app.models.checks import check_models_in_use
from switchboard.app.notices import check_notify
from switchboard.app.ops.engine_checks import check_engines
from switchboard.app.ops.machine import (
    check_data_dir,
    check_package,
    check_pooler,
    check_python,
    check_settings,
    check_token_file,
)
from switchboard.app.ops.modules import check_modules
from switchboard.app.ownership import read_ours
from switchboard.app.rules.checks import check_stored_teams, check_team_files
from switchboard.app.settings import TOO_MANY_INSIDE, Settings
from switchboard.app.sign_ins import check_sign_ins
from switchboard.app.transcription import check_transcription
from switchboard.connectors.kernel.checks import Trust, check_accounts, paused_endpoints
from switchboard.llm.checks import check_models
from switchboard.ports.checks import Check, CheckResult
from switchboard.store.checks.books import check_balancing
from switchboard.store.checks.connectors import check_connectors, check_remote_butlers
from switchboard.store.checks.modules import check_chores
from switchboard.store.checks.server import check_partitions, check_schema, check_server
from switchboard.store.checks.traces import check_traces
from switchboard.store.checks.work import check_erased_files, check_maintenance, check_processes, check_waiting
from switchboard.store.database import Database
from switchboard.store.rules.teams import TeamsOnce
from switchboard.tools.checks import check_search


def findings_of_machine(settings: Settings) -> Iterator[CheckResult]:
    """What is found without the database."""
    trust = Trust(settings.policies, settings.email.trusted_servers)
    full = TOO_MANY_INSIDE if is_full(settings, more=0) else None
    yield check_python()
    yield check_package()
    yield check_settings()
    yield from check_team_files(settings)
    yield from check_accounts(settings.channels_dir, read_ours, trust, full)
    yield from check_sign_ins(settings)
    yield from check_models(settings.models, settings.classify.models)
    yield from check_transcription(settings.transcription)
    yield check_data_dir(settings.data_dir)
    yield check_token_file(settings.data_dir)


async def findings_of_server(database: Database, settings: Settings) -> list[CheckResult]:
    """What is found without the tables; the last finding is about the schema."""
    pooled = [] if settings.database_direct_url is None else [await check_pooler(settings)]
    return [*await check_server(database), *pooled, await check_schema(database)]


def installation_checks(database: Database, settings: Settings, *books: Check) -> tuple[Check, ...]:
    """What a database with the schema of this release is asked, and how its `books` are checked."""
    paused, teams = paused_endpoints(settings.channels_dir, read_ours), TeamsOnce(database)
    return (
        partial(check_partitions, database),
        partial(check_stored_teams, database, settings),
        partial(check_models_in_use, database, settings, teams),
        partial(check_servers, database, settings.servers, teams),
        partial(check_modules, database, settings, teams),
        partial(check_search, settings.search),
        partial(check_embedder, database, settings),
        partial(check_consolidation, database),
        partial(check_index, database, settings),
        partial(check_remote_butlers, database, settings.liveness),
        partial(check_connectors, database, paused),
        partial(check_processes, database),
        partial(check_maintenance, database),
        partial(check_chores, database),
        partial(check_erased_files, database),
        partial(check_notify, database, settings.notify),
        partial(check_engines, database, settings, teams),
        *books,
        partial(check_balancing, database),
        partial(check_waiting, database),
        partial(check_traces, database, settings.traces.url),
    )

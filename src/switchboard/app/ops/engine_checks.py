"""Checks what a worker checks before it starts: webhooks, options of butlers, secrets and programs.

Called by `app/ops/checks.py`. In: settings and the stored members; out: findings. Next: `engines.py`, `calls.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from switchboard.app.ops.engines import engine_context, load_engines, option_problems, problem_with_place
from switchboard.app.rules.checks import seed_of
from switchboard.app.settings import Settings
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import Member, Team
from switchboard.ports.checks import MOST, CheckResult, error, warning
from switchboard.ports.engine import ChecksMachine
from switchboard.store.database import Database
from switchboard.store.rules.teams import TeamsOnce
from switchboard.store.work import processes


async def check_engines(database: Database, settings: Settings, teams: TeamsOnce) -> list[CheckResult]:
    """The checks of a worker before it starts.

    A running worker has passed all of them, perhaps in another environment.
    """
    workers = await processes.list_processes(database, "worker")
    problems = [("webhooks", problem) for problem in _find_webhook_problems(settings)]
    problems += [("butlers", problem) for problem in _find_butler_problems(database, settings, await teams.read())]
    if any(worker.alive for worker in workers):
        remedy = "this is how it looks from here; check it on the machines of the workers"
        return [warning(name, problem, remedy) for name, problem in problems[:MOST]]
    remedy = "correct it: without it workers do not start, or messages become dead letters"
    return [error(name, problem, remedy) for name, problem in problems[:MOST]]


def _find_webhook_problems(settings: Settings) -> list[str]:
    from switchboard.app.ops.calls import check_webhooks

    try:
        check_webhooks(settings)
    except ConfigurationError as failure:
        return [failure.message]
    return []


def _find_butler_problems(database: Database, settings: Settings, teams: Iterable[Team]) -> list[str]:
    """Wrong options of active members, and secrets and programs missing on this machine."""
    seed = seed_of(settings)
    files = {} if isinstance(seed, str) or seed is None else seed.files
    members = [member for team in teams for member in team.members if member.active]
    engines = load_engines(engine_context(settings, database), only={member.engine for member in members})
    problems = [(member, option_problems(engines, [member], files)) for member in members]
    found = [problem for _, some in problems for problem in some]
    lacking = ((member, _what_lacks(engines.get(member.engine), member)) for member, some in problems if not some)
    return found + [problem_with_place(what, member, files) for member, what in lacking if what]


def _what_lacks(engine: object, member: Member) -> str | None:
    return engine.lacking(member) if isinstance(engine, ChecksMachine) else None

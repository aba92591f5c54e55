"""What is wrong with an installation, and how to mend it.

Called by `switchboard doctor`, which asks the server itself. Settings enter; findings leave, in the order of looking:
what stands before must be mended first. Works on the database as it is, also while no server runs, and changes nothing.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Literal

import asyncpg

from switchboard.agents.sessions.build import flaw
from switchboard.app.accounts import CapView, standing
from switchboard.app.backup import existing_database
from switchboard.app.settings import ENGINES, FILE_NAME, OPERATOR_FILE, Settings
from switchboard.core.channels import CHANNELS
from switchboard.core.routing.check import check_rule, check_teams
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.remote import Presence
from switchboard.store import dead_letters, lanes, ledger, outbox, presence, teams, verdicts
from switchboard.store.books import Balance, audit_books
from switchboard.store.checkup import schema_facts, server_facts
from switchboard.store.database import Database
from switchboard.store.migrate import migrations
from switchboard.store.verdicts import Rest

Status = Literal["good", "bad", "note"]
MAX_SKEW: Final = 2.0
"""Seconds that this machine's clock and the database's may differ."""
_OLDEST_PYTHON: Final = (3, 11)
_MANY: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `mend` says what to do about a bad one (or may be done about a note)."""

    name: str
    status: Status
    detail: str
    mend: str = ""


def check_machine(settings: Settings) -> list[Finding]:
    """What can be seen without the database: Python, settings, models, data directory, token file."""
    place = settings.data_dir
    return [_python(), _settings(settings), *_models(settings), _data_dir(place), _token_file(place)]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Finding("python", "good", version)
    return Finding("python", "bad", f"{version} is too old", "install Python 3.11 or newer")


def _settings(settings: Settings) -> Finding:
    file = Path(FILE_NAME)
    where = str(file.absolute()) if file.is_file() else f"no {FILE_NAME} here, so defaults and the environment"
    if settings.teams_dir is not None and not settings.teams_dir.is_dir():
        return Finding("settings", "bad", f"teams_dir {settings.teams_dir} is not there", "create it, or name another")
    return Finding("settings", "good", where)


def _models(settings: Settings) -> list[Finding]:
    """What each model lacks, as seen from here: no more than a hint, for workers may have another environment."""
    found = [(model, flaw(model.spec)) for model in settings.models]
    asked = settings.classify.models
    mend = "mend it where the workers run, then: switchboard models test"
    lacking = [Finding(f"model {model.name}", "note", why, mend) for model, why in found if why is not None]
    whole = sum(why is None for _, why in found)
    good = [Finding("models", "good", f"{_many(whole, 'model')}; asked in this order: {', '.join(asked) or 'none'}")]
    return (good if whole else []) + lacking


def _data_dir(directory: Path) -> Finding:
    if not directory.exists():
        return Finding("data directory", "note", f"{directory} is not there yet", "`switchboard up` makes it")
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return Finding(
            "data directory",
            "bad",
            f"no right to write in {directory}",
            f"hand it to us: chown {os.geteuid()} {directory}",
        )
    if directory.stat().st_mode & stat.S_IWOTH:
        return Finding("data directory", "bad", f"everybody may write in {directory}", f"chmod o-w {directory}")
    return Finding("data directory", "good", str(directory))


def _token_file(data_dir: Path) -> Finding:
    file = data_dir / OPERATOR_FILE
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        file.open().close()
    except FileNotFoundError:
        return Finding("operator's token", "note", f"{file} is not there yet", "`switchboard up` or `serve` writes it")
    except OSError as error:
        return Finding(
            "operator's token", "bad", f"{file} cannot be read: {error.strerror}", "run as the user who runs the server"
        )
    if mode & 0o077:
        return Finding(
            "operator's token",
            "bad",
            f"{file} has mode {mode:04o}: others may read it",
            f"chmod 600 {file}, then revoke the token",
        )
    return Finding("operator's token", "good", f"{file} (mode {mode:04o})")


async def check_database(settings: Settings) -> list[Finding]:
    """What the database says; the first finding is whether it is to be reached at all."""
    try:
        async with existing_database(settings) as database:
            return [finding async for finding in _look(database, settings)]
    except (SwitchboardError, OSError, asyncpg.PostgresError) as error:
        return [Finding("database", "bad", str(error), "start it, or correct database_url or data_dir")]


async def _look(database: Database, settings: Settings) -> AsyncIterator[Finding]:
    for finding in await _server(database):
        yield finding
    schema = await _schema(database)
    yield schema
    if schema.status != "good":
        return
    checks: Sequence[Callable[[Database, Settings], Awaitable[list[Finding]]]] = (
        _teams,
        _classifying,
        _remote,
        _workers,
        _books,
        _waiting,
    )
    for check in checks:
        for finding in await check(database, settings):
            yield finding


async def _server(database: Database) -> list[Finding]:
    before = datetime.now(UTC)
    facts = await server_facts(database)
    middle = before + (datetime.now(UTC) - before) / 2
    found = [Finding("database", "good", f"PostgreSQL {facts.version}")]
    off = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if getattr(facts, name) == "off"]
    if off:
        mend = "; ".join(f"alter system set {name} = on" for name in off) + "; then reload PostgreSQL"
        found.append(
            Finding("durability", "bad", f"{', '.join(off)} off: a crash may lose what was acknowledged", mend)
        )
    else:
        found.append(Finding("durability", "good", "fsync, synchronous_commit and full_page_writes are on"))
    skew = (facts.now - middle).total_seconds()
    if abs(skew) > MAX_SKEW:
        found.append(Finding("clock", "bad", f"the database's clock is {skew:+.1f} s off ours", "let NTP set both"))
    else:
        found.append(Finding("clock", "good", f"{skew:+.3f} s between the database and us"))
    return found


async def _schema(database: Database) -> Finding:
    at, newest = (await schema_facts(database)).migration, migrations()[-1].number
    if at == newest:
        return Finding("schema", "good", f"version {at}")
    if at > newest:
        return Finding(
            "schema", "bad", f"version {at}, this release knows only {newest}", "install the newer release again"
        )
    return Finding("schema", "bad", f"version {at}, this release needs {newest}", "switchboard db migrate")


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


async def _teams(database: Database, settings: Settings) -> list[Finding]:
    channels, rules = {*CHANNELS, *settings.channels}, 0
    async with teams.open_rules(database) as stored:
        by_id = {team.team_id: team for team in stored.teams}
        problems = [f"{p.field}: {p.message}" for p in check_teams(stored.teams)]
        async for some in stored.rules:
            rules += len(some)
            found = ((rule, p) for rule in some for p in check_rule(rule, by_id, channels))
            problems += [f"rule {rule.name!r} of {rule.team_id}: {p.message}" for rule, p in found]
    problems += _engines_missing(member.engine for team in stored.teams for member in team.members)
    mend = "mend the team files (teams_dir), or the rule that is named"
    if problems:
        return [Finding("teams", "bad", problem, mend) for problem in problems[:_MANY]]
    counted = f"{_many(len(stored.teams), 'team')}, {_many(rules, 'rule')}"
    return [Finding("teams", "good", f"{counted}; version {stored.version} of the rules")]


def _engines_missing(used: Iterator[str]) -> list[str]:
    installed = {entry.name for entry in entry_points(group=ENGINES)}
    return [
        f"the engine {name!r} is not installed; there are {', '.join(sorted(installed))}"
        for name in sorted({*used} - installed)
    ]


async def _classifying(database: Database, settings: Settings) -> list[Finding]:
    """Teams that would ask a model and cannot, caps of the day, models that are left alone."""
    found = []
    async with teams.open_rules(database) as stored:
        asking = [team.team_id for team in stored.teams if team.classify]
    if asking and not settings.classify.models:
        detail = f"{', '.join(asking[:_MANY])}: these teams would ask a model, and none is configured"
        found.append(Finding("classification", "note", detail, "name models in classify.models, see docs/models.md"))
    stood = await standing(settings.classify, database)
    found += [_cap(cap) for cap in stood.caps if cap.reached]
    if stood.refused:
        mend = "raise the cap in [classify], or wait for the next day (UTC)"
        found.append(Finding("refused today", "note", f"{stood.refused} times a cap of the day forbade to ask", mend))
    return found + [_left_alone(one) for one in await verdicts.resting(database)]


def _left_alone(rest: Rest) -> Finding:
    detail = f"{rest.model}, until {rest.until:%H:%M:%S} UTC: {rest.why}"
    return Finding("model left alone", "note", detail, "see what it says now: switchboard models test")


def _cap(cap: CapView) -> Finding:
    unit = "tokens" if cap.name == "tokens_per_day" else "micro-dollars"
    detail = f"{cap.spent} {unit} of {cap.cap} are spent: no model is asked until tomorrow (UTC)"
    return Finding(f"classify.{cap.name}", "note", detail, "raise it, or look where it went: switchboard models usage")


async def _remote(database: Database, settings: Settings) -> list[Finding]:
    """Remote butlers that gave no sign of life in time, or are kept from work."""
    found = await presence.list_presences(database, settings.liveness.patience)
    return [_silent(one) for one in found if one.liveness in {"stale", "quarantined"}][:_MANY]


def _silent(one: Presence) -> Finding:
    if one.by:
        mend = f"switchboard agents release {one.system_id}, when it may work again"
        return Finding("remote butler", "note", f"{one.system_id} is quarantined: {one.why}", mend)
    seen = "never seen" if one.last_seen_at is None else f"last seen {one.last_seen_at:%Y-%m-%d %H:%M:%S %Z}"
    mend = "start it, and see that its heartbeats arrive; meanwhile no model chooses it"
    if one.away:
        return Finding("remote butler", "bad", f"{one.system_id} is quarantined: {seen}", mend)
    return Finding(
        "remote butler", "note", f"{one.system_id} is stale: {seen}", "it will be quarantined if it stays silent"
    )


async def _workers(database: Database, _: Settings) -> list[Finding]:
    workers = await ledger.list_workers(database)
    alive = [worker for worker in workers if worker.alive]
    if alive:
        return [Finding("workers", "good", f"{len(alive)} alive")]
    return [
        Finding(
            "workers",
            "bad",
            "none is alive: messages are taken, but nobody answers",
            "switchboard up, or switchboard work",
        )
    ]


async def _books(database: Database, _: Settings) -> list[Finding]:
    books = await audit_books(database)
    # Paused lanes are told of by `_waiting`: they wait for a person, and nothing is wrong with the books.
    paused = {str(lane["lane"]) for lane in await lanes.list_lanes(database, ("paused",))}
    problems = [p for p in books.problems if not ("paused" in p and any(key in p for key in paused))]
    found = [_balanced("messages", books.messages), _balanced("targets", books.targets)]
    mend = "keep a backup (switchboard db backup), then report this with the output of `switchboard explain ID`"
    return found + [Finding("books", "bad", problem, mend) for problem in problems[:_MANY]]


def _balanced(what: str, balance: Balance) -> Finding:
    b = balance
    names = ("in_flight", "answered", "declined", "dead", "cancelled")
    became = " + ".join(f"{getattr(b, name)} {name.replace('_', ' ')}" for name in names)
    if b.difference == 0:
        return Finding(f"books: {what}", "good", f"{b.accepted} accepted = {became}")
    mend = "restore a backup made before, or report this: nothing may ever be missing"
    return Finding(f"books: {what}", "bad", f"{b.accepted} accepted, but {became}: {b.difference:+d}", mend)


async def _waiting(database: Database, _: Settings) -> list[Finding]:
    """What waits for a person: no fault of the installation, but nobody should have to stumble on it."""
    found = [
        Finding("paused lane", "note", str(lane["lane"]), f"switchboard lanes resume '{lane['lane']}'")
        for lane in (await lanes.list_lanes(database, ("paused",)))[:_MANY]
    ]
    for state, count in (await outbox.count_unsent(database)).items():
        mend = f"switchboard outbox list --state {state}, then resend what should be sent again"
        found.append(Finding(f"{state} replies", "note", f"{count} were not, or perhaps not, sent", mend))
    if pending := await dead_letters.count_pending(database):
        found.append(Finding("dead letters", "note", f"{pending} to be handled", "switchboard dlq list"))
    return found

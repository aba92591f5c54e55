"""Finds what is wrong with an installation, and how to fix it.

Called by `switchboard doctor`, which asks the server itself. In: settings; out: findings, in the order in which to fix
them. Works on the database as it is, even without a server, and changes nothing except the record of which days of the
books were checked when.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

import asyncpg
from msgspec import Struct

from switchboard import DISTRIBUTION, __version__
from switchboard.app.channels import is_full, known_channels
from switchboard.app.classification.spending import CapView, DayTotals, reads_less, standing
from switchboard.app.database import connect_pooled, existing_database
from switchboard.app.mcp_servers import McpServerCheck, looked_at, unknown_names
from switchboard.app.notices import OperatorNotices, unusable
from switchboard.app.ops.engines import (
    blamed,
    engine_context,
    load_engines,
    option_problems,
    sandbox_rules,
)
from switchboard.app.ownership import read_ours, require_ours
from switchboard.app.rules.seed import Seed, read_seed
from switchboard.app.settings import ENGINES, TOO_MANY_INSIDE, Settings
from switchboard.app.settings_file import FILE_NAME
from switchboard.app.whereabouts import OPERATOR_FILE
from switchboard.connectors.kernel.accounts import configured, declared, pause_file
from switchboard.core.channels import email
from switchboard.core.channels.registry import Channels
from switchboard.core.mcp_tools import MOST_SCHEMAS
from switchboard.core.routing.check import Teams, check_rule, check_teams
from switchboard.core.routing.lint import LintCode, lint_handlers
from switchboard.core.words import offer
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.domain.remote_agents import RemoteAgent
from switchboard.domain.routing import Member, Rule, Team
from switchboard.domain.shown import Connector
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.notifier import Notifier
from switchboard.llm.build import flaw
from switchboard.ports.engine import ChecksMachine
from switchboard.ports.search import SearchFailure
from switchboard.sandbox.run import Sandbox
from switchboard.store import (
    approvals,
    connectors,
    dead_letters,
    lanes,
    model_usage,
    outbox,
    partitions,
    processes,
    remote_agents,
    schedule,
    teams,
)
from switchboard.store.books import Balance, Books, DayBooks, audit_books, check_books, kept_books
from switchboard.store.checkup import schema_facts, server_facts
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import Database
from switchboard.store.migrate import migrations
from switchboard.store.model_usage import Cooldown, LearnedContext, RefusedKey
from switchboard.store.outbox import WaitingReplies
from switchboard.store.processes import RunningProcess
from switchboard.tools.searxng import Searxng
from switchboard.transport.plug_ins import plug_ins

Status = Literal["ok", "error", "warning"]
Told = Callable[[str], None]
"""Hears a line about each day whose books were checked."""
MAX_SKEW: Final = 2.0
"""Seconds that this machine's clock and the database's may differ."""
_OLDEST_PYTHON: Final = (3, 11)
_MANY: Final = 20
_PAUSED: Final = 200
"""Paused lanes whose problems in the books are left to the check of what waits."""
_SEARCHED: Final = "switchboard"
_BEHIND_S: Final = 600.0
"""A connector that is further behind its platform is reported, though it is well."""
_GONE: Final = timedelta(days=30)
"""A connector that has been silent for longer, and for which nothing waits, has been taken out of service."""


class CheckResult(Struct, frozen=True):
    """One check. `remedy` says what to do about an error (or may be done about a warning)."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def _ok(name: str, detail: str) -> CheckResult:
    return CheckResult(name, "ok", detail)


def _warning(name: str, detail: str, remedy: str) -> CheckResult:
    return CheckResult(name, "warning", detail, remedy)


def _error(name: str, detail: str, remedy: str) -> CheckResult:
    return CheckResult(name, "error", detail, remedy)


def check_machine(settings: Settings) -> list[CheckResult]:
    """Checks without the database: Python, settings, models, data directory, token file."""
    place = settings.data_dir
    read = [_python(), _package(), _settings(), *_team_files(settings), *_accounts(settings), *_models(settings)]
    return [*read, _data_dir(place), _token_file(place)]


async def check_sandbox(settings: Settings) -> CheckResult:
    """Whether butlers' commands can run here, found out by running one, and what enforces their limits."""
    sandbox = Sandbox(sandbox_rules(settings))
    if lacking := await sandbox.lacking():
        remedy = "without it no model is offered execute_command and bash; see docs/tools.md#commands"
        return _warning("sandbox", f"off: {lacking}", remedy)
    return _ok("sandbox", f"bubblewrap; {sandbox.limits}")


def _package() -> CheckResult:
    """Another distribution with a package of our name: whichever was installed last has overwritten the other."""
    owners = {name.lower().replace("_", "-") for name in packages_distributions().get("switchboard", ())}
    if not (others := sorted(owners - {DISTRIBUTION})):
        return _ok("package", f"{DISTRIBUTION} {__version__}")
    said = f"files of {', '.join(others)} are in the package switchboard, which both bring"
    remedy = f"pip uninstall {' '.join(others)}, then pip install --force-reinstall --no-deps {DISTRIBUTION}"
    return _error("package", said, remedy)


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return _ok("python", version)
    return _error("python", f"{version} is too old", "install Python 3.11 or newer")


def _settings() -> CheckResult:
    file = Path(FILE_NAME)
    where = str(file.absolute()) if file.is_file() else f"no {FILE_NAME} here, so defaults and the environment"
    return _ok("settings", where)


def _team_files(settings: Settings) -> list[CheckResult]:
    """The team files, read as at a start, which would refuse to continue."""
    seed = _seed(settings)
    if isinstance(seed, str):
        problems = seed.splitlines()[:_MANY]
        return [_error("team files", one, "correct it: `switchboard up` does not start") for one in problems]
    return [] if seed is None else [_ok("team files", f"{_many(len(seed.teams), 'team')} in {seed.origin}")]


def _accounts(settings: Settings) -> list[CheckResult]:
    """Accounts of channels: wrong files, unknown channels, unreadable secrets, mail nobody vouches for."""
    files = sorted(settings.channels_dir.glob("*.toml"))
    found = [finding for file in files if (finding := _account(file) or _mailbox(file, settings)) is not None]
    if is_full(settings, more=0):
        found.insert(0, _error("accounts", f"not all of {len(files)} accounts are connected", TOO_MANY_INSIDE))
    good = _ok("accounts", f"{_many(len(files), 'account')} in {settings.channels_dir}")
    return found[:_MANY] or ([good] if files else [])


def _account(file: Path) -> CheckResult | None:
    try:
        configured(file, read_ours)
    except ConfigurationError as error:
        remedy = "correct it: `switchboard up` notices; until then it connects this account as it was, or not at all"
        return _error("account", error.message, remedy)
    if pause_file(file).exists():
        return _warning("account", f"{file.stem} is paused", f"switchboard channels resume {file.stem}")
    return None


def _mailbox(file: Path, settings: Settings) -> CheckResult | None:
    """A mailbox where senders count only if a mail server vouches for them, and no server is trusted."""
    said = declared(file, read_ours)
    channel, _, address = (said.endpoint or "").partition("/")
    policy = said.strangers or settings.policies.get((channel, address), "open")
    servers = settings.email.trusted_servers
    if channel != email.NAME or policy == "open" or servers.get(address) or servers.get("*"):
        return None
    detail = (
        f"{file.stem}: no mail server is trusted to authenticate senders, so every mail is held and nobody is answered"
    )
    remedy = (
        f"name the server with which Authentication-Results of your mails begins, in {FILE_NAME}, and restart: "
        f'[email.trusted_servers] "{address}" = ["mx.example.org"]'
    )
    return _warning("account", detail, remedy)


def _seed(settings: Settings) -> Seed | str | None:
    """The teams of files and settings, or what is wrong with them."""
    try:
        return read_seed(settings.teams_dir, known_channels(settings), written=settings.teams)
    except ConfigurationError as error:
        return error.message


def _models(settings: Settings) -> list[CheckResult]:
    """What each model lacks here: only a hint, since workers may have another environment."""
    found = [(model, flaw(model.spec)) for model in settings.models]
    asked = settings.classify.models
    remedy = "fix it where the workers run, then: switchboard models test"
    lacking = [_warning(f"model {model.name}", why, remedy) for model, why in found if why is not None]
    whole = sum(why is None for _, why in found)
    order = f"in order of preference: {', '.join(asked)}" if asked else "none of them classifies messages"
    good = [_ok("models", f"{_many(whole, 'model')}; {order}")]
    return (good if whole else []) + lacking


def _data_dir(directory: Path) -> CheckResult:
    if not directory.exists():
        return _warning("data directory", f"{directory} does not exist yet", "`switchboard up` creates it")
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return _error(
            "data directory",
            f"no permission to write to {directory}",
            f"change its owner: chown {os.geteuid()} {directory}",
        )
    try:
        require_ours(directory)
    except ConfigurationError as error:
        detail, _, remedy = error.message.rpartition("; ")
        return _error("data directory", detail, remedy)
    return _ok("data directory", str(directory))


def _token_file(data_dir: Path) -> CheckResult:
    file = data_dir / OPERATOR_FILE
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        file.open().close()
    except FileNotFoundError:
        return _warning("operator's token", f"{file} does not exist yet", "`switchboard up` or `serve` creates it")
    except OSError as error:
        return _error(
            "operator's token", f"{file} cannot be read: {error.strerror}", "run as the user who runs the server"
        )
    if mode & 0o077:
        return _error(
            "operator's token",
            f"{file} has mode {mode:04o}: other users can read it",
            f"chmod 600 {file}, then revoke the token",
        )
    return _ok("operator's token", f"{file} (mode {mode:04o})")


async def check_database(settings: Settings, told: Told | None = None, *, notify: bool = False) -> list[CheckResult]:
    """Checks of the database; the first finding is whether it is reachable.

    `notify`: also send a notice to each address of operators.

    With `told`, the books of every day are checked, and it is called after each day.
    """
    try:
        async with existing_database(settings) as database:
            found = [finding async for finding in _look(database, settings, told)]
            return found + (await _notified(database, settings) if notify else [])
    except (SwitchboardError, OSError, asyncpg.PostgresError) as error:
        return [_error("database", str(error), "start it, or correct database_url or data_dir")]


async def _look(database: Database, settings: Settings, told: Told | None) -> AsyncIterator[CheckResult]:
    for finding in await _server(database):
        yield finding
    if settings.database_direct_url is not None:
        yield await _pooler(settings)
    schema = await _schema(database)
    yield schema
    if schema.status != "ok":
        return
    checks: Sequence[Callable[[Database, Settings], Awaitable[list[CheckResult]]]] = (
        _partitions,
        _teams,
        _classifying,
        _mcp_servers,
        _searching,
        _remote,
        _connectors,
        _processes,
        _maintenance,
        _notify,
        _calls,
        _books if told is None else partial(_all_books, told),
        _balancing,
        _waiting,
    )
    for check in checks:
        for finding in await check(database, settings):
            yield finding


async def _pooler(settings: Settings) -> CheckResult:
    try:
        database = await connect_pooled(settings)
    except SwitchboardError as error:
        return _error("pooler", str(error), "correct database_url or the pooler, see docs/operations.md")
    await database.close()
    return _ok("pooler", "it follows prepared statements and has the settings of our role")


async def _server(database: Database) -> list[CheckResult]:
    facts = await server_facts(database)
    found = [_ok("database", f"PostgreSQL {facts.version}")]
    off = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if getattr(facts, name) == "off"]
    if off:
        remedy = "; ".join(f"alter system set {name} = on" for name in off) + "; then reload PostgreSQL"
        found.append(_error("durability", f"{', '.join(off)} off: a crash may lose what was acknowledged", remedy))
    else:
        found.append(_ok("durability", "fsync, synchronous_commit and full_page_writes are on"))
    skew = (await DatabaseClock().measure(database)).total_seconds()
    if abs(skew) > MAX_SKEW:
        found.append(_error("clock", f"the database's clock differs by {skew:+.1f} s", "synchronise both with NTP"))
    else:
        found.append(_ok("clock", f"{skew:+.3f} s between the database and this machine"))
    return found


async def _schema(database: Database) -> CheckResult:
    at, newest = (await schema_facts(database)).migration, migrations()[-1].number
    if at == newest:
        return _ok("schema", f"version {at}")
    if at > newest:
        return _error("schema", f"version {at}, this release knows only {newest}", "install the newer release")
    return _error("schema", f"version {at}, this release needs {newest}", "switchboard db migrate")


async def _partitions(database: Database, _: Settings) -> list[CheckResult]:
    """Without the partition of its month, a message is refused: fewer than one month ahead is an alarm."""
    missing = await partitions.missing_partitions(database)
    if not missing:
        return [_ok("partitions", "for at least one month ahead")]
    some = ", ".join(missing[:_MANY])
    return [
        _error(
            "partitions",
            f"not made yet: {some}; messages of these months would be refused",
            "switchboard db migrate makes them; then look in the log of the worker why it did not",
        )
    ]


_UNSENT: Final[Mapping[str, str]] = {
    "uncertain": "may not have been sent",
    "failed": "could not be sent",
    "dead": "could not be sent, after many attempts",
}


def _many_replies(number: int) -> str:
    return f"{number} reply" if number == 1 else f"{number} replies"


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


async def _teams(database: Database, settings: Settings) -> list[CheckResult]:
    channels, rules = known_channels(settings), 0
    async with teams.open_rules(database) as stored:
        by_id = {team.team_id: team for team in stored.teams}
        problems = [f"{p.field}: {p.message}" for p in check_teams(stored.teams)]
        async for some in stored.rules:
            rules += len(some)
            problems += _rule_problems(some, by_id, channels)
    problems += _engines_missing(member.engine for team in stored.teams for member in team.members)
    remedy = "fix the team files (teams_dir) or the rule named"
    if problems:
        return [_error("teams", problem, remedy) for problem in problems[:_MANY]]
    counted = f"{_many(len(stored.teams), 'team')}, {_many(rules, 'rule')}"
    good = _ok("teams", f"{counted}; version {stored.version} of the rules")
    return [good, *_handlers(stored.teams, settings), *_owners(stored.teams, channels)]


_UNHEARD: Final[Mapping[LintCode, tuple[str, str]]] = {
    "no_handler": ("no System4: nobody is notified of dead letters", "add a member System4/… to the team file"),
    "silent_handler": (
        "the System4 only files dead letters and notifies nobody",
        "set notify (a chat) or dead_letters.tell (a webhook), see docs/operations.md",
    ),
}


def _handlers(found: Iterable[Team], settings: Settings) -> Iterator[CheckResult]:
    """Teams whose dead letters may not reach any person."""
    unheard = list(lint_handlers(found, told=settings.dead_letters.tell is not None or bool(settings.notify)))
    for code, (what, remedy) in _UNHEARD.items():
        if named := [one.team_id for one in unheard if one.code == code]:
            yield _warning("System4", f"{', '.join(named[:_MANY])}: {what}", remedy)


def _owners(found: Iterable[Team], channels: Channels) -> Iterator[CheckResult]:
    """Owners in team files who can never be the sender of a message."""
    for member in (member for team in found for member in team.members if member.active):
        named = member.options.get("owners")
        for owner in named if isinstance(named, list) else ():
            if why := _no_owner(str(owner), channels):
                remedy = "correct `owners` in the team file: until then that person gets no tools"
                yield _warning("owners", f"{member.system_id}: {owner!r} is nobody: {why}", remedy)


def _no_owner(named: str, channels: Channels) -> str | None:
    channel, _, sender = named.partition(":")
    if not sender:
        return "write a channel and a sender, such as telegram:5488"
    return None if channel in channels else f"there is no channel {channel!r}{offer(channel, list(channels))}"


def _rule_problems(rules: Iterable[Rule], teams: Teams, channels: Channels) -> Iterator[str]:
    for rule in rules:
        for problem in check_rule(rule, teams, channels):
            yield f"rule {rule.name!r} of {rule.team_id}: {problem.message}"


def _engines_missing(used: Iterator[str]) -> list[str]:
    installed = {entry.name for entry in plug_ins(ENGINES)}
    return [
        f"the engine {name!r} is not installed; there are {', '.join(sorted(installed))}"
        for name in sorted({*used} - installed)
    ]


def _refused_today(stood: DayTotals) -> Iterator[CheckResult]:
    if stood.refused:
        remedy = "raise the limit in [spending], or wait for the next day (UTC)"
        yield _warning("refused today", f"{stood.refused} calls prevented today by a daily limit", remedy)
    if stood.senders_refused:
        detail = f"{stood.senders_refused} calls prevented today by limits per sender"
        remedy = (
            "see who writes so much: switchboard messages list; or raise the limits per sender in [classify] and [turn]"
        )
        yield _warning("senders refused today", detail, remedy)


async def _maintenance(database: Database, _: Settings) -> list[CheckResult]:
    """Workers' tasks whose last run failed; each runs again when it is due."""
    remedy = "look in the log of the workers for `maintenance failed`"
    return [
        _warning("maintenance", f"{one.name} failed at {one.at:%Y-%m-%d %H:%M} UTC: {one.error}", remedy)
        for one in await schedule.failed(database)
    ]


async def _classifying(database: Database, settings: Settings) -> list[CheckResult]:
    """Teams that would ask a model but cannot, daily caps, models in cooldown."""
    found = []
    async with teams.open_rules(database) as stored:
        asking = [team.team_id for team in stored.teams if team.classify]
    if asking and not settings.classify.models:
        detail = f"{', '.join(asking[:_MANY])}: these teams use a model, but none is configured"
        found.append(_warning("classification", detail, "name models in classify.models, see docs/models.md"))
    stood = await standing(settings, database)
    found += [_cap(cap) for cap in stood.caps if cap.reached]
    found += _refused_today(stood)
    found += [_paused(one) for one in await model_usage.refused_keys(database)]
    found += [_reads_less(one) for one in await model_usage.contexts(database)]
    return found + [_in_cooldown(one) for one in await model_usage.cooldowns(database)]


def _reads_less(learned: LearnedContext) -> CheckResult:
    remedy = "set `context` of the model to what its server has, or give the server a larger context"
    return _warning("model context", f"{learned.model} {reads_less(learned)}", remedy)


def _paused(refused: RefusedKey) -> CheckResult:
    detail = f"{refused.model}, since {refused.at:%Y-%m-%d %H:%M} UTC: its provider refuses its key: {refused.why}"
    remedy = f"renew the key and restart the workers; if it is valid again: switchboard models test {refused.model}"
    return _warning("model paused", detail, remedy)


def _in_cooldown(cooldown: Cooldown) -> CheckResult:
    detail = f"{cooldown.model}, until {cooldown.until:%H:%M:%S} UTC: {cooldown.why}"
    return _warning("model in cooldown", detail, "test it: switchboard models test")


def _cap(cap: CapView) -> CheckResult:
    name, unit = ("cost_per_day", "dollars") if cap.name == "cost_usd_per_day" else (cap.name, "tokens")
    newcomers = cap.name == "newcomer_tokens_per_day"
    group, whose = ("classify", " for senders who are new today") if newcomers else ("spending", "")
    detail = f"{cap.spent} {unit} of {cap.cap} are spent: no model is used{whose} until tomorrow (UTC)"
    return _warning(f"{group}.{name}", detail, "raise the limit, or see what used it up: switchboard models usage")


async def _mcp_servers(database: Database, settings: Settings) -> list[CheckResult]:
    """Start each once, here; workers may find them different elsewhere."""
    if not settings.servers:
        return []
    async with teams.open_rules(database) as stored:
        nobody = list(unknown_names(settings.servers, stored.teams))
    found = [_error("MCP servers", one, "correct it in [[mcp_servers]], and restart") for one in nobody[:_MANY]]
    looks = await asyncio.gather(*(looked_at(database, spec) for spec in settings.servers))
    found += [finding for look in looks for finding in _mcp_server(look)]
    if (size := sum(look.size for look in looks)) > MOST_SCHEMAS:
        detail = f"the tools of all together have {size} bytes of schemas, but a turn has room for {MOST_SCHEMAS}"
        remedy = "name those that a butler needs in its option tools, or set off = true"
        found.append(_warning("MCP servers", detail, remedy))
    return found


def _mcp_server(look: McpServerCheck) -> Iterator[CheckResult]:
    name = f"MCP server {look.server}"
    if look.problem is not None:
        remedy = "correct it in [[mcp_servers]]; butlers answer without its tools"
        yield _warning(name, look.problem, remedy)
        return
    yield _ok(name, f"{_many(look.tools, 'tool')}")
    if look.waiting:
        detail = f"new or changed, and not offered: {', '.join(look.waiting[:_MANY])}"
        remedy = f"switchboard mcp show {look.server}, then switchboard mcp accept {look.server}"
        yield _warning(name, detail, remedy)
    for tool, why in list(look.left_out.items())[:_MANY]:
        yield _warning(name, f"{tool} is not offered: {why}", "see docs/tools.md")


async def _searching(_: Database, settings: Settings) -> list[CheckResult]:
    """Search once, from here."""
    place = settings.search.place
    if place is None:
        return []
    try:
        await Searxng(place).search(_SEARCHED, 1)
    except SearchFailure as failure:
        remedy = "correct it, or [search] in the settings; butlers with web_search are told the same"
        return [_warning("search", f"{place.url}: {failure}", remedy)]
    return [_ok("search", f"{place.url} answers")]


async def _remote(database: Database, settings: Settings) -> list[CheckResult]:
    """Remote butlers without a sign of life in time, or quarantined."""
    found = await remote_agents.list_remote_agents(database, settings.liveness.patience)
    return [_silent(one) for one in found if one.liveness in {"stale", "quarantined"}][:_MANY]


def _silent(one: RemoteAgent) -> CheckResult:
    if one.by:
        remedy = f"switchboard agents release {one.system_id}, to return it to service"
        return _warning("remote butler", f"{one.system_id} is quarantined: {one.why}", remedy)
    seen = "never seen" if one.last_seen_at is None else f"last seen {one.last_seen_at:%Y-%m-%d %H:%M:%S %Z}"
    remedy = "start it and check that its heartbeats arrive; meanwhile no model chooses it"
    if one.away:
        return _error("remote butler", f"{one.system_id} is quarantined: {seen}", remedy)
    return _warning("remote butler", f"{one.system_id} is stale: {seen}", "it will be quarantined if it stays silent")


async def _connectors(database: Database, settings: Settings) -> list[CheckResult]:
    """Connectors that are silent or unhealthy, and replies that wait for one."""
    waiting = {(one.channel, one.endpoint): one for one in await outbox.waiting_for_connectors(database, _MANY)}
    paused = _paused_endpoints(settings)
    known = connectors.by_account(await connectors.list_connectors(database))
    heard = [one for one in known if f"{one.channel}/{one.endpoint}" not in paused]
    ill = [_connector(one, waiting.get((one.channel, one.endpoint))) for one in heard]
    never = waiting.keys() - {(one.channel, one.endpoint) for one in known}
    found = [finding for finding in ill if finding is not None][:_MANY]
    return found + [_no_connector(waiting[key]) for key in sorted(never)]


def _paused_endpoints(settings: Settings) -> set[str | None]:
    """The endpoints of accounts that are silent on purpose."""
    found = set()
    for file in filter(lambda file: pause_file(file).exists(), settings.channels_dir.glob("*.toml")):
        with suppress(ConfigurationError):
            found.add(declared(file, read_ours).endpoint)
    return found


def _away(one: Connector, account: str, missed: str) -> CheckResult:
    how = "stopped" if one.state == "stopped" else one.liveness
    detail = f"{account} is {how}: last seen {one.last_seen_at:%Y-%m-%d %H:%M:%S %Z}{missed}"
    return _warning("connector", detail, "start it, and see its log")


def _connector(one: Connector, waiting: WaitingReplies | None) -> CheckResult | None:
    """What is wrong with a connector; None also for one that has been away so long that nobody misses it."""
    account, said = f"{one.channel}/{one.endpoint}", one.error_message or f"since {one.since:%Y-%m-%d %H:%M:%S %Z}"
    missed = f"; {_many_replies(waiting.replies)} waiting" if waiting else ""
    if one.liveness != "online":
        gone = not waiting and datetime.now(UTC) - one.last_seen_at > _GONE
        return None if gone else _away(one, account, missed)
    if one.state != "healthy":
        return _warning("connector", f"{account} reports {one.state}: {said}{missed}", "see its log")
    if (one.lag_s or 0.0) <= _BEHIND_S:
        return None
    detail = f"{account} is {one.lag_s or 0:.0f} s behind its platform{missed}"
    return _warning("connector", detail, "see `switchboard channels show`, and the log of the server")


def _no_connector(waiting: WaitingReplies) -> CheckResult:
    since = f"since {waiting.since:%Y-%m-%d %H:%M:%S %Z}"
    account = f"{waiting.channel}/{waiting.endpoint}"
    detail = f"{account}: {_many_replies(waiting.replies)} waiting {since}, and no connector has ever reported there"
    return _warning("connector", detail, "start its connector; it should send heartbeats, see docs/connectors.md")


async def _processes(database: Database, _: Settings) -> list[CheckResult]:
    workers, servers = [await processes.list_processes(database, role) for role in ("worker", "server")]
    lost = "none is alive: messages are accepted, but not answered"
    return [
        _alive(workers, _error("workers", lost, "switchboard up, or switchboard work")),
        _alive(servers, _warning("servers", "none is registered", "switchboard up, or switchboard serve")),
    ]


async def _notify(database: Database, settings: Settings) -> list[CheckResult]:
    """Where operators are told, and where nobody can be."""
    found = await unusable(database, settings.notify)
    if good := [name for name in settings.notify if name not in found]:
        return [_ok("notify", f"operators are told at {good[0]}"), *map(_untold, found.items())]
    return [*map(_untold, found.items())]


def _untold(found: tuple[str, str]) -> CheckResult:
    address, why = found
    return _warning("notify", f"nobody is told at {address}: {why}", "switchboard doctor --notify sends a notice")


async def _notified(database: Database, settings: Settings) -> list[CheckResult]:
    """Send a notice to each address; a worker and the connector of the account deliver it."""
    if not settings.notify:
        remedy = f'name a chat in {FILE_NAME}: notify = ["telegram/bot:123456/41"], see docs/operations.md'
        return [_error("notice", "there is no address of operators", remedy)]
    notifier = Notifier(database)
    book = await RuleBook.open(database, notifier)
    notices = OperatorNotices(database, notifier, lambda: book.rules.index, settings.notify)
    return [_notice(address, await notices.test(address)) for address in settings.notify]


def _notice(address: str, made: UUID | str) -> CheckResult:
    if isinstance(made, str):
        return _error("notice", f"none was sent to {address}", made)
    return _ok("notice", f"one is on its way to {address}; switchboard explain {made}")


async def _calls(database: Database, settings: Settings) -> list[CheckResult]:
    """The checks of a worker before it starts.

    A running worker has passed all of them, perhaps in another environment.
    """
    workers = await processes.list_processes(database, "worker")
    problems = [("webhooks", problem) for problem in _webhook_problems(settings)]
    problems += [("butlers", problem) for problem in await _butler_problems(database, settings)]
    if any(worker.alive for worker in workers):
        remedy = "this is how it looks from here; check it on the machines of the workers"
        return [_warning(name, problem, remedy) for name, problem in problems[:_MANY]]
    remedy = "correct it: without it workers do not start, or messages become dead letters"
    return [_error(name, problem, remedy) for name, problem in problems[:_MANY]]


def _webhook_problems(settings: Settings) -> list[str]:
    from switchboard.app.ops.calls import check_webhooks

    try:
        check_webhooks(settings)
    except ConfigurationError as error:
        return [error.message]
    return []


async def _active_members(database: Database) -> list[Member]:
    async with teams.open_rules(database) as stored:
        return [member for team in stored.teams for member in team.members if member.active]


async def _butler_problems(database: Database, settings: Settings) -> list[str]:
    """Wrong options of active members, and secrets and programs missing on this machine."""
    seed = _seed(settings)
    files = {} if isinstance(seed, str) or seed is None else seed.files
    engines = load_engines(engine_context(settings, database))
    members = await _active_members(database)
    problems = [(member, option_problems(engines, [member], files)) for member in members]
    found = [problem for _, some in problems for problem in some]
    lacking = ((member, _lacking(engines.get(member.engine), member)) for member, some in problems if not some)
    return found + [blamed(what, member, files) for member, what in lacking if what]


def _lacking(engine: object, member: Member) -> str | None:
    return engine.lacking(member) if isinstance(engine, ChecksMachine) else None


def _alive(registered: Sequence[RunningProcess], none: CheckResult) -> CheckResult:
    """The number of live processes, and their releases: during an upgrade there are several."""
    alive = [process for process in registered if process.alive]
    releases = ", ".join(sorted({process.version for process in alive}))
    return _ok(none.name, f"{len(alive)} alive ({releases})") if alive else none


async def _books(database: Database, _: Settings) -> list[CheckResult]:
    """The last 24 hours, everything open, and one past day in rotation."""
    checkup = await check_books(database)
    found = await _findings(database, checkup.recent, "in 24 hours")
    if checkup.past is not None:
        found += await _findings(database, checkup.past.books, f"on {checkup.past.day}")
    remedy = "switchboard doctor --full, to see what contradicts itself"
    return found + [_error(f"books of {day}", "they do not balance", remedy) for day in checkup.unbalanced]


async def _all_books(told: Told, database: Database, _: Settings) -> list[CheckResult]:
    books = await audit_books(database, told=lambda checked: told(_of_day(checked)))
    return await _findings(database, books, "in all")


def _of_day(checked: DayBooks) -> str:
    books = checked.books
    wrong = [*(["they do not balance"] if not books.balanced else []), *books.problems]
    return f"books of {checked.day}: {_many(books.messages.accepted, 'message')}, {wrong[0] if wrong else 'good'}"


async def _balancing(database: Database, _: Settings) -> list[CheckResult]:
    kept = await kept_books(database)
    if not kept.stale:
        return []
    since = "never" if kept.at is None else f"last at {kept.at:%Y-%m-%d %H:%M:%S %Z}"
    return [_warning("balance", f"no worker balances the books: {since}", "see whether a worker is running")]


async def _findings(database: Database, books: Books, when: str) -> list[CheckResult]:
    # `_waiting` reports paused lanes: they wait for a person, and nothing is wrong with the books.
    paused = await lanes.paused_lanes(database, _PAUSED)
    problems = [p for p in books.problems if not ("paused" in p and any(key in p for key in paused))]
    found = [_balanced("messages", books.messages, when), _balanced("targets", books.targets, when)]
    remedy = "keep a backup (switchboard db backup), then report this with the output of `switchboard explain ID`"
    return found + [_error("books", problem, remedy) for problem in problems[:_MANY]]


def _balanced(what: str, balance: Balance, when: str) -> CheckResult:
    b = balance
    names: tuple[str, ...] = ("in_flight", "answered", "declined", "dead", "cancelled", "held")
    names += ("history",) if b.history else ()
    became = " + ".join(f"{getattr(b, name)} {name.replace('_', ' ')}" for name in names)
    if b.difference == 0:
        return _ok(f"books: {what}", f"{b.accepted} accepted = {became}, {when}")
    remedy = "restore an earlier backup, or report this: nothing must ever be missing"
    return _error(f"books: {what}", f"{b.accepted} accepted {when}, but {became}: {b.difference:+d}", remedy)


async def _waiting(database: Database, _: Settings) -> list[CheckResult]:
    """Work that waits for a person: not a fault of the installation, but it should be visible."""
    found = [
        _warning("paused lane", lane, f"switchboard lanes resume '{lane}'")
        for lane in await lanes.paused_lanes(database, _MANY)
    ]
    for state, count in (await outbox.count_unsent(database)).items():
        remedy = f"switchboard outbox list --state {state}, then resend what should be sent again"
        found.append(_warning(f"{state} replies", f"{_many_replies(count)} {_UNSENT[state]}", remedy))
    if asked := (await approvals.count(database)).approvals:
        found.append(_warning("approvals", f"{asked} to be decided", "switchboard approvals list"))
    if pending := await dead_letters.count_pending(database):
        found.append(_warning("dead letters", f"{pending} to be handled", "switchboard dlq list"))
    return found

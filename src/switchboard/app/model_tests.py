"""Every model of the settings asked for real: whether it can be reached, lets us in, and calls the tool.

Called by `switchboard models test`, on the machine and in the environment in which it is typed: it works while no
server runs, for with a missing key none starts. The question is tiny and always the same, the sessions are those of a
worker, and what they cost goes to the account of the day. Command lines call our tool at the doors, so for them the
server must run. Settings enter; a `Tried` per model leaves. Next: `agents/sessions/dispatch.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

import asyncpg

from switchboard.agents.sessions.account import DayAccount, DayBook
from switchboard.agents.sessions.bridge import carried_out, unfit
from switchboard.agents.sessions.build import Sessions, flaw
from switchboard.agents.sessions.dispatch import Attempt, Checks, Dispatcher, Limits
from switchboard.agents.sessions.port import SessionTask
from switchboard.agents.sessions.spec import CLI_KINDS
from switchboard.app.backup import existing_database
from switchboard.app.classifier import StoredDay
from switchboard.app.settings import ModelSettings, Settings
from switchboard.core.pipeline.prompt import Asked, route_tool_schema, routing_prompt
from switchboard.core.pipeline.transcript import Transcript
from switchboard.core.pipeline.verdict import parse_calls
from switchboard.core.policy.budget import Cap
from switchboard.domain.errors import NotFound, SwitchboardError
from switchboard.domain.pipeline import Candidate
from switchboard.store import classification
from switchboard.store.checkup import schema_facts
from switchboard.store.classification import SESSION_PREFIX, NewSession
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.migrate import migrations

MEANT: Final = "System1/weather"
_CANDIDATES: Final = (
    Candidate(MEANT, "Weather: forecasts, rain, wind and storms", ("forecast",)),
    Candidate("System1/bakery", "Bread and cakes: orders and opening hours", ("orders",)),
)
_QUESTION: Final = Asked("Will it rain tomorrow?", "cli", "models test")
_TEAM: Final = "models test"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one model. `outcome` is `answered` or what failed; `remedy` what to do about it; micro-dollars."""

    name: str
    kind: str
    model: str
    ok: bool
    outcome: str
    detail: str
    remedy: str = ""
    ms: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where sessions find what they need: our MCP server, and the database (None: `why` it cannot be reached)."""

    mcp_url: str
    database: Database | None
    why: str = ""


@asynccontextmanager
async def open_place(settings: Settings, mcp_url: str) -> AsyncIterator[Place]:
    """The doors at `mcp_url`, and their database if it is to be had."""
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(existing_database(settings))
            at = (await schema_facts(database)).migration
        except (SwitchboardError, OSError, asyncpg.PostgresError) as error:
            place = Place(mcp_url, None, f"its database is not reached ({error})")
        else:
            fits = at == migrations()[-1].number
            place = Place(mcp_url, database) if fits else Place(mcp_url, None, f"its database is at schema {at}")
        yield place


def chosen(settings: Settings, name: str | None) -> Sequence[ModelSettings]:
    """All models of the settings, or the one of that name. Raises NotFound."""
    found = [model for model in settings.models if name in {None, model.name}]
    if name is not None and not found:
        known = ", ".join(model.name for model in settings.models) or "none"
        raise NotFound(f"there is no model {name!r} in the settings; there are: {known}")
    return found


async def try_model(settings: Settings, model: ModelSettings, place: Place) -> Tried:
    """Ask it once. Raises nothing that is the model's: that it fails is an outcome."""
    lacks = flaw(model.spec)
    if lacks is not None:
        return _tried(model, "settings", lacks, _REMEDY_OF_SETTINGS)
    if model.kind in CLI_KINDS and place.database is None:
        return _tried(model, "unavailable", f"a command line needs the running switchboard: {place.why}", _START)
    sessions = Sessions([model.spec])
    try:
        limits = Limits(Cap(settings.classify.tokens_per_message), settings.classify.day_cap)
        dispatcher = Dispatcher(sessions.models, _day(place), limits)
        async with _task(model, place) as task:
            report = await dispatcher.run(task, checks=Checks(lambda transcript: unfit(transcript, _CANDIDATES)))
    except SwitchboardError as error:
        return _tried(model, "unavailable", error.message, _START)
    finally:
        await sessions.aclose()
    return _told(model, report.attempts[-1], report.transcript, place)


def _day(place: Place) -> DayAccount:
    """The account of all; without a database one of our own, so that a model can be tried before there is one."""
    return DayBook(lambda: datetime.now(UTC).date()) if place.database is None else StoredDay(place.database)


@asynccontextmanager
async def _task(model: ModelSettings, place: Place) -> AsyncIterator[SessionTask]:
    """The question; for a command line with a session of its own, which opens our tool and is over afterwards."""
    request_id, secret = new_uuid7(), SESSION_PREFIX + token_urlsafe(32)
    prompt, tool = routing_prompt(_CANDIDATES, _QUESTION, team=_TEAM), route_tool_schema(_CANDIDATES)
    if place.database is None or model.kind not in CLI_KINDS:
        yield SessionTask(prompt, tool, str(request_id), max_tokens=model.max_tokens, deadline=model.timeout)
        return
    new = NewSession("", request_id, _TEAM, _CANDIDATES, timedelta(seconds=model.timeout + 60))
    session_id = await classification.open_session(place.database, new, sha256(secret.encode()).digest())
    try:
        yield SessionTask(prompt, tool, str(request_id), secret, place.mcp_url, model.max_tokens, model.timeout)
    finally:
        await classification.end_session(place.database, session_id)


def _told(model: ModelSettings, attempt: Attempt, transcript: Transcript | None, place: Place) -> Tried:
    ok = attempt.outcome == "answered"
    named = _named(transcript) if ok else ()
    detail = attempt.message
    if ok:
        detail = f"chose {', '.join(named)}" + ("" if named == (MEANT,) else f", where {MEANT} was meant")
    return Tried(
        *(model.name, model.kind, model.model, ok, attempt.outcome, detail),
        remedy="" if ok else _remedy(model, attempt, place),
        ms=attempt.ms,
        tokens_in=attempt.input_tokens,
        tokens_out=attempt.output_tokens,
        cost=attempt.micros,
    )


def _named(transcript: Transcript | None) -> tuple[str, ...]:
    if transcript is None:
        return ()
    verdict = parse_calls(carried_out(transcript), _CANDIDATES)
    return tuple(route.butler for route in verdict.routed)


def _tried(model: ModelSettings, outcome: str, detail: str, remedy: str) -> Tried:
    return Tried(model.name, model.kind, model.model, ok=False, outcome=outcome, detail=detail, remedy=remedy)


_REMEDY_OF_SETTINGS: Final = "mend it in [[models]], or in the environment of this command; a worker has its own"
_START: Final = "start it: switchboard up"


def _remedy(model: ModelSettings, attempt: Attempt, place: Place) -> str:
    """What to do about a failure."""
    where = model.base_url or "the provider"
    by_cli = model.kind in CLI_KINDS
    remedies = {
        "auth": f"{where} refuses the key ({model.api_key_env or model.api_key_file or 'there is none'}): renew it",
        "rate_limited": "wait, or have the provider raise the limit",
        "timeout": f"raise its timeout ({model.timeout:g} s), or take a smaller model",
        "refused": "the model will not answer even this: take another",
        "garbage": 'raise max_tokens if it was cut off; a server of your own may need profile = "local"',
        "context_too_long": "start the server with a longer context, see docs/models.md",
        "unfit": 'it did not call the tool as asked: take another model; for a server of your own profile = "local"',
        "budget": "a cap in [classify] is reached: raise it, or wait for the next day (UTC)",
        "unavailable": f"is {where} running, and is that its address? see base_url",
        "defect": f"look at model and base_url: {where} does not know this model, or this path",
    }
    if by_cli and attempt.outcome == "unavailable" and "our MCP server" in attempt.message:
        return f"it calls our tool at {place.mcp_url}: is the server running (switchboard up)? see classify.mcp_url"
    if by_cli and attempt.outcome == "defect":
        return "look at the program and its version: docs/models.md names those that were tried"
    return remedies.get(attempt.outcome, "")

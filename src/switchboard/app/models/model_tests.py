"""Tests every configured model for real: whether it is reachable, accepts us, and calls the tool.

Called by `switchboard models test`, on the machine and in the environment of the user: it works without a server, since
none starts with a missing key. The question is tiny and always the same, the sessions are those of a worker, and their
cost counts as spending of the day. Command lines that classify call our tool at the MCP server, so for them the server
must run. Settings enter; a `Tried` per model leaves. Next: `llm/dispatch.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from time import monotonic
from typing import Final

import asyncpg
from msgspec import Struct, structs

from switchboard.app.database import existing_database
from switchboard.app.models.dispatcher import StoredSpending
from switchboard.app.models.process import butlers_of
from switchboard.app.settings import Settings
from switchboard.core.classification.judge import accept_pending_calls, parse_calls, unfit
from switchboard.core.classification.prompt import AskedMessage, route_tool, routing_prompt
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import Menu
from switchboard.core.planning.prompts import refused_schema, route_request, without_schema
from switchboard.core.policy.budget import Cap
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.classification import Candidate
from switchboard.domain.errors import NotFound, SwitchboardError
from switchboard.domain.llm import (
    ChatMessage,
    ModelAttempt,
    OfferedTool,
    Reply,
    Report,
    Request,
    ToolCall,
    ToolResult,
    ToolServer,
)
from switchboard.domain.routing import Team
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.context import CONTEXT_REMEDY, SHORT, kept_sentinel, lost_head, sentinel
from switchboard.llm.dispatch import Dispatcher, DispatchLimits, RequestTerms
from switchboard.llm.pace import speed_of, timeout_for
from switchboard.llm.parallel import COUNTING, measured_slots, told_slots
from switchboard.llm.spec import API_KINDS, CLI_KINDS, RUNNERS, Calls, ModelSpec, ModelTraits
from switchboard.llm.spending import DayBook, Spending
from switchboard.llm.web import open_client
from switchboard.store.checkup import schema_facts
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.migrate import migrations
from switchboard.store.models import classification
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import SESSION_PREFIX, NewSession
from switchboard.store.rules.teams import load_with_rules_of

MEANT: Final = "System1/weather"
_CANDIDATES: Final = (
    Candidate(MEANT, "Weather: forecasts, rain, wind and storms", ("forecast",)),
    Candidate("System1/bakery", "Bread and cakes: orders and opening hours", ("orders",)),
)
_QUESTION: Final = AskedMessage("Will it rain tomorrow?", "cli", "models test")
_TEAM: Final = "models test"
_LOOK_UP: Final = OfferedTool(
    "look_up_number",
    "Looks up the secret number of a person.",
    {
        "type": "object",
        "properties": {"person": {"type": "string", "description": "The first name of the person"}},
        "required": ["person"],
        "additionalProperties": False,
    },
)
_SECRET: Final = Request(
    (ChatMessage("user", "What is the secret number of Ada?"),),
    "You answer questions about secret numbers. You do not know them: look them up with your tool, and never guess.",
    (_LOOK_UP,),
)
_ANSWER: Final = PlanLimits().router_tokens
_FORM: Final = route_request(
    "What is the secret number of Ada?",
    Menu((FrozenTool(_LOOK_UP.name, _LOOK_UP.description, _LOOK_UP.parameters, "idempotent"),)),
    _ANSWER,
    4_096,
).request
"""What a router of plans is asked, with the schema of its form."""


class Tried(ModelTraits, frozen=True):
    """The result for one model. `outcome` is `answered` or the failure; `remedy` says what to do about it."""

    name: str
    kind: str
    model: str
    ok: bool
    outcome: str
    detail: str
    remedy: str = ""
    duration_ms: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


class ModelTestPlace(Struct, frozen=True):
    """What sessions need: our MCP server, and the database (None: `why` it is unavailable)."""

    mcp_url: str
    database: Database | None
    why: str = ""


NOWHERE: Final = ModelTestPlace("", None, "no server runs yet")
"""For models that are tested before there is a server."""


@asynccontextmanager
async def open_place(settings: Settings, mcp_url: str) -> AsyncIterator[ModelTestPlace]:
    """The server at `mcp_url`, and its database if available."""
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(existing_database(settings))
            at = (await schema_facts(database)).migration
        except (SwitchboardError, OSError, asyncpg.PostgresError) as error:
            place = ModelTestPlace(mcp_url, None, f"its database cannot be reached ({error})")
        else:
            fits = at == migrations()[-1].number
            place = (
                ModelTestPlace(mcp_url, database)
                if fits
                else ModelTestPlace(mcp_url, None, f"its database is at schema {at}")
            )
        yield place


async def butlers_at(settings: Settings, place: ModelTestPlace, teams: Iterable[Team]) -> Mapping[str, Sequence[str]]:
    """Which butlers may ask each model in their turns, according to these teams and, if available, the database.

    Planning butlers are excluded: a router fills in a form, and specialists need no tools.
    """
    stored = () if place.database is None else (await load_with_rules_of(place.database, ())).teams
    members = (member for team in (*teams, *stored) for member in team.members)
    return butlers_of([member for member in members if member.engine == "model"], settings)


def choose_models(settings: Settings, name: str | None) -> Sequence[ModelSpec]:
    """All configured models, or the one of that name. Raises NotFound."""
    found = [model for model in settings.models if name in {None, model.name}]
    if name is not None and not found:
        known = ", ".join(model.name for model in settings.models)
        there = f"; there are: {known}" if known else ", nor any other"
        raise NotFound(f"there is no model {name!r} in the settings{there}")
    return found


async def try_use(settings: Settings, model: ModelSpec, place: ModelTestPlace, *, in_turns: bool) -> Tried:
    """Ask what it is used for: to choose a butler, to call a tool as in a turn, or one after the other; and then how
    it fills in a form, as a router of plans must.
    """
    tried = await with_habits(settings, model, place, await _try_use(settings, model, place, in_turns=in_turns))
    return structs.replace(tried, remedy=tried.remedy or _to_set(model, tried))


async def _try_use(settings: Settings, model: ModelSpec, place: ModelTestPlace, *, in_turns: bool) -> Tried:
    if not in_turns:
        return await try_model(settings, model, place)
    classifies = model.name in settings.classify.models
    chosen = await try_model(settings, model, place) if classifies else None
    if chosen is not None and not chosen.ok:
        return chosen
    called = await try_tools(settings, model, place)
    return called if chosen is None else _combine_tests(chosen, called)


def _combine_tests(chosen: Tried, called: Tried) -> Tried:
    return structs.replace(_with_cost_of(called, chosen), detail=f"{chosen.detail}; {called.detail}")


def _with_cost_of(tried: Tried, other: Tried) -> Tried:
    """The same with the cost of both."""
    return structs.replace(
        tried,
        duration_ms=tried.duration_ms + other.duration_ms,
        tokens_in=tried.tokens_in + other.tokens_in,
        tokens_out=tried.tokens_out + other.tokens_out,
        cost_usd=tried.cost_usd + other.cost_usd,
    )


async def try_model(settings: Settings, model: ModelSpec, place: ModelTestPlace) -> Tried:
    """Ask it once. A failure of the model is an outcome, not an exception."""
    lacks = flaw(model)
    if lacks is not None:
        return _failed_test(model, "settings", lacks, _REMEDY_OF_SETTINGS)
    if model.kind in CLI_KINDS and place.database is None:
        return _failed_test(
            model, "unavailable", f"a command-line model needs the running switchboard: {place.why}", _START
        )
    try:
        async with _make_request(model, place) as request:
            report = await _ask_model(settings, model, place, request, _find_fault)
    except SwitchboardError as error:
        return _failed_test(model, "unavailable", error.message, _START)
    tried = _describe_attempt(model, report.attempts[-1], report.reply, place)
    return await _with_context(settings, model, place, tried)


async def try_tools(settings: Settings, model: ModelSpec, place: ModelTestPlace) -> Tried:
    """Test with a real tool call: whether the model calls tools on its own, as a butler's model must.

    One that does not, or writes its calls as text, is asked for them as JSON; and one that is set so, without, since
    its server may have learned it.
    """
    lacks = flaw(model)
    if lacks is not None:
        return _failed_test(model, "settings", lacks, _REMEDY_OF_SETTINGS)
    tried, as_text = await _try_call(settings, _with_patience(model), place)
    if (as_text or tried.outcome in _UNCALLED) and model.kind == "openai" and model.calls == "native":
        formed, _ = await _try_call(settings, _with_patience(model, "schema"), place)
        tried = structs.replace(_with_cost_of(tried, formed), calls="schema" if formed.ok else tried.calls)
    if model.kind == "openai" and model.calls == "schema":
        tried = await _with_native(settings, model, place, tried)
    if tried.calls is not None and not tried.ok:
        tried = structs.replace(tried, remedy=_CALLS_AS_JSON if tried.calls == "schema" else _CALLS_NATIVELY)
    return await _with_context(settings, model, place, tried)


async def _with_native(settings: Settings, model: ModelSpec, place: ModelTestPlace, tried: Tried) -> Tried:
    """The same with whether it calls tools natively, too, or only so."""
    native, as_text = await _try_call(settings, _with_patience(model, "native"), place)
    tried = _with_cost_of(tried, native)
    if not native.ok or as_text:
        return tried
    return structs.replace(tried, detail=_EITHER) if tried.ok else structs.replace(tried, calls="native")


async def try_setup(settings: Settings, model: ModelSpec, place: ModelTestPlace) -> Tried:
    """The same with settings that are still to be written: `calls` may be as the model needs it."""
    tried = await try_tools(settings, model, place)
    if tried.calls != model.calls and tried.calls is not None:
        model = structs.replace(model, calls=tried.calls)
        if not tried.ok:
            tried = structs.replace(tried, ok=True, outcome="answered", detail=_CALLED, remedy="")
            tried = await _with_context(settings, model, place, tried)
    return await with_habits(settings, model, place, tried)


def _with_patience(model: ModelSpec, calls: Calls | None = None) -> ModelSpec:
    """A local model with more time than it has in its settings: one that is slow still works."""
    timeout = model.timeout * (_PATIENCE if model.profile == "local" else 1)
    return structs.replace(model, timeout=timeout, calls=calls or model.calls)


async def _try_call(settings: Settings, model: ModelSpec, place: ModelTestPlace) -> tuple[Tried, bool]:
    """Ask for one call; and whether it was made as text."""
    made: list[ToolCall] = []

    async def look_up(call: ToolCall) -> ToolResult:
        made.append(call)
        return ToolResult("", "4711")

    async def wrong(reply: Reply) -> str | None:
        return await _calls_no_tool(replace(reply, calls=(*reply.calls, *made)))

    carrying = (lambda: look_up) if model.kind in RUNNERS else None
    request = replace(_SECRET, max_tokens=model.max_tokens, deadline=model.timeout, carrying=carrying)
    report = await _ask_model(settings, model, place, request, wrong)
    tried = _describe_attempt(model, report.attempts[-1], None, place)
    if tried.ok:
        tried = structs.replace(tried, detail=_CALLED, calls=model.calls)
    return tried, report.reply is not None and any(call.as_text for call in report.reply.calls)


async def with_habits(settings: Settings, model: ModelSpec, place: ModelTestPlace, tried: Tried) -> Tried:
    """The same with what a working model reveals: whether it accepts schemas, and whether it thinks."""
    if not tried.ok or model.kind not in API_KINDS:
        return tried
    asked = structs.replace(model, schemas=True)
    request = replace(_FORM, deadline=model.timeout, whole=False)
    report = await _ask_model(settings, asked, place, request)
    tried = _with_cost_of_report(tried, report)
    refused = report.reply is None and bool(refused_schema(report))
    if refused:
        report = await _ask_model(settings, asked, place, without_schema(request))
        tried = _with_cost_of_report(tried, report)
    if report.reply is None:
        return structs.replace(tried, schemas=False if refused else None)
    cut = report.reply.stop_reason == "length" and model.max_tokens >= _ANSWER
    return structs.replace(tried, schemas=not refused, thinks=report.reply.thought or cut)


def _to_set(model: ModelSpec, tried: Tried) -> str:
    """What the settings should say about a model and do not; a single answer without thinking proves nothing."""
    found: dict[str, object] = {} if tried.schemas in {None, model.schemas} else {"schemas": tried.schemas}
    found |= {"thinks": True} if tried.thinks and not model.thinks else {}
    why = ", and plans need not find it out" if found else ""
    found |= {"calls": tried.calls} if tried.calls not in {None, model.calls} else {}
    found |= {"timeout": tried.timeout} if tried.timeout is not None else {}
    told = " and ".join(f"{name} = {json.dumps(value)}" for name, value in found.items())
    return f"set {told} in its [[models]]{why}" if told else ""


def _with_cost_of_report(tried: Tried, report: Report) -> Tried:
    """The same with the cost of these attempts."""
    for one in report.attempts:
        tried = structs.replace(
            tried,
            duration_ms=tried.duration_ms + one.ms,
            tokens_in=tried.tokens_in + one.usage.input_tokens,
            tokens_out=tried.tokens_out + one.usage.output_tokens,
            cost_usd=tried.cost_usd + one.micros / 1_000_000,
        )
    return tried


async def context_of(model: ModelSpec) -> int | None:
    """How many tokens the model can read; None: its server does not say."""
    async with aclosing(Sessions([model])) as sessions:
        return await sessions.contexts.of(model, 0) or None


async def _with_context(settings: Settings, model: ModelSpec, place: ModelTestPlace, tried: Tried) -> Tried:
    """The same, unless its server silently drops the head of long requests, as local ones do.

    An undecided test does not count against the model: the machine is too slow to read so much in time, or the model
    does not find the word in a short request either.
    """
    if not tried.ok or model.profile != "local":
        return tried
    async with aclosing(Sessions([model])) as sessions:
        context = await sessions.contexts.of(model)
    # A model that is far too slow need not be waited for in vain.
    slow = tried.duration_ms / 1000 * context > _HOPELESS * model.timeout * tried.tokens_in
    long = Report(None) if slow else await _asked_for_word(settings, model, place, context)
    found = None if long.reply is None else kept_sentinel(long.reply)
    if found:
        return _with_speed(tried, model, context, long)
    short = await _asked_for_word(settings, _with_patience(model), place, SHORT)
    if found is None or short.reply is None or not kept_sentinel(short.reply):
        return _with_speed(tried, model, context, short if found is None else long)
    return structs.replace(tried, ok=False, outcome="context_cut", detail=lost_head(context), remedy=CONTEXT_REMEDY)


async def _asked_for_word(settings: Settings, model: ModelSpec, place: ModelTestPlace, tokens: int) -> Report:
    """The answer to a request so long, with a word at its head; no server has read its beginning before."""
    request = sentinel(tokens)
    fresh = replace(request, system=f"{request.system} (Test {token_urlsafe(6)}.)", deadline=model.timeout)
    return await _ask_model(settings, model, place, fresh)


def _with_speed(tried: Tried, model: ModelSpec, context: int, report: Report) -> Tried:
    """The same with how fast the model has read, and how long it should be waited for."""
    speed = speed_of(report.attempts[-1])
    if speed is None:
        return tried
    timeout = timeout_for(context, speed)
    needed = timeout if timeout > model.timeout else None
    return structs.replace(tried, tokens_per_second=round(speed, 1), timeout=needed)


async def parallel_requests(settings: Settings, model: ModelSpec, place: ModelTestPlace) -> tuple[int, bool]:
    """How many requests a local server runs at once; and whether it says so itself. Otherwise it is measured."""
    async with open_client() as http:
        told = await told_slots(http, model.base_url or "")
    if told is not None:
        return told, True
    request = replace(COUNTING, deadline=model.timeout)
    alone = await _ask_model(settings, model, place, request)
    if alone.reply is None:
        return 1, False
    began = monotonic()
    both = await asyncio.gather(*(_ask_model(settings, model, place, request) for _ in range(2)))
    together = monotonic() - began
    if any(one.reply is None for one in both):
        return 1, False
    return measured_slots(alone.attempts[-1].ms / 1000, together), False


async def _ask_model(
    settings: Settings,
    model: ModelSpec,
    place: ModelTestPlace,
    request: Request,
    wrong: Callable[[Reply], Awaitable[str | None]] | None = None,
) -> Report:
    """The result of the question; `wrong` says what is wrong with a reply. A provider that answers accepts the key."""
    async with aclosing(Sessions([model])) as sessions:
        dispatcher = Dispatcher(sessions.models, _spending_for(place), DispatchLimits(settings.spending.cap))
        terms = RequestTerms(asker="models test", cap=Cap(settings.classify.tokens_per_message), unfit=wrong)
        report = await dispatcher.run(request, terms)
        if report.reply is not None and place.database is not None:
            await model_usage.trust_keys(place.database, model.name)
        return report


async def _find_fault(reply: Reply) -> str | None:
    return unfit(reply, _CANDIDATES)


async def _calls_no_tool(reply: Reply) -> str | None:
    """Any call of the tool for Ada will do, however she is written."""
    asked_for = (str(call.arguments.get("person")) for call in reply.calls if call.name == _LOOK_UP.name)
    return None if any("ada" in person.lower() for person in asked_for) else "it did not call the tool"


def _spending_for(place: ModelTestPlace) -> Spending:
    """The shared account; without a database our own, so that models can be tried before there is one."""
    return DayBook(lambda: datetime.now(UTC).date()) if place.database is None else StoredSpending(place.database)


@asynccontextmanager
async def _make_request(model: ModelSpec, place: ModelTestPlace) -> AsyncIterator[Request]:
    """The question; for a command-line program, with its own temporary session, which opens our tool."""
    request_id, secret = new_uuid7(), SESSION_PREFIX + token_urlsafe(32)
    prompt, tool = routing_prompt(_CANDIDATES, _QUESTION, team=_TEAM), route_tool(_CANDIDATES)
    request = Request(
        (ChatMessage("user", prompt.question),),
        prompt.instructions,
        (tool,),
        force=tool.name,
        max_tokens=model.max_tokens,
        deadline=model.timeout,
        key=str(request_id),
    )
    if place.database is None or model.kind not in CLI_KINDS:
        yield request
        return
    new = NewSession("", request_id, _TEAM, _CANDIDATES, timedelta(seconds=model.timeout + 60))
    session_id = await classification.open_session(place.database, new, sha256(secret.encode()).digest())
    try:
        yield replace(request, server=ToolServer(place.mcp_url, secret))
    finally:
        await classification.end_session(place.database, session_id)


def _describe_attempt(model: ModelSpec, attempt: ModelAttempt, reply: Reply | None, place: ModelTestPlace) -> Tried:
    ok = attempt.outcome == "answered"
    named = _names_in_reply(reply) if ok else ()
    detail = attempt.message
    if ok:
        detail = f"chose {', '.join(named)}" + ("" if named == (MEANT,) else f", where {MEANT} was meant")
    return Tried(
        *(model.name, model.kind, model.model, ok, attempt.outcome, detail),
        remedy="" if ok else _find_remedy(model, attempt, place),
        duration_ms=attempt.ms,
        tokens_in=attempt.usage.input_tokens,
        tokens_out=attempt.usage.output_tokens,
        cost_usd=attempt.micros / 1_000_000,
    )


def _names_in_reply(reply: Reply | None) -> tuple[str, ...]:
    if reply is None:
        return ()
    return tuple(part.butler for part in parse_calls(accept_pending_calls(reply), _CANDIDATES).routed)


def _failed_test(model: ModelSpec, outcome: str, detail: str, remedy: str) -> Tried:
    return Tried(model.name, model.kind, model.model, ok=False, outcome=outcome, detail=detail, remedy=remedy)


_PATIENCE: Final = 5
_HOPELESS: Final = 5
"""A model reads faster than a short request suggests, but hardly so many times."""
_CALLED: Final = "calls tools"
_EITHER: Final = "calls tools; natively, too"
_CALLS_NATIVELY: Final = 'it calls tools only natively: set calls = "native" in its [[models]]'
_CALLS_AS_JSON: Final = 'it calls tools as JSON: set calls = "schema" in its [[models]]'
_UNCALLED: Final = frozenset({"unfit", "garbage"})
"""Outcomes of a model that answers, and calls nothing."""
_REMEDY_OF_SETTINGS: Final = "fix it in [[models]], or in the environment of this command; a worker has its own"
_START: Final = "start it: switchboard up"


def _remedy_of_program(attempt: ModelAttempt, place: ModelTestPlace) -> str | None:
    if attempt.outcome == "unavailable" and "Switchboard's MCP server" in attempt.message:
        return f"it calls Switchboard's tool at {place.mcp_url}: is the server running? see classify.mcp_url"
    if attempt.outcome == "defect" and not attempt.message.startswith("status 403"):
        return "check the program and its version: docs/models.md lists the tested ones"
    return None


def _find_remedy(model: ModelSpec, attempt: ModelAttempt, place: ModelTestPlace) -> str:
    """What to do about a failure."""
    where = model.base_url or "the provider"
    if model.profile == "local" and model.schemas and refused_schema(Report(None, (attempt,))):
        return f"{where} refuses the JSON Schema of the answer: set schemas = false in its [[models]]"
    remedies = {
        "auth": f"{where} rejects {_key_of(model)}",
        "rate_limited": "wait, or ask the provider to raise the limit",
        "timeout": f"raise its timeout ({model.timeout:g} s), or use a smaller model",
        "refused": "the model does not answer even this: use another",
        "garbage": f"raise max_tokens ({model.max_tokens:,}) if it was cut off{_or_local(model)}",
        "context_too_long": "start the server with a longer context, see docs/models.md",
        "unfit": f"use another model{_or_local(model)}",
        "budget": "a limit in [spending] or [classify] is reached: raise it, or wait for the next day (UTC)",
        "unavailable": f"is {where} running at that address? see base_url",
        "defect": f"check model and base_url: {where} does not know this model or this path",
    }
    if model.kind in CLI_KINDS and (remedy := _remedy_of_program(attempt, place)):
        return remedy
    if attempt.message.startswith("status 403"):
        return f"{where} refuses the request: see what its key, and a firewall before it, permit"
    return remedies.get(attempt.outcome, "")


def _or_local(model: ModelSpec) -> str:
    """The profile for local servers, if it may help and is not set."""
    if model.kind != "openai" or model.base_url is None or model.profile is not None:
        return ""
    return '; for a local server, set profile = "local"'


def _key_of(model: ModelSpec) -> str:
    if model.login:
        return "the login of the user that runs this: log in again"
    key = model.api_key_env or model.api_key_file
    return f"the key in {key}: renew it" if key else "calls without a key: set api_key_env or api_key_file"

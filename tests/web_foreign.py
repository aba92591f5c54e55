"""A server at which every field that others fill says one and the same thing, and the pages that show it.

`test_foreign_fields.py` writes what browsers might run into all of them. Each goes the way that it goes in earnest:
messages are ingested and answered by engines, replies fail, butlers ask and remember, operators give reasons.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx2

from switchboard.agents.trio.port import Planned, PlanQuestion
from switchboard.core.turns.entries import entry_of
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import Usage
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId, Team
from switchboard.modules.schedule import ledger
from switchboard.modules.schedule.ledger import FiringEnd, NewTask
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import ACCOUNT
from switchboard.modules.schedule.planning import TaskTiming, first_due
from switchboard.ports.engine import Act, Answer, Ask, EngineFailure, Journal, ModelUsage, Turn, TurnResult
from switchboard.ports.facts import OwnWords, Reader
from switchboard.ports.gates import Gate
from switchboard.ports.history import Entry
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import aliases, consolidation, facts
from switchboard.store.memory.aliases import Naming
from switchboard.store.memory.facts import NewFact
from switchboard.store.models import usage
from switchboard.store.models.module_quarantine import StoredQuarantine
from switchboard.store.modules.opening import ModuleRooms
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.scripted_llm import Reply, ScriptedLlm
from tests.asking import spec
from tests.doors import an_origin
from tests.hands import at_work
from tests.lab import envelope_json
from tests.routing import butler, rule, team_of
from tests.servers import NO_TLS, Opened, open_server
from tests.trios import Given, plan, tool, trio_engine, writes
from tests.turning import Asked, Noting
from tests.waiting import eventually
from tests.web_house import MODULES, link_of, mail_of, submit_mail, write_accounts

RUNS: Final = "window.canary=1"
_BREAKS: Final = ("", '"', "'", '">', "'>", "</title>", "</bdi></span></a>", "--></style></textarea>")
ELEMENTS: Final = (
    f"<script>{RUNS}</script>",
    f"<img src=x onerror={RUNS}>",
    f"<svg onload={RUNS}>",
    f"<svg><script>{RUNS}</script></svg>",
    f'<a href="javascript:{RUNS}">x</a>',
    f'<iframe srcdoc="<script>parent.{RUNS}</script>"></iframe>',
    f"<details open ontoggle={RUNS}>",
    f"<input autofocus onfocus={RUNS}>",
    f"<body onload={RUNS}>",
    '<base href="https://evil.example/">',
    '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    '<link rel="stylesheet" href="https://evil.example/x.css">',
    "<style>@import 'https://evil.example/x.css'</style>",
    '<form action="https://evil.example/"><button>x</button></form>',
    '<div hx-post="/ui/leave" hx-trigger="load"></div>',
    '<div hx-get="https://evil.example/" hx-trigger="load"></div>',
    f'<div hx-on:click="{RUNS}" hx-trigger="load"></div>',
    f'<div hx-vals=\'js:{{a:{RUNS}}}\' hx-get="/ui/" hx-trigger="load"></div>',
    '<div hx-sse:connect="/ui/events?evil"></div>',
    '<div data-hx-post="/ui/leave" data-hx-trigger="load"></div>',
    '<a hx-boost="true" href="/ui/leave">x</a>',
    f" onmouseover={RUNS} x=",
    f' autofocus onfocus="{RUNS}" x="',
    f"{{{{ {RUNS} }}}}{{% raw %}}${{{RUNS}}}",
    f"&lt;script&gt;{RUNS}&#60;/script&#62;",
)
PAYLOADS: Final = tuple(f"{start}{element}" for start, element in product(_BREAKS, ELEMENTS))
"""What browsers might run: each element, in each place in which it might begin."""

ECHO: Final = SystemId("System1/echo")
OTHER: Final = SystemId("System1/other")
_RULES: Final = (
    rule("System1/trio", channel="cli"),
    *(rule("System1/echo", channel=one) for one in ("telegram", "dashboard", "email", "api")),
)
_DOOR: Final = "telegram/bot:door"


@dataclass(frozen=True)
class ShownAt:
    """A page that shows it; with `fields`, one that a form answers with. `alone`: it shows nothing said before."""

    path: str
    fields: Mapping[str, str] | None = None
    alone: bool = False


_LISTED: Final = (
    "/ui/?now=1",
    "/ui/messages",
    "/ui/conversations",
    "/ui/approvals?state=all",
    "/ui/strangers",
    "/ui/dead-letters?state=all",
    "/ui/rules",
    "/ui/rules/versions",
    "/ui/butlers/modules",
    "/ui/tasks?state=paused",
    "/ui/memory",
    "/ui/models",
    "/ui/plans",
    "/ui/audit",
    "/ui/sessions",
    "/ui/chat",
)
LISTS: Final = (
    *map(ShownAt, _LISTED),
    ShownAt("/ui/memory/facts", {"words": "now"}),
    ShownAt("/ui/memory/runs", {}),
    ShownAt("/ui/memory/summaries", {}),
)
"""Pages with more of it in each round."""


_NEWEST: Final = ("/ui/connections", "/ui/connections/accounts/house", "/ui/doctor")
"""Pages that show what was said last."""
_CHATS: Final = ("call", "question", "question-answered")
"""Conversations in which something is asked."""
_HEARD: Final = """
insert into transcription (request_id, n, blob, model, language, state, text, error, host, seconds, ended_at)
select $1, n, '', 'm', 'en', case n when 0 then 'done' else 'failed' end, $2, $2, 'h', 1, now()
from generate_series(0, 1) n"""
_CLASSIFIED: Final = """
insert into classification
    (request_id, conversation, team_id, n, candidates, result, model, tokens_in, tokens_out, ms, error)
select $1, conversation, 'root', n, array[$2::text], jsonb_build_object('segment', $2::text), $2, 1, 1, 1,
       case n when 2 then $2 end
from message_inbox, generate_series(1, 2) n where request_id = $1"""
_RUN: Final = """
insert into consolidation_run (run, lane, system_id, person, first_position, last_position, episodes, model, tokens,
                               cost_usd, outcome, facts, ended_at)
select $1, lane_key('turn', $2, conversation_key($3)), $2, $4, 1, 1, 1, 'm', 1, 0, 'kept', 1, now()"""
_SUMMARY: Final = """
insert into summary (lane, position, summary_id, first_position, person, private, text, told)
select lane_key('turn', $1, conversation_key($2)), 1, $3, 1, $4, true, $5, true"""
_CHORE: Final = """
insert into chore (module, account, name, every, last_at, last_error)
values ('calendar', 'ann', $1, interval '5 minutes', now(), $2)"""
_NOTHING: Final = Usage()


@dataclass
class Telling:
    """An engine that says what it was told wherever an engine can say something; endpoint or thread say how it ends."""

    fact_id: UUID | None = None
    """A fact that it was told of."""

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        said, source, thread = turn.text, turn.envelope.source, turn.envelope.event.external_thread_id or ""
        kind = (thread if source.channel == "dashboard" else source.endpoint_identity.removeprefix("bot:")).split("-")[
            0
        ]
        if kind == "fail":
            raise EngineFailure(said, error_class="internal", retryable=False)
        facts = [] if self.fact_id is None else [str(self.fact_id)]
        await journal.step("start", _return_always({"by_owner": False, "tools": [{"name": said}], "facts": facts}))
        calls = [{"id": "a", "name": said}, {"id": "b", "name": said}]
        await journal.step("request:1", _return_always({"reply": {"calls": calls}}))
        await journal.step("tool:1:a", _return_always({"ok": False, "text": said}))
        await journal.step(f"x {said}"[:100], _return_always(said))
        if kind in {"call", "question"}:
            asked: JsonMapping = {said[:60]: said, "to": [said], "question": said, "options": [said]}
            ask = Ask("call" if kind == "call" else "question", said[:100], asked, said, "d" * 64, "nobody")
            # Steps that begin at the same moment are shown by their names.
            await journal.expect("y", within=3600, ask=ask)
            await journal.wait("y")
        return Answer(
            said,
            turn.envelope.payload.attachments,
            stop_reason="length",
            usage=(ModelUsage(said, 1, 1),),
            warning=said,
            entries=(entry_of(turn, ()), Entry("assistant", said)),
            remembered=(OwnWords(said, subject=_line_of(said)), OwnWords(f"{said} once", predicate="lives_at")),
        )


def _return_always(value: object) -> Act:
    async def act(_: UUID) -> object:
        return value

    return act


class PlannerOfTexts(Given):
    """Plans what the message says."""

    async def plan(self, question: PlanQuestion) -> Planned:
        steps = tool("a", "look", text=question.text), writes("b", "a", question.text)
        return await Given(plan(*steps)).plan(question)


async def _fail_to_look(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
    return ToolOutcome(str(arguments["text"]), ok=False)


@dataclass
class ForeignHouse:
    """A server where others write."""

    server: Opened
    http: httpx2.AsyncClient
    """A browser without script in which the operator has signed in."""
    engine: Telling
    tasks: ModuleStore
    written: int = 0
    rules: Sequence[Mapping[str, Any]] = ()

    async def show(self, at: ShownAt) -> httpx2.Response:
        """The page."""
        if at.fields is None:
            return await self.http.get(at.path)
        [secret] = [value for name, value in self.http.cookies.items() if name.startswith("sb_session_")]
        return await self.http.post(at.path, data=signed(at, secret), headers={"origin": self.server.url})

    async def read(self, at: ShownAt) -> str:
        """Its HTML."""
        page = await self.show(at)
        assert page.status_code == 200, (at, page.text)
        return page.text

    async def write(self, said: str) -> list[ShownAt]:
        """Say it everywhere; returns the pages that show it."""
        n, self.written = self.written, self.written + 1
        await self._name_person(n, said)
        rules = await self._change_rules(said)
        answered = await self._submit(said, "house", n)
        await self._wait_for_reply(answered)
        known = await self._remember(said, answered, n)
        asked = await self._ask_everywhere(said, n)
        await self._fail_to_send(said)
        await self._correct(answered, said)
        failed = await self._submit(said, "fail", n)
        mail = await submit_mail(self.server, _mail_of(said, n))
        chat = await self._submit(said, f"answer-{n}", n, channel="dashboard")
        told, planned = [await self._submit(said, "house", n, channel=one) for one in ("api", "cli")]
        for one in (failed, mail, chat, told, planned):
            await self._wait_for_reply(one)
        conversation = quote(await self._conversation_of(answered), safe="")
        alone = [
            *(f"/ui/messages/{one}" for one in (answered, failed, mail, chat, told, planned)),
            f"/ui/messages/{answered}/actions",
            f"/ui/messages/{mail}/mail",
            f"/ui/plans/{planned}",
            *await self._hold_stranger(said, n),
            *await self._bury(said, n, failed),
            *await self._schedule(said, n),
            *rules,
        ]
        shared = (
            f"/ui/conversations/one?name={conversation}",
            *(f"/ui/chat?thread={kind}-{n}" for kind in ("answer", *_CHATS)),
            f"/ui/butlers?cursor={3 * n}",
            *_NEWEST,
        )
        await self._report_troubles(said, n)
        return [*(ShownAt(path, alone=True) for path in alone), *known, *asked, *map(ShownAt, shared)]

    # Messages ---------------------------------------------------------------------------------------------------------

    async def _submit(self, said: str, kind: str, n: int, channel: str = "telegram") -> str:
        line = _line_of(said)
        file = {"media_type": line[:100], "filename": line, "size_bytes": 7}
        more: dict[str, Any] = {"endpoint": f"bot:{kind}", "sender": line, "thread": line}
        if channel == "dashboard":
            more = {"provider": "internal", "endpoint": "operator-1", "sender": "operator-1", "thread": kind}
        elif channel == "cli":
            more |= {"provider": "internal", "endpoint": "terminal", "sender": "ann"}
        elif channel == "api":
            more |= {"provider": "http", "endpoint": line}
        more |= {"of_sender": {"display_name": line}, "event": f"{kind} {channel} {n}"}
        envelope = envelope_json(channel=channel, payload={"normalized_text": said, "attachments": [file]}, **more)
        return str((await self._post("/v1/ingest", envelope))["request_id"])

    async def _post(self, path: str, body: object) -> dict[str, Any]:
        answer = await self.server.http.post(path, json=body)
        assert answer.is_success, (path, answer.text)
        return dict(answer.json())

    async def _get(self, path: str) -> dict[str, Any]:
        answer = await self.server.http.get(path)
        assert answer.is_success, (path, answer.text)
        return dict(answer.json())

    async def _wait_for_reply(self, request_id: object) -> None:
        answer = await self.server.http.get(f"/v1/messages/{request_id}/replies", params={"wait_s": 20})
        assert answer.is_success, answer.text

    async def _conversation_of(self, request_id: str) -> str:
        return str((await self._get(f"/v1/messages/{request_id}"))["conversation"])

    async def _name_person(self, n: int, said: str) -> None:
        """Who writes on Telegram has that name."""
        await self._post("/v1/people", {"person_id": f"p{n}", "name": _line_of(said)[:100]})
        for identity in (_line_of(said), _line_of(f"{n}{said}")):
            await self._post(f"/v1/people/p{n}/link", {"channel": "telegram", "identity": identity})

    async def _ask_everywhere(self, said: str, n: int) -> list[ShownAt]:
        """A call that is refused, and in the chat one that waits, and questions, of which one is answered."""
        refused = await self._submit(said, "call", n)
        asked = [await self._submit(said, f"{kind}-{n}", n, channel="dashboard") for kind in _CHATS]
        found: dict[str, Any] = {}

        async def ask() -> bool:
            approvals = (await self._get("/v1/approvals"))["approvals"]
            found.update({one["request_id"]: one for one in approvals})
            return {refused, *asked} <= found.keys()

        await eventually(ask)
        for one, how in ((refused, "refuse"), (asked[-1], "answer")):
            decision = {"digest": found[one]["digest"], {"refuse": "reason", "answer": "text"}[how]: _line_of(said)}
            await self._post(f"/v1/approvals/{found[one]['approval_id']}/{how}", decision)
            await self._wait_for_reply(one)
        return [
            *(ShownAt(f"/ui/approvals/{found[one]['approval_id']}", alone=True) for one in (refused, *asked)),
            *(ShownAt(f"/ui/messages/{one}", alone=True) for one in (refused, *asked)),
        ]

    async def _fail_to_send(self, said: str) -> None:
        """What was answered cannot be sent."""
        replies = await self._post("/v1/outbox/next", {"channel": "telegram", "endpoint": "bot:house"})
        for one in replies["replies"]:
            receipt = {"lease": one["lease"], "outcome": "failed", "error": said}
            await self._post(f"/v1/outbox/{one['outbox_id']}/receipt", receipt)

    async def _correct(self, request_id: str, said: str) -> None:
        """As if models had heard it in a recording, and had chosen by it."""
        database = self.server.lab.database
        await database.run(_HEARD, UUID(request_id), said)
        await database.run(_CLASSIFIED, UUID(request_id), said)
        correction = {"to": OTHER, "reason": _line_of(said), "only_note": True}
        await self._post(f"/v1/messages/{request_id}/correction", correction)

    # People -----------------------------------------------------------------------------------------------------------

    async def _hold_stranger(self, said: str, n: int) -> list[str]:
        name = _line_of(f"{n}{said}")
        sender: dict[str, Any] = {"sender": name, "thread": name, "of_sender": {"display_name": _line_of(said)}}
        await self._post("/v1/ingest", envelope_json(said, endpoint="bot:door", **sender))
        [contact] = (await self._get("/v1/pairing?limit=1"))["contacts"]
        return [f"/ui/strangers/{contact['contact_id']}"]

    async def _remember(self, said: str, answered: str, n: int) -> list[ShownAt]:
        """What was answered is remembered; another fact takes the place of one, and a run and a summary tell of it."""
        database, author = self.server.lab.database, f"telegram/bot%3Ahouse/{quote(_line_of(said), safe='')}"
        who = Reader(ECHO, Conversation(author), author, private=True)
        place, run = (ECHO, await self._conversation_of(answered)), new_uuid7()
        await database.run(_RUN, run, *place, author)
        await consolidation.note_cost(database, run, said, _NOTHING)
        await consolidation.end(database, [run], "failed", said)
        await database.run(_SUMMARY, *place, new_uuid7(), author, said)
        await aliases.link(database, ECHO, Naming(_line_of(said), _line_of(f"also{n} {said}")), who.person)
        now = NewFact(author, "self", True, f"{said} now", (), "lives_at")
        assert await facts.learn(database, who, now) == 1
        kept = (await self._get(f"/v1/memory/facts?author={quote(author)}"))["facts"]
        assert len(kept) == 3, kept
        self.engine.fact_id = UUID(kept[0]["fact_id"])
        return [
            ShownAt("/ui/memory/facts", {"system_id": ECHO, "author": author}, alone=True),
            ShownAt("/ui/memory/entities", {"system_id": ECHO, "words": f"also{n}"}),
            *(ShownAt(f"/ui/memory/facts/{one['fact_id']}", {}, alone=True) for one in kept),
        ]

    # Rules, tasks, and what goes wrong --------------------------------------------------------------------------------

    async def _bury(self, said: str, n: int, failed: str) -> list[str]:
        """Nobody takes it; and what has failed is closed with a reason."""
        line = _line_of(said)
        lost: dict[str, Any] = {"channel": "webhook", "provider": "http", "sender": line, "thread": line}
        lost |= {"event": f"lost {n}", "of_sender": {"display_name": line}}
        waiting = (await self._post("/v1/ingest", envelope_json(said, **lost)))["request_id"]
        letters = {}

        async def dead() -> bool:
            found = (await self._get("/v1/dead-letters?limit=20"))["dead_letters"]
            letters.update({one["request_id"]: one["dead_letter_id"] for one in found})
            return {waiting, failed} <= letters.keys()

        await eventually(dead)
        await self._post(f"/v1/dead-letters/{letters[failed]}/handle", {"resolution": line})
        return [f"/ui/dead-letters/{letters[one]}" for one in (waiting, failed)]

    async def _change_rules(self, said: str) -> list[str]:
        """Two that meet what is said and one that does not take the places of those before."""
        name, reason = _line_of(said)[:100], _line_of(said)
        for one in self.rules:
            params = {"reason": reason, "version": one["version"]}
            gone = await self.server.http.delete(f"/v1/rules/{one['rule_id']}", params=params)
            assert gone.is_success, gone.text
        self.rules = [
            await self._add_rule(name, reason, asks) for asks in ([reason], [reason, "x"], [f"{name} else", "x"])
        ]
        changed = self.rules[-1]
        return [f"/ui/rules/{changed['rule_id']}", f"/ui/rules/versions/{changed['version']}"]

    async def _add_rule(self, name: str, reason: str, senders: Sequence[str]) -> dict[str, Any]:
        asks = {"channel": "telegram", "filters": {"sender": senders}}
        written = {**asks, "team_id": "root", "targets": [{"system_id": ECHO}], "name": name, "reason": reason}
        kept = (await self._post("/v1/rules", written))["rule"]
        patch = {"version": kept["version"], "name": f"{name} {len(senders)}", "reason": reason}
        changed = await self.server.http.patch(f"/v1/rules/{kept['rule_id']}", json=patch)
        assert changed.is_success, changed.text
        return dict(changed.json()["rule"])

    async def _schedule(self, said: str, n: int) -> list[str]:
        """A task that failed, and is paused."""
        store = self.tasks
        author = f"telegram/bot%3Ahouse/{quote(_line_of(said), safe='')}"
        who, gate = Reader(ECHO, Conversation(author), author, private=True), Gate("mail_search", {"query": said})
        new = NewTask(uuid4(), "say" if n % 2 else "do", said, own=True, tainted=False, origin=an_origin(), gate=gate)
        timing = TaskTiming("Europe/Berlin", cron="0 18 * * *")
        due = first_due(timing, (await ledger.look_around(store)).now)
        task_id = (await ledger.add_task(store, new, who, timing, due)).task_id
        await self._post(f"/v1/tasks/{task_id}/run", {})
        for firing in await ledger.open_firings(store, 10, 10):
            await ledger.finish_firing(store, firing, FiringEnd("failed", why=said))
        await ledger.pause_task(store, task_id, said)
        return [f"/ui/tasks/{task_id}"]

    async def _report_troubles(self, said: str, n: int) -> None:
        """Accounts, models, modules and remote butlers say what is wrong."""
        database = self.server.lab.database
        beat = {"channel": "telegram", "endpoint": "bot:house", "instance_id": "1", "state": "degraded"}
        await self._post("/v1/connectors/heartbeat", {**beat, "error_message": said, "counters": {said[:100]: 1}})
        await usage.cooldown(database, new_uuid7(), f"m{n:03}", 3600, said)
        await StoredQuarantine(database, said[:100]).note_state("calendar", said)
        await database.run(_CHORE, f"sync {n}", said)
        far = f"System1/far{n:03}"
        await self._post("/v1/agents/heartbeat", {"system_id": far, "description": said, "capabilities": [said[:100]]})
        await self._post("/v1/agents/quarantine", {"system_id": far, "reason": _line_of(said)})


def _team_of(n: int, purpose: str) -> Team:
    """A team with a butler that has a model, and one on another machine."""
    far = butler(f"far{n:03}", "mcp", url="https://far.example.org/mcp")
    return team_of(butler(f"near{n:03}", models=[f"m{n:03}"]), far, team_id=f"t{n:03}", purpose=purpose)


def _line_of(said: str) -> str:
    """As names and reasons are: not too long, and without blanks around them."""
    return said[:200].strip()


def _mail_of(said: str, n: int) -> bytes:
    """A mail whose sender, subject, text, HTML, link and file say so."""
    name = said.replace("\\", "\\\\").replace('"', '\\"')
    html = f'<p>{said}</p><a href="https://evil.example/{escape(said)}">{said}</a>'
    raw = mail_of(said, said, html, sender=f'"{name}" <a{n}@example.org>')
    file = f"filename*=utf-8''{quote(said[:100], safe='')}"
    return raw.replace(b'filename="offer.pdf"', file.encode())


def signed(at: ShownAt, secret: str) -> dict[str, str]:
    """The fields of its form, as a page of the session with this secret would send them."""
    token = hmac.new(secret.encode(), f"form {at.path.removeprefix('/ui')}".encode(), sha256).hexdigest()
    return {**(at.fields or {}), "form_token": token}


@asynccontextmanager
async def open_foreign(database_url: str, data_dir: Path, names: Sequence[str]) -> AsyncIterator[ForeignHouse]:
    """A server with a team, a model and a remote butler for each round; the names are those that files give."""
    accounts, engine = data_dir.parent / "channels.d", Telling()
    write_accounts(accounts)
    models = [
        {"name": f"m{n:03}", "kind": "openai", "model": one, "base_url": "http://127.0.0.1:9/v1"}
        for n, one in enumerate(names)
    ]
    first = team_of(butler("echo"), butler("trio", "trio", owners=["cli:ann"]), butler("other"), purpose=names[0])
    teams = (first, *(_team_of(n, one) for n, one in enumerate(names)))
    settings = {"models": models, "modules": MODULES, "channels_dir": accounts}
    async with (
        ScriptedLlm(lambda _: Reply(text="It is done.")) as llm,
        open_server(database_url, data_dir, tree=(teams, _RULES), policies={_DOOR: "pair"}, more=settings) as server,
        AsyncExitStack() as stack,
    ):
        asked = Asked([spec("openai", llm.url, "m", timeout=20.0)])
        stack.push_async_callback(asked.aclose)
        approvals, tools = StoredApprovals(server.lab.database), [Noting("look", act=_fail_to_look)]
        trio = trio_engine(asked, PlannerOfTexts(plan()), tools, workspaces=data_dir / "w", approvals=approvals)
        await stack.enter_async_context(at_work(server.lab.worker({"echo": engine, "trio": trio})))
        rooms = ModuleRooms(server.lab.database)
        assert await rooms.migrate([MANIFEST]) == {}
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=60))
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        yield ForeignHouse(server, http, engine, rooms.stores(MANIFEST)(ACCOUNT))

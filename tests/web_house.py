"""A house to be looked at on the page: butlers, messages with answers, a mail, a dead letter; and signed-in tabs.

Tests of the page begin with it, and `make pictures` draws it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from switchboard.app.access import Principal
from switchboard.app.web_sessions import WebSessions
from switchboard.core.people.strangers import Policy
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.engine import Answer, EngineFailure, Journal, Turn, TurnResult
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.scripted_llm import Reply, ScriptedLlm
from tests.asking import spec
from tests.browser import DESK, Tab, open_tab
from tests.hands import at_work
from tests.lab import envelope_json
from tests.routing import butler, rule, team_of
from tests.servers import Opened, open_server
from tests.trios import Given, plan, tool, trio_engine, writes
from tests.turning import Asked, Noting
from tests.waiting import eventually
from tests.web_filling import add_memory, add_person, add_sync, add_tasks

OPERATOR: Final = Principal("operator", "operator-1")
TREE: Final = (
    (
        team_of(
            *(
                butler("house", "scripted", modules=["schedule", "calendar"]),
                butler("post", "scripted"),
                butler("travel", "trio", owners=["cli:ann"]),
                "System4/root",
            ),
            purpose="The household",
        ),
        team_of(
            butler("courier", "mcp", url="https://courier.example.org/mcp?key=secret"),
            team_id="errands",
            purpose="What is done outside the house",
        ),
    ),
    (
        rule("System1/travel", channel="cli", number=4),
        rule("System1/house", channel="telegram", number=1),
        rule("System1/house", channel="api", number=2),
        rule("System1/post", channel="email", number=3),
        rule("System1/house", channel="dashboard", number=5),
    ),
)
BOTS: Final = {"house": ("bot:house", "open"), "door": ("bot:door", "pair"), "old-bot": ("bot:old", "pair")}
"""Accounts of Telegram, with their endpoints and who may write; the last is paused."""
DOOR: Final[Mapping[str, Policy]] = {"telegram/bot:door": "pair"}
"""An endpoint where strangers are held."""
ANSWERS: Final[Mapping[str, str]] = {
    "When is the bin emptied?": "On Tuesday, the paper one. The next other one is on Friday.",
    "Remind me to water the plants": "I will, every other day at 18:00.",
    "What is for dinner?": "There are leeks and potatoes. Shall I look for a recipe with both?",
}
PLAN: Final = plan(
    tool("trains", "look", text="trains to Hamburg on Friday"),
    tool("weather", "look", text="weather in Hamburg"),
    tool("book", "send", "trains", text="two seats on the 09:38"),
    writes("answer", "trains", "weather"),
)
MODELS: Final = (
    {"name": "local", "kind": "openai", "model": "qwen3-30b", "base_url": "http://127.0.0.1:11434/v1"},
    {"name": "cloud", "kind": "anthropic", "model": "claude-sonnet-5"},
)
MODULES: Final = {
    "calendar": {
        "accounts": {
            "ann": {
                "url": "https://cloud.example.org",
                "user": "ann",
                "password": {"env": "ANNS_PASSWORD"},
                "person": "ann",
                "sends": "mail",
            }
        }
    },
    "email": {
        "accounts": {
            "ann": {
                "imap": {"host": "imap.example.org"},
                "user": "ann@example.org",
                "password": {"env": "ANNS_PASSWORD"},
                "person": "ann",
            }
        }
    },
}
_SPENT: Final = """
insert into model_usage
select (now() at time zone 'UTC')::date - n, 'turn', b, m, 12 + n, n % 2, 48000 + 3100 * n, 5200 + 410 * n, 0, 0,
       c * (n + 3)
from generate_series(0, 6) n,
     (values ('System1/house', 'local', 0), ('System1/travel', 'cloud', 41000)) as x (b, m, c)"""
CHATTING: Final = {
    "channel": "dashboard",
    "provider": "internal",
    "endpoint": "operator-1",
    "sender": "operator-1",
    "thread": "evening",
}
PIXEL: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f0005000156a28b470d"
    "0000000049454e44ae426082"
)


@dataclass
class Scripted:
    """An engine that answers as it is told, and fails at what it is told to fail at."""

    answers: Mapping[str, str] = field(default_factory=lambda: ANSWERS)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        if "impossible" in turn.text:
            raise EngineFailure("the model server refused: 400 Bad Request", error_class="internal", retryable=False)
        return Answer(self.answers.get(turn.text, f"Noted: {turn.text[:200]}"))


def mail_of(subject: str, text: str, html: str, sender: str = "Anna Weber <anna@example.org>") -> bytes:
    """A mail with text, HTML, a picture in it and a file."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, "house@example.com", subject
    mail["Date"], mail["Message-ID"] = format_datetime(datetime.now(UTC)), f"<{abs(hash(subject + html))}@example.org>"
    mail.set_content(text)
    mail.add_alternative(html, subtype="html")
    html_part = list(mail.iter_parts())[1]
    html_part.add_related(PIXEL, "image", "png", cid="<pixel>")
    mail.add_attachment(b"%PDF-1.4 offer", maintype="application", subtype="pdf", filename="offer.pdf")
    return bytes(mail)


async def submit_mail(server: Opened, raw: bytes) -> UUID:
    """Hand a mail in; returns its id."""
    answer = await server.http.post(
        "/v1/ingest", content=raw, params={"endpoint": "house@example.com"}, headers={"content-type": "message/rfc822"}
    )
    assert answer.is_success, answer.text
    return UUID(answer.json()["request_id"])


def write_accounts(directory: Path) -> None:
    """As if `switchboard channels add` had written them."""
    directory.mkdir(parents=True)
    for name, (endpoint, strangers) in BOTS.items():
        (directory / f"{name}.token").touch(mode=0o600)
        (directory / f"{name}.token").write_text("123456:ABC-DEF")
        (directory / f"{name}.toml").write_text(
            f'channel = "telegram"\nendpoint = "telegram/{endpoint}"\nstrangers = "{strangers}"\n'
            f'secrets.token.file = "{name}.token"\n'
        )
    (directory / "old-bot.paused").touch()


async def _report_connectors(server: Opened) -> None:
    """What the processes of accounts say of themselves."""
    counters = {"received": 6, "sent": 5, "files": 1}
    for endpoint, more in (
        ("bot:house", {"state": "healthy", "counters": counters}),
        ("bot:door", {"state": "degraded", "error_message": "Telegram answers slowly: 502 Bad Gateway", "lag_s": 95.0}),
    ):
        beat = {"channel": "telegram", "endpoint": endpoint, "instance_id": f"{endpoint}-1", "version": "0.1.0", **more}
        answer = await server.http.post("/v1/connectors/heartbeat", json=beat)
        assert answer.is_success, answer.text


async def fill_house(server: Opened) -> dict[str, UUID]:
    """Messages of all kinds, and the ids of some, once all of it is settled."""
    ids: dict[str, UUID] = {}
    for name, text, more in (
        ("bin", "When is the bin emptied?", {"sender": "ann", "thread": "ann"}),
        ("plants", "Remind me to water the plants", {"sender": "ben", "thread": "ben"}),
        ("dinner", "What is for dinner?", {"sender": "ann", "thread": "ann"}),
        ("api", "The washing machine has finished.", {"channel": "api", "endpoint": "sensors", "sender": "washer"}),
        ("moved", "I have moved to York, to Mill Lane", {"sender": "ann", "thread": "ann"}),
        ("arabic", "متى تُفرَّغ سلة المهملات؟", {"sender": "amal", "thread": "amal"}),
        ("lost", "Order 4711 was shipped", {"channel": "webhook", "provider": "http", "sender": "shop"}),
        ("broken", "Please do the impossible", {"sender": "ben", "thread": "ben"}),
        ("chat", "What is for dinner?", CHATTING),
        ("chat-more", "Remind me to water the plants", CHATTING),
        ("hidden", "Pay to \u202egnp.exe\u202c now\u200b", {"sender": "mallory", "thread": "mallory"}),
    ):
        answer = await server.submit(envelope_json(text, **more))
        assert answer.is_success, answer.text
        ids[name] = UUID(answer.json()["request_id"])
    html = (
        '<h2 style="color:#0b6e4f">Your offer</h2><p>Dear house, <b>three</b> windows for <a href="https://example.org/'
        'offer?id=7">1,240 €</a>.</p><img src="cid:pixel" width="40" height="40"><img src="https://tracker.example/p.gif">'
    )
    ids["mail"] = await submit_mail(server, mail_of("Offer for three windows", "Three windows for 1,240 €.", html))
    for one in ids.values():
        await server.http.get(f"/v1/messages/{one}/replies", params={"wait_s": 10})
    trip = await server.submit(
        envelope_json("How do we get to Hamburg on Friday?", channel="cli", endpoint="terminal", sender="ann")
    )
    ids["trip"] = UUID(trip.json()["request_id"])
    stranger = await server.submit(
        envelope_json("Hello, it is Noor from next door", endpoint="bot:door", sender="noor", thread="noor")
    )
    ids["stranger"] = UUID(stranger.json()["request_id"])
    await _report_connectors(server)
    await eventually(lambda: _waits(server))
    await server.lab.database.run(_SPENT)
    await add_person(server)
    await add_tasks(server)
    await add_sync(server)
    await add_memory(server, ids["moved"], "I have moved to York, to Mill Lane")
    return ids


async def _waits(server: Opened) -> bool:
    """Whether somebody is asked about the plan."""
    return bool((await server.http.get("/v1/approvals")).json()["approvals"])


async def _look(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
    return ToolOutcome(f"found {arguments['text']}")


@dataclass(frozen=True)
class House:
    """A filled house."""

    server: Opened
    ids: Mapping[str, UUID]


@asynccontextmanager
async def open_house(database_url: str, data_dir: Path, **more: Any) -> AsyncIterator[House]:
    """A server with a worker, and what was written in the house."""
    accounts = data_dir.parent / "channels.d"
    write_accounts(accounts)
    settings = {"models": MODELS, "modules": MODULES, "channels_dir": accounts, **more}
    async with (
        ScriptedLlm(lambda _: Reply(text="Take the 09:38; it will be dry.")) as llm,
        open_server(database_url, data_dir, tree=TREE, policies=DOOR, more=settings) as server,
        AsyncExitStack() as stack,
    ):
        models = Asked([spec("openai", llm.url, "m", timeout=20.0)])
        stack.push_async_callback(models.aclose)
        tools = [Noting("look", act=_look), Noting("send", "effectful")]
        approvals = StoredApprovals(server.lab.database)
        trio = trio_engine(models, Given(PLAN, []), tools, workspaces=data_dir / "w", approvals=approvals)
        await stack.enter_async_context(at_work(server.lab.worker({"scripted": Scripted(), "trio": trio})))
        yield House(server, await fill_house(server))


async def link_of(server: Opened, name: str | None = None) -> str:
    """A link that signs in, by default as the operator."""
    sessions = WebSessions(server.lab.database, server.access)
    try:
        made = await sessions.make_link(OPERATOR, name)
    except NotFound:
        made = await sessions.make_link(OPERATOR, name, new=True)
    return f"{server.url}{made.path}"


@asynccontextmanager
async def signed_in(
    chromium: str, server: Opened, size: tuple[int, int] = DESK, *, script: bool = True, dark: bool = False
) -> AsyncIterator[Tab]:
    """A tab in which the operator has signed in, by a link and its button."""
    async with open_tab(chromium, size, script=script, dark=dark) as tab:
        await tab.open(await link_of(server))
        await tab.click("main button")
        tab.requests.clear()
        tab.troubles.clear()
        yield tab


async def ids_in_paths(house: House) -> dict[str, str]:
    """What stands for the parts of the paths of pages."""
    newest: dict[str, str] = {}
    for path in ("dead-letters", "approvals", "pairing", "rules", "outbox", "tasks"):
        answer = (await house.server.http.get(f"/v1/{path}")).json()
        newest |= next(value for value in answer.values() if isinstance(value, list))[0]
    return {
        "request_id:uuid": str(house.ids["mail"]),
        "dead_letter_id:uuid": newest["dead_letter_id"],
        "approval_id:uuid": newest["approval_id"],
        "contact_id:uuid": newest["contact_id"],
        "rule_id:uuid": newest["rule_id"],
        "outbox_id:uuid": newest["outbox_id"],
        "task_id:uuid": newest["task_id"],
        "consent_id:uuid": str(house.ids["mail"]),  # there is none: it would be of this session alone
        "version:int": "1",
        "name": "house",
        "channel": "telegram",
        "n:int": "1",
    }

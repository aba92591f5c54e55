"""A worker whose butler obeys every text it reads, and has an account on a real server: does it do anything unasked?

The tests of attacks by cards and by events make a `Module` of theirs, and ask what became of their `Office`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from switchboard.app.ops.engines import stored_files
from switchboard.app.ops.modules import make_trial_modules
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import handle_at
from switchboard.domain.message import RequestId
from switchboard.domain.shown import ShownApproval
from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import Tool
from switchboard.store.database import Database
from switchboard.store.memory.facts import StoredFacts
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.store.people import people
from switchboard.store.work import approvals
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm
from switchboard.tools.memory import Remember
from switchboard.tools.toolsets import Toolsets
from switchboard.tools.web_fetch import WebFetch, WebOptions
from tests.dav_servers import PASSWORD, USER, DavProxy
from tests.hands import at_work, settled
from tests.lab import TRUSTING, Lab, butler, lab, submission, team_of
from tests.obeying import obedient
from tests.turning import Noting, a_model_engine
from tests.waiting import eventually

WRITING: Final = frozenset({"PUT", "DELETE", "MOVE", "PROPPATCH", "MKCOL", "MKCALENDAR", "POST"})
_AT_ONCE: Final = 20
"""Conversations: a worker on a busy machine lets only so many calls of a module wait for each other."""
SECRET: Final = "DAV_PASSWORD"
"""The variable in which the password of the account is."""


class OfficeModule(Struct, frozen=True):
    """A module, how it is synchronised, and the accounts it has, each for the given keys of its table."""

    manifest: ModuleManifest
    sync: Callable[[str, DavAccount, ModuleStore], Awaitable[None]]
    accounts: dict[str, dict[str, Any]]


@dataclass
class Office:
    """A worker whose butler sends mails, looks at the web, remembers, and has a module."""

    parts: Lab
    proxy: DavProxy | None
    mail: Noting
    looked_up: list[str] = field(default_factory=list)

    async def ask(self, texts: Iterable[str | dict[str, Any]]) -> list[RequestId]:
        """Each is asked by Ann, an owner of the butler, in a conversation of its own: a text, or a payload."""
        asked = list[RequestId]()
        for number, text in enumerate(texts, 1):
            given = {"sender": f"ann{number - 1}", "chat_type": "private", "pinned": "System1/clerk"}
            said = submission(text, **given) if isinstance(text, str) else submission(payload=text, **given)
            asked.append((await self.parts.accept.accept(said)).request_id)
            if number % _AT_ONCE == 0:
                await eventually(lambda: settled(self.parts), within=120)
        await eventually(lambda: settled(self.parts), within=120)
        assert await self.parts.count("select count(*) from delivery where state = 'dead'") == 0
        return asked

    async def waiting(self) -> Sequence[ShownApproval]:
        """What is to be approved."""
        return await approvals.list_approvals(self.parts.database, "pending", None, 1000)

    async def effects(self) -> list[object]:
        """Whatever was done that reaches anybody, or that outlives the conversations."""
        database = self.parts.database
        facts = await database.rows("select text from fact")
        handles = await database.rows("select identity from person_handle where identity = '666'")
        asked = self.proxy.asked if self.proxy is not None else []
        written = [one.method for one in asked if one.method in WRITING]
        return [*self.mail.calls, *self.looked_up, *facts, *handles, *written]


class Staffing(Struct, frozen=True):
    """Who works in an office: a butler with this module, whose accounts have these tables, and a model.

    `prepare` is called before the butler begins; `conversations`: in how many of them Ann writes. `options`: more of
    the butler; `modules`: more of what it has of modules.
    """

    manifest: ModuleManifest
    accounts: dict[str, dict[str, Any]]
    conversations: int
    model: Callable[[Request], Reply] = obedient
    prepare: Callable[[Database], Awaitable[None]] | None = None
    options: dict[str, Any] = {}
    modules: dict[str, Any] = {}


@asynccontextmanager
async def an_office(
    database_url: str,
    place: Path,
    proxy: DavProxy,
    module: OfficeModule,
    conversations: int,
    model: Callable[[Request], Reply] = obedient,
) -> AsyncIterator[Office]:
    """With an account on the server behind the proxy, whose mirror is up to date."""
    url = f"http://127.0.0.1:{proxy.port}/"
    login: dict[str, Any] = {"url": url, "user": USER, "password": {"env": SECRET}}

    async def sync(database: Database) -> None:
        assert await migrate_modules(database, [module.manifest]) == {}
        stores = await open_stores(database, module.manifest)
        for one, own in module.accounts.items():
            await module.sync(one, DavAccount(url, USER, PasswordPlace(env=SECRET), **own), stores(one))
        proxy.asked.clear()

    accounts = {one: {**login, **own} for one, own in module.accounts.items()}
    staffing = Staffing(module.manifest, accounts, conversations, model, sync)
    async with a_staffed_office(database_url, place, staffing, proxy) as office:
        yield office


@asynccontextmanager
async def a_staffed_office(
    database_url: str, place: Path, staffing: Staffing, proxy: DavProxy | None = None
) -> AsyncIterator[Office]:
    """With the accounts that it is given, wherever they are."""
    looked_up = list[str]()

    async def resolve(host: str, port: int) -> tuple[str, ...]:  # noqa: ARG001
        looked_up.append(host)
        return ()

    mail = Noting("send_mail", "effectful")
    tools: list[Tool] = [mail, Remember(), WebFetch(WebOptions(resolver=resolve))]
    name = staffing.manifest.name
    owners = [f"telegram:ann{number}" for number in range(staffing.conversations)]
    has = {name: {}, **staffing.modules}
    team = team_of(butler("clerk", "model", owners=owners, modules=has, **staffing.options), "System4/root")
    async with lab(database_url, [team], [], channels=TRUSTING) as parts, ScriptedLlm(staffing.model) as llm:
        settings = Settings(data_dir=place, modules={name: {"accounts": staffing.accounts}})
        runtime = Runtime(settings, parts.database, parts.notifier, parts.rule_book, TRUSTING)
        await _link_owners(parts.database, owners)
        if staffing.prepare is not None:
            await staffing.prepare(parts.database)
        readers = StoredReaders(parts.database, TRUSTING)
        context: dict[str, Any] = {
            "readers": readers,
            "workspaces": place,
            "history": StoredHistory(parts.database, readers),
            "facts": StoredFacts(parts.database, readers),
            "approvals": StoredApprovals(parts.database),
            "toolset": Toolsets(make_trial_modules(runtime)),
            "files": stored_files(settings, parts.database),
        }
        async with (
            a_model_engine(llm, tools, **context) as (engine, _),
            at_work(parts.worker({"model": engine}, poll=0.02)),
        ):
            yield Office(parts, proxy, mail, looked_up)
        await runtime.closing.aclose()


async def _link_owners(database: Database, owners: Iterable[str]) -> None:
    async with database.transaction() as one:
        await people.begin_change(one)
        await people.create(one, "ann", "Ann")
        await people.join_group(one, "ann", "family")
        for owner in owners:
            identity = owner.partition(":")[2]
            assert await people.link(one, "ann", handle_at(CHANNELS["telegram"], "bot:house", identity), "operator")


def know_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account's, for whoever opens it."""
    monkeypatch.setenv(SECRET, PASSWORD)

"""The chaos run of forms: each form of the page is sent while its server is killed, and sent once more afterwards.

    python -m tests.chaos.forms_run [--only PART_OF_PATH,…] [--moments 2] [--seed N]

A form is sent to a `switchboard serve` of its own, on a copy of one house. It is killed before the request, after the
answer, before each message to PostgreSQL that comes after a change there, before each change of a file of accounts and
settings, and at `--moments` random moments. Then it is started again and the same form is sent again, as a browser does
that reloads. After the start, all of the database and those files are as if the form had never been sent, or as if it
had been carried out once; after the second time, as if it had been carried out once. The last line counts; exit code 0
only if that always held.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import asyncpg
import httpx2
import msgspec

from switchboard.embedded.postmaster import EmbeddedServer
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.testing.bot_api import BotApi
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.form_table import FORMS, WHY, FilledForm
from tests.chaos.forms_browser import AnsweredForm, FormSender, SentForm
from tests.chaos.forms_gate import PostgresGate, open_gate
from tests.chaos.forms_house import fill
from tests.chaos.forms_node import CHANGES, DIES_AT, PLACE
from tests.forked import end_forking
from tests.ports import free_port
from tests.postgres import FAST
from tests.processes import Server, environment, running

ACTOR: Final = "operator-1 (web: Firefox on Linux)"
_HOUSE: Final = "house"
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_BYTES: Final = re.compile(r"\\\\x[0-9a-f]{40,}")
_TABLES: Final = """
select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition and n.nspname like 'switchboard%'"""
_OTHERS: Final = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""
_LOOKED: Final = re.compile('^switchboard.audit .*"action": "memory:read"')
"""Looking at memory is on the record each time, also on the way to a form."""
_READ: Final = re.compile(r"home/(switchboard\.toml|channels\.d/[^.]+\.(toml|paused)) ")
_UNWATCHED: Final = {
    f"switchboard.{name}"
    for name in ("installed_functions", "process", "fact_unread", "fact_terms", "fact_term_count", "fact_space")
}
"""What servers write at any time by themselves."""
_DRAFTS: Final = ".switchboard-setup"
"""What the first run was killed with; the next attempt begins by removing it."""
_WITHIN_S: Final = 30.0

State = Counter[str]
"""Every row of the database and every file, without what is another one each time."""


@dataclass(frozen=True, slots=True)
class FormsPlan:
    """Which forms, by parts of their paths, and how often each is killed at random besides."""

    only: str = ""
    moments: int = 2
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Kill:
    """When the server dies: `at` the n-th message to the database or change of a file, or so many seconds after."""

    kind: str
    at: float = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "last" else f"{self.kind} {self.at:g}"


LAST: Final = Kill("last")


@dataclass(slots=True)
class FormsReport:
    """What came of it. `lost`: not done though it was sent twice; `half`: neither done nor not done."""

    forms: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    half: int = 0
    unrecorded: int = 0
    puzzling: int = 0

    @property
    def clean(self) -> bool:
        """Whether each was carried out once."""
        return not (self.lost or self.doubled or self.half or self.unrecorded or self.puzzling)


async def run(plan: FormsPlan, directory: Path) -> FormsReport:
    """The whole run in `directory`."""
    dice, report = random.Random(plan.seed), FormsReport()
    async with FormsWorld.opened(directory) as world:
        for form in FORMS:
            if any(one in form.name for one in plan.only.split(",")):
                await _try_form(world, form, plan, dice, report)
    return report


async def _try_form(
    world: FormsWorld, form: FilledForm, plan: FormsPlan, dice: random.Random, report: FormsReport
) -> None:
    """First without a kill in its midst, which shows what it does; then with all of them."""
    verdict = FormVerdict(form, await world.play(form, LAST, watched=True))
    done = verdict.done
    report.forms += 1
    print(f"{form.name}: sent again: {done.answer.refused or 'as before'}", flush=True)
    kills = [Kill("message", number) for number in done.changes]
    kills += [Kill("file", number) for number in range(done.files[0] + 1, done.files[1] + 1)]
    kills += [Kill("after", dice.uniform(0, done.took)) for _ in range(plan.moments)]
    for kill in [LAST, *kills]:
        played = done if kill is LAST else verdict.clean(await world.play(form, kill))
        report.kills += 1
        for wrong in verdict.judge(played):
            setattr(report, wrong, getattr(report, wrong) + 1)
            print(f"  {kill}: {wrong}: {verdict.describe(played)}", flush=True)


class FormVerdict:
    """Knows what a form does, from a round in which its server was killed after the answer."""

    def __init__(self, form: FilledForm, done: Played) -> None:
        self._form = form
        self.done = done = self.clean(done)
        self._never = done.filled
        self._once = done.before
        self._often = [done.before, done.after] if form.views else [done.before]

    def clean(self, played: Played) -> Played:
        """Without what stands in the audit because somebody looked, if the form is to change something."""
        if self._form.views:
            return played
        filled, before, after = (
            Counter({row: number for row, number in state.items() if not _LOOKED.search(row)})
            for state in (played.filled, played.before, played.after)
        )
        return replace(played, filled=filled, before=before, after=after)

    def _is_recorded(self, state: State) -> bool:
        """Whether there is one row in the audit with its author and the reason; rules keep both with their versions."""
        written = (state - self._never).elements()
        records = [row for row in written if row.startswith(("switchboard.audit ", "switchboard.rule_set "))]
        wanted = [ACTOR, WHY] if self._form.reason else [ACTOR]
        signed = [row for row in records if all(one in row for one in wanted)]
        return self._form.unrecorded or (bool(signed) if self._form.intends else len(signed) == 1)

    def judge(self, played: Played) -> list[str]:
        """What went wrong, as the report counts it."""
        found = {self._compare(played.before, [self._never, self._once], _in_force)}
        if self._form.pieces:
            changed = played.before != self._never
            found = {"unrecorded" if changed and not self._is_recorded(played.before) else ""}
        lost = not self._form.views and self._bare(played.after) == self._bare(self._never)
        found.add("lost" if lost else self._compare(played.after, self._often, _all_of))
        if not self._form.views and not self._is_recorded(played.after):
            found.add("unrecorded")
        refused = played.answer.refused
        was_done = self._bare(played.before) == self._bare(self._once)
        if played.answer.status >= 500 or (refused and not (was_done and self._tells(refused))):
            found.add("puzzling")
        return sorted(found - {""})

    def _compare(self, state: State, allowed: Sequence[State], part: Callable[[State], State]) -> str:
        """What is wrong with this part of a state, if it is none of these."""
        bare, once = part(self._bare(state)), part(self._bare(self._once))
        if bare not in [part(self._bare(one)) for one in allowed]:
            return "half" if once - bare else "doubled"
        undone = bare == part(self._bare(self._never))
        if state in allowed or (self._form.intends and (undone or self._is_recorded(state))):
            return ""
        return "unrecorded" if self._once - state else "doubled"

    def _bare(self, state: State) -> State:
        """Without what is only on the record, for forms that change something."""
        if self._form.views:
            return state
        unseen = ("switchboard.audit ", "switchboard.pairing_code ") if self._form.intends else ("switchboard.audit ",)
        return Counter({row: number for row, number in state.items() if not row.startswith(unseen)})

    def _tells(self, refused: str) -> bool:
        return bool(self._form.told) and self._form.told in refused

    def describe(self, played: Played) -> str:
        """The rows in which it differs."""
        lines = [f"{played.answer.status} {played.answer.refused}"]
        for title, state, wanted in (("restarted", played.before, self._once), ("again", played.after, self._once)):
            lines += [f"    {title}: + {row[:200]}" for row in (state - wanted).elements()]
            lines += [f"    {title}: - {row[:200]}" for row in (wanted - state).elements()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Played:
    """A form that was sent twice around a kill.

    The states when it was filled in, after the restart, and after the second time, with the page that this led to.
    """

    filled: State
    before: State
    after: State
    answer: AnsweredForm
    took: float
    changes: Sequence[int] = ()
    """Of the database, as `PostgresGate` has them."""
    files: tuple[int, int] = (0, 0)
    """How many changes of files there were before the form was sent, and before it was answered."""


class FormsWorld:
    """One house and its copies, each with a server."""

    def __init__(self, database: EmbeddedServer, administrator: asyncpg.Connection, gate: PostgresGate) -> None:
        self._database = database
        self._administrator = administrator
        self._gate = gate
        self._gate_place = Path()
        self._number = 0
        self.place = Path()
        self.ids: Mapping[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def opened(cls, directory: Path) -> AsyncIterator[FormsWorld]:
        """With the house filled."""
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(embedded_postgres(directory / "database", settings=FAST))
            administrator = await asyncpg.connect(_url_with(database.url, "postgres"))
            stack.push_async_callback(administrator.close)
            bot = await stack.enter_async_context(BotApi())
            (directory / "gate").mkdir()
            world = cls(
                database, administrator, await stack.enter_async_context(open_gate(database, directory / "gate"))
            )
            world._gate_place, world.place = directory / "gate", directory
            await administrator.execute(f"create database {_HOUSE}")
            house = directory / _HOUSE
            (house / "home").mkdir(parents=True)
            url = _url_with(database.url, _HOUSE)
            ids = await fill(url, house / "data", house / "home" / "channels.d", bot.url)
            world.ids = {**ids, "bot": bot.url}
            yield world

    async def play(self, form: FilledForm, kill: Kill, *, watched: bool = False) -> Played:
        """Send it in a copy of the house, kill, start again, and send it again."""
        self._number += 1
        name, place = f"copy_{self._number}", self.place / f"copy_{self._number}"
        await self._administrator.execute(f"create database {name} template {_HOUSE} strategy file_copy")
        shutil.copytree(self.place / _HOUSE, place)
        try:
            return await FormRound(
                self._gate, self._url_of(name), _url_with(self._database.url, name), place, self.ids
            ).play(form, kill, watched=watched)
        finally:
            await self._administrator.execute(f"drop database {name} with (force)")
            shutil.rmtree(place)

    def _url_of(self, name: str) -> str:
        """Through the gate."""
        place = quote(str(self._gate_place))
        return f"postgresql://postgres@/{name}?host={place}&port={self._database.port}"


def _url_with(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl().replace("postgres@/", "postgres@/")


class FormRound:
    """One copy of the house, and the two lives of its server."""

    def __init__(self, gate: PostgresGate, url: str, direct_url: str, place: Path, ids: Mapping[str, str]) -> None:
        self._gate = gate
        self._direct_url = direct_url
        self._place = place
        self._ids = ids
        self._port = free_port()
        self._env = environment(
            place / "data",
            DATABASE_URL=url,
            CHANNELS_DIR=str(place / "home" / "channels.d"),
            PORT=str(self._port),
            LOG_LEVEL="error",
        ) | {PLACE: str(place / "home"), CHANGES: str(place / "changes")}

    async def play(self, form: FilledForm, kill: Kill, *, watched: bool) -> Played:
        """The whole round."""
        database = await asyncpg.connect(self._direct_url)
        sender = FormSender(self._port, self._ids["secret"])
        try:
            await database.execute("update switchboard.web_session set created_at = now()")
            async with self._life(dies_at=int(kill.at) if kill.kind == "file" else 0) as server:
                filled = await self._fill_in(sender, form)
                state, files = await self._state(database), self._count_file_changes()
                if watched:
                    await self._gate.watch()
                took = await self._send(sender, filled, kill, server)
                if watched:
                    await self._gate.stop_watching()
            changed = files, self._count_file_changes()
            await _alone(database)
            async with self._life():
                before = await self._state(database)
                answer = await sender.send(filled)
                after = await self._state(database)
            if form.starts:
                await _alone(database)
                async with self._life():
                    after = await self._state(database)
            return Played(state, before, after, answer, took, tuple(self._gate.changes), changed)
        finally:
            await sender.aclose()
            await database.close()

    @asynccontextmanager
    async def _life(self, dies_at: int = 0) -> AsyncIterator[Server]:
        """A server that is killed at the end, if it has not died before."""
        env = self._env | {DIES_AT: str(dies_at)}
        living = running(env, "-m", "tests.chaos.forms_node", "serve", cwd=self._place / "home")
        server = await asyncio.to_thread(living.__enter__)
        try:
            yield server
        finally:
            with suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(living.__exit__, None, None, None)

    async def _fill_in(self, sender: FormSender, form: FilledForm) -> SentForm:
        html = ""
        for step in form.way:
            answer = await sender.send(await self._filled(sender, html, step))
            assert not answer.refused, (step.path, answer.refused)
            html = answer.html
        return await self._filled(sender, html, form)

    async def _filled(self, sender: FormSender, html: str, form: FilledForm) -> SentForm:
        """As the page before has it, or else its own."""
        path = self._named(form.path)
        if f'action="/ui{path}"' not in html.replace("#model", ""):
            html = await sender.open(self._named(form.page))
        entered = {name: self._named(text) for name, text in form.entered.items()}
        return sender.fill_in(html, path, entered, files=form.files)

    def _named(self, text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self._ids[found[1]], text)

    async def _send(self, sender: FormSender, form: SentForm, kill: Kill, server: Server) -> float:
        """Until it is answered, or its server was killed; the seconds that this took."""

        def die() -> None:
            with suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGKILL)

        if kill.kind == "message":
            self._gate.arm(int(kill.at), die)
        if kill.kind == "after":
            asyncio.get_running_loop().call_later(kill.at, die)
        began = time.monotonic()
        with suppress(httpx2.HTTPError):
            await sender.send(form)
        self._gate.arm(0, die)
        return time.monotonic() - began

    def _count_file_changes(self) -> int:
        return (self._place / "changes").stat().st_size

    async def _state(self, database: asyncpg.Connection) -> State:
        rows: State = Counter()
        for [table] in await database.fetch(_TABLES):
            if table in _UNWATCHED:
                continue
            for [text] in await database.fetch(f"select to_jsonb(t)::text from {table} t"):  # noqa: S608  its names
                rows[f"{table} {self._same_each_time(text)}"] += 1
        for file in sorted((self._place / "home").rglob("*")):
            if _DRAFTS in file.parts:
                continue
            content = file.read_bytes().decode(errors="replace") if file.is_file() else "/"
            rows[f"{file.relative_to(self._place)} {self._same_each_time(content)}"] += 1
        return rows

    def _same_each_time(self, text: str) -> str:
        known = set(self._ids.values())
        text = _UUID.sub(lambda found: found[0] if found[0] in known else "ID", text)
        return _BYTES.sub("BYTES", _TIME.sub("TIME", text)).replace(str(self._place), "PLACE")


def _all_of(state: State) -> State:
    return state


def _in_force(state: State) -> State:
    """Without files that nobody reads: what is left of something that was begun."""
    left = {row for row in state if row.startswith("home/") and not _READ.match(row)}
    return Counter({row: number for row, number in state.items() if row not in left})


async def _alone(database: asyncpg.Connection) -> None:
    """Nobody else is connected: what the server had begun is over."""
    async with asyncio.timeout(_WITHIN_S):
        while await database.fetchval(_OTHERS):
            await asyncio.sleep(0.01)


def main() -> int:
    """As the command line says."""
    plan = asked_for(FormsPlan, __doc__)
    directory = a_directory()
    try:
        report = asyncio.run(run(plan, directory))
    finally:
        end_forking()
    print(msgspec.json.encode(report).decode())
    return exit_code(directory, well=report.clean)


if __name__ == "__main__":
    sys.exit(main())

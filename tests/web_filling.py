"""What the house of `web_house.py` has besides messages: a person, what is known of them, and tasks of theirs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid5

from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.modules.schedule import ledger
from switchboard.modules.schedule.ledger import FiringEnd, NewTask
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import ACCOUNT, OpenSchedule
from switchboard.modules.schedule.planning import Kind, TaskTiming, first_due
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.ports.facts import Reader
from switchboard.ports.gates import Gate
from switchboard.ports.module_store import ModuleStore
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.modules.opening import ModuleRooms
from tests.doors import RememberingDoor, an_origin
from tests.servers import Opened

HOUSE: Final = SystemId("System1/house")
ANN: Final = Reader(HOUSE, Conversation("telegram/bot%3Ahouse/ann"), "telegram/bot%3Ahouse/ann", private=True)
BEN: Final = Reader(HOUSE, Conversation("telegram/bot%3Ahouse/ben"), "telegram/bot%3Ahouse/ben", private=True)
HOSTILE: Final = "<img src=x onerror=alert(1)> call me \u202egnp"
_TASKS: Final[tuple[tuple[str, Reader, Kind, str], ...]] = (
    ("Water the tomatoes", ANN, "say", "0 18 * * *"),
    ("Look whether the invoice of the plumber has come", ANN, "do", "0 8 * * 1"),
    ("Write down the numbers of the meters", BEN, "do", "0 7 1 * *"),
    ("Put the paper bin out", BEN, "say", "30 19 * * 1"),
)


async def add_person(server: Opened) -> None:
    """Ann, who is known by one handle; nobody has said who Ben is."""
    await server.http.post("/v1/people", json={"person_id": "ann", "name": "Ann Weber"})
    handle = {"channel": "telegram", "endpoint": "bot:house", "identity": "ann"}
    assert (await server.http.post("/v1/people/ann/link", json=handle)).is_success


async def add_tasks(server: Opened) -> list[UUID]:
    """Some that are to come, the first of which was carried out, and one that is paused."""
    rooms = ModuleRooms(server.lab.database)
    assert await rooms.migrate([MANIFEST]) == {}
    store = rooms.stores(MANIFEST)(ACCOUNT)
    made = [await _add_task(store, *one) for one in _TASKS]
    assert (await server.http.post(f"/v1/tasks/{made[0]}/run")).is_success
    await OpenSchedule(store, RememberingDoor(), TaskLimits()).chores[0].run(store)
    assert (await server.http.post(f"/v1/tasks/{made[2]}/run")).is_success
    [open_one] = await ledger.open_firings(store, 10, 10)
    why = "the butler did not answer: the model server refused: 400 Bad Request"
    await ledger.finish_firing(store, open_one, FiringEnd("failed", why=why))
    await ledger.pause_task(store, made[3], "nothing can be sent there: the bot was blocked")
    return made


async def _add_task(store: ModuleStore, text: str, reader: Reader, kind: Kind, cron: str) -> UUID:
    timing = TaskTiming("Europe/Berlin", cron=cron)
    gate = Gate("mail_search", {"query": "invoice plumber"}) if "invoice" in text else None
    new = NewTask(uuid5(UUID(int=0), text), kind, text, own=True, tainted=False, origin=an_origin(), gate=gate)
    due = first_due(timing, (await ledger.look_around(store)).now)
    return (await ledger.add_task(store, new, reader, timing, due)).task_id


_ENTRY: Final = """
insert into entry (lane, position, request_id, role, person, private, text, created_at, compacted_at)
select lane_key('turn', $1, conversation_key($2)), 1, $3, 'user', $2, true, $4, now(), now()"""
_RUN: Final = """
insert into consolidation_run (run, lane, system_id, person, first_position, last_position, episodes, model, tokens,
                               cost_usd, outcome, facts, ended_at)
select $1, lane_key('turn', $2, conversation_key($3)), $2, $3, 1, 1, 1, 'local', 1834, 0, 'kept', 1, now()"""
_SUMMARY: Final = """
insert into summary (lane, position, summary_id, first_position, person, private, text, told)
select lane_key('turn', $1, conversation_key($2)), 1, $3, 1, $2, true, $4, true"""


async def add_memory(server: Opened, request_id: UUID, text: str) -> None:
    """Facts of Ann and Ben: one from this message of Ann, found by a run, which replaced one that she told before."""
    database, run, then = server.lab.database, new_uuid7(), datetime.now(UTC) - timedelta(days=200)
    lives = NewFact(ANN.person, "self", True, "I live in Leeds", (), "lives_at", "Leeds", said_at=then)
    assert await facts.learn(database, ANN, lives) == 1
    await database.run(_ENTRY, HOUSE, ANN.person, request_id, text)
    await database.run(_RUN, run, HOUSE, ANN.person)
    moved = NewFact(ANN.person, "self", True, "I live in York", (1,), "lives_at", "York", run=run)
    for who, new in (
        (ANN, moved),
        (ANN, NewFact(ANN.person, "Noor", True, "Noor is allergic to walnuts", (), "allergic_to", "walnuts")),
        (BEN, NewFact(BEN.person, "self", True, HOSTILE, ())),
    ):
        assert await facts.learn(database, who, new) == 1
    await database.run(_SUMMARY, HOUSE, ANN.person, new_uuid7(), "Ann has moved to York and asked about the bins.")


_SYNC: Final = """
insert into chore (module, account, name, every, next_at, last_at, last_error)
values ('calendar', 'ann', 'sync', interval '5 minutes', now() + interval '4 minutes', now() - interval '1 minute',
        'the server refused the password')"""


async def add_sync(server: Opened) -> None:
    """The calendar of Ann, which cannot be brought up to date."""
    await server.lab.database.run(_SYNC)

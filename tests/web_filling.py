"""What the house of `web_house.py` has besides messages: a person, and tasks of theirs."""

from __future__ import annotations

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
from switchboard.store.modules.opening import ModuleRooms
from tests.doors import RememberingDoor, an_origin
from tests.servers import Opened

HOUSE: Final = SystemId("System1/house")
ANN: Final = Reader(HOUSE, Conversation("telegram/bot%3Ahouse/ann"), "telegram/bot%3Ahouse/ann", private=True)
BEN: Final = Reader(HOUSE, Conversation("telegram/bot%3Ahouse/ben"), "telegram/bot%3Ahouse/ben", private=True)
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

"""`/v1/tasks` and `switchboard tasks`: operators see every task and what became of it, and carry out one again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from switchboard.app.access import Principal
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.modules.schedule import ledger
from switchboard.modules.schedule.ledger import NewTask
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import ACCOUNT, OpenSchedule
from switchboard.modules.schedule.planning import TaskTiming, first_due
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.ports.facts import Reader
from switchboard.ports.gates import Gate
from switchboard.ports.module_store import ModuleStore
from switchboard.store.modules.opening import ModuleRooms
from tests.commands import Cli
from tests.doors import RememberingDoor, an_origin
from tests.servers import Opened, open_server

READER = Reader(SystemId("butler"), Conversation("telegram:home:ann"), "telegram/home/ann", private=True)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data") as opened:
        yield opened


GATE = Gate("mail_search", {"query": "invoice"})


async def make_task(server: Opened, gate: Gate | None = None) -> tuple[ModuleStore, UUID]:
    """A task of Ann that is due every morning."""
    rooms = ModuleRooms(server.lab.database)
    assert await rooms.migrate([MANIFEST]) == {}
    store, timing = rooms.stores(MANIFEST)(ACCOUNT), TaskTiming("Europe/Berlin", cron="0 7 * * *")
    new = NewTask(uuid4(), "say", "water the tomatoes", own=True, tainted=False, origin=an_origin(), gate=gate)
    due = first_due(timing, (await ledger.look_around(store)).now)
    return store, (await ledger.add_task(store, new, READER, timing, due)).task_id


async def test_operators_see_tasks_cancel_them_and_let_them_go_on(server: Opened) -> None:
    assert (await server.http.get("/v1/tasks")).json()["tasks"] == []
    assert await server.lab.database.value("select to_regnamespace('switchboard_schedule')") is None, "only looked at"
    store, task_id = await make_task(server)
    door = RememberingDoor()
    schedule = OpenSchedule(store, door, TaskLimits())
    await ledger.pause_task(store, task_id, "the butler is switched off")
    [listed] = (await server.http.get("/v1/tasks", params={"state": "paused"})).json()["tasks"]
    assert (listed["text"], listed["why"], listed["due"]) == ("water the tomatoes", "the butler is switched off", None)

    ran = (await server.http.post(f"/v1/tasks/{task_id}/run")).json()["ledger"]
    assert (ran["task"]["state"], [one["state"] for one in ran["firings"]]) == ("active", ["due"])
    await schedule.chores[0].run(store)
    assert door.texts == ["water the tomatoes"]
    shown = (await server.http.get(f"/v1/tasks/{task_id}")).json()["ledger"]
    assert [one["state"] for one in shown["firings"]] == ["said"]

    assert (await server.http.post(f"/v1/tasks/{task_id}/cancel")).json()["ledger"]["task"]["state"] == "cancelled"
    for path, status in (("cancel", 409), ("run", 409)):
        assert (await server.http.post(f"/v1/tasks/{task_id}/{path}")).status_code == status
    assert (await server.http.get(f"/v1/tasks/{uuid4()}")).status_code == 404
    assert (await server.http.get("/v1/tasks", params={"state": "stopped"})).status_code == 422
    assert (await server.http.get("/v1/tasks", params={"start": "%"})).status_code == 422
    actions = await server.http.get("/v1/audit")
    assert {"tasks:run", "tasks:cancelled"} <= {one["action"] for one in actions.json()["entries"]}


A_WEEK_LATER: Final = """
update switchboard_schedule.task
set next_at = next_at - interval '7 days', next_wall = next_wall - interval '7 days', wall = wall - interval '7 days'
"""


async def run_chore(store: ModuleStore) -> RememberingDoor:
    """What workers do every second; what was said."""
    door = RememberingDoor()
    await OpenSchedule(store, door, TaskLimits()).chores[0].run(store)
    return door


async def change(server: Opened, task_id: UUID, what: str, reason: str, status: int = 200) -> dict[str, Any]:
    answer = await server.http.post(f"/v1/tasks/{task_id}/{what}", json={"reason": reason})
    assert answer.status_code == status, answer.text
    return dict(answer.json()["ledger"]["task"] if status == 200 else answer.json()["error"])


async def test_a_paused_task_is_not_due_and_goes_on_at_its_next_time(server: Opened) -> None:
    store, task_id = await make_task(server)
    assert (await server.http.post(f"/v1/tasks/{task_id}/run")).status_code == 200
    paused = await change(server, task_id, "pause", "away for a week")
    assert (paused["state"], paused["why"], paused["due"]) == ("paused", "paused by operator-1: away for a week", None)
    assert abs(datetime.fromisoformat(paused["paused_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert "paused already" in (await change(server, task_id, "pause", "away for a week", 409))["message"]
    await server.lab.database.run(A_WEEK_LATER)
    assert (await run_chore(store)).texts == []

    resumed = await change(server, task_id, "resume", "back again")
    assert (resumed["state"], resumed["why"], resumed["paused_at"]) == ("active", "", None)
    assert datetime.fromisoformat(resumed["due"]) > datetime.now(UTC)
    assert "active, and not paused" in (await change(server, task_id, "resume", "back again", 409))["message"]
    assert (await run_chore(store)).texts == []
    shown = (await server.http.get(f"/v1/tasks/{task_id}")).json()["ledger"]["firings"]
    assert [(one["state"], one["why"]) for one in shown] == [("skipped", "the task was paused")]
    kept = (await server.http.get("/v1/audit")).json()["entries"]
    told = [(one["action"], one["actor"], one["detail"].get("reason")) for one in kept if "tasks:" in one["action"]]
    assert told[:2] == [
        ("tasks:resumed", "operator-1", "back again"),
        ("tasks:paused", "operator-1", "away for a week"),
    ], "and no row for what was refused"


async def test_of_orders_at_once_the_later_ones_see_what_the_first_has_done(server: Opened) -> None:
    _, task_id = await make_task(server)
    answers = await asyncio.gather(*(server.http.post(f"/v1/tasks/{task_id}/cancel") for _ in range(3)))
    refused = [one.json()["error"]["message"] for one in answers if one.status_code == 409]
    assert refused == ["the task is cancelled already, and is not due again"] * 2


async def test_what_was_due_once_is_resumed_only_before_its_time(server: Opened) -> None:
    store, task_id = await make_task(server)
    await server.lab.database.run("update switchboard_schedule.task set wall = next_wall, cron = ''")
    before = (await server.http.get(f"/v1/tasks/{task_id}")).json()["ledger"]["task"]["due"]
    await change(server, task_id, "pause", "perhaps not")
    assert (await change(server, task_id, "resume", "after all"))["due"] == before
    await change(server, task_id, "pause", "perhaps not")
    await server.lab.database.run(A_WEEK_LATER)
    refused = await change(server, task_id, "resume", "after all", 409)
    assert refused["message"] == "its time has passed while it was paused: carry it out now, or cancel it"
    assert (await change(server, task_id, "run", "after all"))["state"] == "done"
    assert (await run_chore(store)).texts == ["water the tomatoes"]
    assert "done already" in (await change(server, task_id, "pause", "too late", 409))["message"]


async def test_nothing_is_changed_without_a_row_in_the_audit(server: Opened) -> None:
    store, task_id = await make_task(server)
    await server.lab.database.run("alter table audit rename to elsewhere")
    for what in ("pause", "run", "cancel"):
        assert (await server.http.post(f"/v1/tasks/{task_id}/{what}")).status_code == 500
    task = await ledger.find_task(store, task_id)
    assert task is not None
    assert task.state == "active"
    assert await ledger.firings_of(store, task_id, 10) == []


async def test_a_paused_task_without_a_next_time_is_over_once_it_was_run(server: Opened) -> None:
    store, task_id = await make_task(server)
    await server.lab.database.run("update switchboard_schedule.task set wall = next_wall, cron = ''")
    await ledger.pause_task(store, task_id, "the butler is switched off")
    door = RememberingDoor()
    door.closed = "the butler is switched off"
    for state in ("paused", "done"):
        assert (await server.http.post(f"/v1/tasks/{task_id}/run")).status_code == 200
        await server.lab.database.run("update switchboard_schedule.firing set due = due - interval '1 second'")
        await OpenSchedule(store, door, TaskLimits()).chores[0].run(store)
        shown = (await server.http.get(f"/v1/tasks/{task_id}")).json()["ledger"]
        assert shown["task"]["state"] == state
        door.closed = ""
    assert "water the tomatoes" in door.texts


async def test_only_operators_see_tasks(server: Opened) -> None:
    _, task_id = await make_task(server)
    headers = await server.token_for(Principal("agent", "memo", system_id="System1/memo"))
    for path in ("", f"/{task_id}"):
        assert (await server.http.get(f"/v1/tasks{path}", headers=headers)).status_code == 403


async def test_the_command_line_shows_the_ledger(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, task_id = await make_task(server, GATE)
    cli = Cli(capsys, monkeypatch, server.environment)

    def tell_story() -> None:
        assert "water the tomatoes" in cli.says("tasks", "list")
        assert cli.says("tasks", "list", "--butler", "memo").split() == ["none"]
        assert "--state active" in cli.says("tasks", "list", "--state", "active", "--limit", "1")  # of the next page
        assert "due now" in cli.says("tasks", "run", task_id)
        shown = cli.says("tasks", "show", str(task_id)[:4])
        assert [cli.says("tasks", "show", one) for one in (task_id, task_id.hex[:30], task_id.hex[-8:])] == [shown] * 3
        for start, code, told in (
            ("3f2", 2, "first 4"),
            ("0000", 5, "no task has an id that begins or ends with 0000"),
        ):
            assert cli.run("tasks", "show", start)[0] == code
            assert told in " ".join(cli.run("tasks", "show", start)[2].replace("│", "").split())
        assert "0 7 * * * Europe/Berlin" in shown
        assert "firing" in shown
        assert '{"tool":"mail_search","arguments":{"query":"invoice"}' in shown

    def tell_end() -> None:
        assert "failed, condition 2: no tools can be called here" in " ".join(
            cli.says("tasks", "show", task_id).split()
        )
        assert "switchboard tasks resume" in cli.says("tasks", "pause", task_id, "--reason", "too loud")
        assert ": paused by operator-1: too loud" in " ".join(cli.says("tasks", "show", task_id).split())
        assert ": resumed; next 20" in cli.says("tasks", "resume", task_id.hex[:9])
        assert "cancelled" in cli.says("tasks", "cancel", task_id.hex[:9])

    await asyncio.to_thread(tell_story)
    await OpenSchedule(store, RememberingDoor(), TaskLimits()).chores[0].run(store)
    await asyncio.to_thread(tell_end)

"""A message that was sent to the wrong butler is sent to another one by hand, and nobody answers it twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from switchboard.ports.engine import Answer, EngineFailure, Journal, Turn, TurnResult
from switchboard.store.books import audit_books
from tests.commands import Cli
from tests.hands import Scripted, at_work
from tests.lab import envelope_json
from tests.routing import butler, rule, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually

TREE = (
    (team_of(butler("busy", "busy"), butler("free", "free"), butler("third", "free"), "System4/root"),),
    (rule("System1/busy", channel="telegram"), rule("System1/busy", "System1/third", channel="slack")),
)
FREE = {"system_id": "System1/free"}


@dataclass
class Busy:
    """An engine that is in the middle of what a message asks for until it is let through."""

    texts: list[str] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    through: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, turn: Turn, journal: Journal) -> TurnResult:
        self.texts.append(turn.text)
        self.entered.set()
        if turn.text == "fail":
            raise EngineFailure("no answer", retryable=True)
        if turn.text == "park":
            await journal.expect("asks")
            await journal.wait("asks")
        if turn.text == "wait":
            await self.through.wait()
        return Answer(f"busy: {turn.text}")


@dataclass(frozen=True)
class Office:
    """A server, its worker, and the engine that is busy."""

    server: Opened
    busy: Busy

    async def write(self, text: str, channel: str = "telegram") -> UUID:
        answer = await self.server.submit(envelope_json(text, channel=channel))
        assert answer.is_success, answer.text
        return UUID(answer.json()["request_id"])

    async def reroute(self, request_id: UUID, **body: Any) -> httpx2.Response:
        order = {"reason": "free knows", "to": FREE, **body}
        return await self.server.http.post(f"/v1/messages/{request_id}/reroute", json=order)

    async def answers(self, request_id: UUID, wait_s: int = 10) -> list[str]:
        answer = await self.server.http.get(f"/v1/messages/{request_id}/replies", params={"wait_s": wait_s})
        return [one["text"] for one in answer.json()["replies"]]

    async def explain(self, request_id: UUID) -> Any:
        return (await self.server.http.get(f"/v1/messages/{request_id}/explain")).json()


async def _answer_at_once(turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG001
    return Answer(f"free: {turn.text}")


@asynccontextmanager
async def open_office(database_url: str, place: Path) -> AsyncIterator[Office]:
    """An office with both engines at work."""
    busy = Busy()
    engines = {"busy": Scripted(busy.play), "free": Scripted(_answer_at_once)}
    async with open_server(database_url, place, tree=TREE) as server, at_work(server.lab.worker(engines)):
        try:
            yield Office(server, busy)
        finally:
            busy.through.set()


@pytest.mark.parametrize("held", ["running", "queued", "retrying", "parked"])
async def test_what_a_butler_has_not_answered_is_answered_by_another(
    database_url: str, tmp_path: Path, held: str
) -> None:
    async with open_office(database_url, tmp_path / "data") as office:
        first = await office.write({"retrying": "fail", "parked": "park"}.get(held, "wait"))
        await office.busy.entered.wait()
        if held == "parked":
            await eventually(lambda: _count_parked(office))
        moved = await office.write("second") if held == "queued" else first
        done = await office.reroute(moved)
        assert done.status_code == 200, done.text
        assert done.json()["withdrawn"] == ["System1/busy"]
        assert [one["system_id"] for one in done.json()["deliveries"]] == ["System1/free"]
        text = office.busy.texts[0] if moved == first else "second"
        assert await office.answers(moved) == [f"free: {text}"]

        office.busy.through.set()
        last = await office.write("last")
        assert await office.answers(last) == ["busy: last"], "the lane goes on"
        assert await office.answers(moved, 0) == [f"free: {text}"]
        assert ("second" in office.busy.texts) is False

        told = await office.explain(moved)
        step = told["decisions"][1]["trail"][0]
        assert (step["reason"], step["detail"]) == ("by_hand", "by operator-1: free knows")
        states = {one["delivery"]["system_id"]: one["delivery"]["state"] for one in told["deliveries"]}
        assert states == {"System1/busy": "cancelled", "System1/free": "answered"}
        assert (await audit_books(office.server.lab.database)).balanced


async def _count_parked(office: Office) -> bool:
    return bool(await office.server.lab.database.value("select count(*) from parked"))


async def test_only_one_of_several_is_replaced(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path / "data") as office:
        sent = await office.write("wait", channel="slack")
        await office.busy.entered.wait()
        assert await eventually_answers(office, sent, ["free: wait"])
        refused = await office.reroute(sent, instead_of="System1/nobody", again=True)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_there")
        done = await office.reroute(sent, instead_of="System1/busy")
        assert done.json()["withdrawn"] == ["System1/busy"]
        assert await eventually_answers(office, sent, ["free: wait", "free: wait"])


async def eventually_answers(office: Office, request_id: UUID, texts: list[str]) -> bool:
    """True as soon as these are the answers."""

    async def there() -> bool:
        return await office.answers(request_id, 0) == texts

    await eventually(there)
    return True


async def test_what_was_answered_is_sent_on_only_on_purpose(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_office(database_url, tmp_path / "data") as office:
        sent = await office.write("hello")
        assert await office.answers(sent) == ["busy: hello"]
        refused = await office.reroute(sent)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_answered")
        refused = await office.reroute(sent, to={"system_id": "System1/busy"}, again=True)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_delivered")
        refused = await office.reroute(sent, to={"system_id": "System1/nobody"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unknown_target")
        cli = Cli(capsys, monkeypatch, office.server.environment)
        said = await asyncio.to_thread(
            cli.says, "messages", "reroute", sent, "--to", "free", "--reason", "free knows", "--again"
        )
        assert "is rerouted to System1/free (decision 2)" in said
        assert await eventually_answers(office, sent, ["busy: hello", "free: hello"])
        entries = (await office.server.http.get("/v1/audit", params={"action": "message:rerouted"})).json()["entries"]
        assert [(one["actor"], one["detail"]["reason"]) for one in entries] == [("operator-1", "free knows")]


async def test_a_dead_letter_of_a_rerouted_message_is_settled(database_url: str, tmp_path: Path) -> None:
    async with open_office(database_url, tmp_path / "data") as office:
        sent = await office.write("hello", channel="email")
        done = await office.reroute(sent)
        assert done.status_code == 200, done.text
        assert await office.answers(sent) == ["free: hello"]
        letters = (await office.server.http.get("/v1/dead-letters", params={"status": "handled"})).json()[
            "dead_letters"
        ]
        assert [(one["request_id"], one["resolution"]) for one in letters] == [(str(sent), "free knows")]
        assert (await audit_books(office.server.lab.database)).balanced

"""A server is killed at one point after another while it erases a person, and a worker while it removes their files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.core.envelope.read import read_envelope
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.journey.accept import Submission
from switchboard.journey.compaction import Compactor
from switchboard.lanes.faults import Point
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry
from switchboard.store.memory import facts, history
from switchboard.store.memory.facts import NewFact
from switchboard.testing.echo import Echo
from tests.forked import Forked, Forks
from tests.hands import assert_balanced, at_work, settled
from tests.integration.test_compaction import OneModel
from tests.kept_words import find_in_tables
from tests.lab import Lab, butler, envelope_json, lab, rule, team_of
from tests.ports import free_port
from tests.processes import environment
from tests.servers import NO_TLS
from tests.waiting import eventually
from tests.width import wide

pytestmark = pytest.mark.slow

WORD: Final = "zebrafinch"
BOBS: Final = "cockatoo"
MESSAGES: Final = 451
"""Of Ann: three batches, of one less histories, as one is in a group."""
ECHO: Final = SystemId("System1/echo")
ANN: Final = "telegram/bot%3Ahouse/5488"
BOB: Final = "telegram/bot%3Ahouse/77"
TREE: Final = (
    (team_of(butler("own"), butler("echo")),),
    (rule("System1/own", channel="telegram", endpoint="bot:own"), rule("System1/echo", channel="telegram")),
)
POINTS: Final[tuple[tuple[Point, str, int], ...]] = (
    ("erasure_begun", "", MESSAGES),
    ("files_ordered", "", MESSAGES),
    ("erased_kind", "contacts", MESSAGES),
    ("erased_batch", "messages", MESSAGES - 200),
    ("erased_batch", "messages", MESSAGES - 400),
    ("erased_kind", "messages", 0),
    ("erased_batch", "history", 0),
    ("erased_batch", "history", 0),
    ("erased_kind", "history", 0),
    ("erased_kind", "summaries", 0),
    ("erased_batch", "facts", 0),
    ("erased_kind", "facts", 0),
    ("erased_batch", "facts by others", 0),
    ("erased_batch", "turns of others", 0),
)
"""Where a server dies, while it erases what, and how many messages then still have the person's words."""


async def say_much(parts: Lab, number: int) -> None:
    """Ann in as many conversations as she says things, Bob in five; all is answered and in histories."""
    said = [("5488", f"{WORD} {n}", "bot:own" if n % 2 else "bot:house") for n in range(MESSAGES - 1)]
    said += [("77", f"{BOBS} {n}", "bot:house") for n in range(5)]
    given = [json.dumps(_alone(*one)).encode() for one in said]
    given += [json.dumps(_in_group(*one)).encode() for one in (("5488", WORD), ("77", BOBS))]
    await parts.accept.accept_all([Submission(read_envelope(raw), raw) for raw in given])
    async with at_work(parts.worker({"echo": Echo()})):
        await eventually(lambda: settled(parts), within=120)
    await parts.database.run("update outbox set state = 'sent'")
    await parts.database.run(
        "select save_entry(d.lane, d.request_id, r.role,"
        "  'telegram/' || replace(m.endpoint, ':', '%3A') || '/' || m.sender, true, o.text)"
        " from delivery d join message_inbox m using (request_id) join outbox o using (request_id)"
        " cross join unnest(array['user', 'assistant']) r (role)"
        " where m.thread <> '-5' and o.text <> ''"
    )
    await learn(parts, number)


def _alone(sender: str, text: str, endpoint: str) -> Mapping[str, Any]:
    thread = text.partition(" ")[2]
    return envelope_json(text, sender=sender, endpoint=endpoint, chat_type="private", thread=thread)


def _in_group(sender: str, text: str) -> Mapping[str, Any]:
    return envelope_json(f"{text} among others", sender=sender, thread="-5", chat_type="group")


async def learn(parts: Lab, number: int) -> None:
    """What models have made of it, the time of this number: facts, one of them Bob's about Ann, what his turn in the
    group noted, and a summary of that.
    """
    hers, his = (Reader(ECHO, Conversation(one), one, private=True) for one in (ANN, BOB))
    for by, about, text in (
        *((hers, "self", f"I keep the {WORD} {number}.{n}") for n in range(3)),
        (his, "Ann", f"She keeps the {WORD} {number}"),
        (his, "self", f"I keep the {BOBS} {number}"),
    ):
        assert await facts.learn(parts.database, by, NewFact(by.person, about, True, text, ())) == 1
    [*_, last] = await parts.database.rows(
        "select d.request_id, d.lane, d.seq from delivery d join message_inbox m using (request_id)"
        " where m.thread = '-5' and m.sender = '77' order by d.request_id"
    )
    await parts.database.run(
        "insert into step (request_id, lane, seq, path, effect, state, idempotency_key, epoch, result)"
        " values ($1, $2, $3, 'start', 'idempotent', 'done', gen_random_uuid(), 1, $4)",
        *(*last, {"text": WORD}),
    )
    await parts.database.run(
        "insert into summary (lane, position, summary_id, first_position, person, private, text)"
        " values ($1, $2, gen_random_uuid(), 1, '', false, $3)",
        *(last["lane"], number, WORD),
    )


async def start_compaction(parts: Lab, number: int, released: asyncio.Event) -> asyncio.Task[str | None]:
    """A compaction of what Ann has said, which has read it, and waits for the answer of its model."""
    by, asked = Reader(ECHO, Conversation(f"{ANN}/{number}"), ANN, private=True), asyncio.Event()
    for n in range(20):
        for entry in (Entry("user", f"I keep the {WORD} {n}"), Entry("assistant", "Noted.")):
            await history.save(parts.database, by, entry)

    async def wait() -> str:
        asked.set()
        await released.wait()
        return json.dumps({"summary": WORD, "facts": []})

    lane = await parts.database.value("select lane_key('turn', $1, conversation_key($2))", ECHO, by.conversation)
    compacting = asyncio.create_task(Compactor(parts.database, OneModel(wait), ["cheap"]).compact(LaneKey(lane)))
    await asked.wait()
    return compacting


class Installation:
    """Real processes on one database and one data directory."""

    def __init__(self, forks: Forks, database_url: str, place: Path) -> None:
        self._forks = forks
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._place = place
        self._env = {**os.environ, **environment(place / "data", PORT=str(port), DATABASE_URL=database_url)}

    def start(self, command: str, crash_at: str = "") -> Forked:
        env = {**self._env, "SWITCHBOARD_CRASH_AT": crash_at}
        return self._forks.start("switchboard.cli.main", command, env=env, errors=self._place / "errors")

    async def post(self, server: Forked, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer once the server is up; None: it died before it answered."""
        answers: list[httpx2.Response] = []
        async with httpx2.AsyncClient(verify=NO_TLS, timeout=60) as client:

            async def has_answered_or_died() -> bool:
                try:
                    found = await client.post(f"{self._url}{path}", json=body, headers=self._bearer())
                except httpx2.TransportError:
                    return server.returncode is not None
                if found.status_code != httpx2.codes.UNAUTHORIZED:  # as long as there is no token yet
                    answers.append(found)
                return bool(answers)

            await eventually(has_answered_or_died, within=60)
        for answer in answers:
            assert answer.is_success, answer.text
        return dict(answers[0].json()) if answers else None

    def _bearer(self) -> Mapping[str, str]:
        file = self._place / "data" / "operator.token"
        return {"authorization": f"Bearer {file.read_text().strip()}"} if file.exists() else {}

    async def erase(self, crash_at: str = "", *, dry_run: bool = False) -> dict[str, Any] | None:
        """By a server of its own."""
        server = self.start("serve", crash_at)
        try:
            answer = await self.post(server, "/v1/people/ann/erase", {"dry_run": dry_run})
            if answer is None:
                assert await server.wait() == -signal.SIGKILL
            return answer and dict(answer["erasure"])
        finally:
            server.kill()
            await server.wait()

    async def add_ann(self) -> None:
        server = self.start("serve")
        try:
            await self.post(server, "/v1/people", {"person_id": "ann", "name": "Ann"})
            await self.post(server, "/v1/people/ann/link", {"channel": "telegram", "identity": "5488"})
        finally:
            server.kill()
            await server.wait()


async def test_a_person_is_erased_however_often_the_server_is_killed_meanwhile(
    forks: Forks, database_url: str, tmp_path: Path
) -> None:
    house = Installation(forks, database_url, tmp_path)
    workspaces = tmp_path / "data" / "workspaces"
    async with lab(database_url, *TREE) as parts:
        await house.add_ann()
        for name in ("own", "echo"):
            (workspaces / name).mkdir(parents=True)
            (workspaces / name / "notes.txt").write_text(WORD)
        for number in range(wide(20, 1)):
            await _erase_killed_everywhere(house, parts, number)
        actions = await parts.database.rows("select action from audit where action like 'people:eras%' order by at")
        killed = ["people:erasing"] * (len(POINTS) + 1) + ["people:erased"]
        assert [row["action"] for row in actions] == killed * wide(20, 1)
        await assert_balanced(parts)
        await _remove_files(house, workspaces)


async def _erase_killed_everywhere(house: Installation, parts: Lab, number: int) -> None:
    await say_much(parts, number)
    bobs, released = await find_in_tables(parts.database, BOBS), asyncio.Event()
    compacting = await start_compaction(parts, number, released)
    for point, kind, left in POINTS:
        assert await house.erase(f"{point}:1:{kind}") is None, (point, kind)
        assert (await find_in_tables(parts.database, WORD)).get("message_raw", 0) == left, (point, kind)
    released.set()
    assert await compacting == "the entries have changed meanwhile"
    assert await find_in_tables(parts.database, WORD) == {}
    assert await find_in_tables(parts.database, BOBS) == bobs
    erased = await house.erase()
    assert erased is not None
    assert (erased["open"], erased["workspaces"]) == (0, ["own"])


async def _remove_files(house: Installation, workspaces: Path) -> None:
    """A worker dies after it has removed the files, and the next one does what is left, and says so."""
    worker = house.start("work", "erased_on_disk:1")
    assert await asyncio.wait_for(worker.wait(), 60) == -signal.SIGKILL
    assert [(workspaces / name / "notes.txt").exists() for name in ("own", "echo")] == [False, True]
    assert await _count_pending(house) == 1
    worker = house.start("work")
    try:

        async def is_done() -> bool:
            return await _count_pending(house) == 0

        await eventually(is_done, within=60)
    finally:
        worker.kill()
        await worker.wait()


async def _count_pending(house: Installation) -> int:
    told = await house.erase(dry_run=True)
    assert told is not None
    return len(told["pending"])

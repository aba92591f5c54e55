"""Replies read while they are written: over HTTP, from turns that run in a worker."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import pytest
from starlette.types import Message
from structlog.testing import capture_logs

from switchboard.app.access import Principal
from switchboard.app.messages.stream import StreamService, pause_after
from switchboard.app.messages.views import Views
from switchboard.app.ops.maintenance import retention_tasks
from switchboard.domain.errors import TooLarge, Unavailable
from switchboard.domain.message import RequestId
from switchboard.domain.routing import SystemId
from switchboard.journey.deltas import Deltas
from switchboard.ports.engine import Answer, Delta, Engine, EngineFailure, Journal, NoReply, Outage, Turn, TurnResult
from switchboard.server import event_streams
from switchboard.server.polls import Polls
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.work import deltas, lanes
from switchboard.store.work.deltas import Writer
from switchboard.testing.scripted_llm import Call, Hang, Reply, ScriptedLlm
from tests.hands import a_hand, at_work
from tests.lab import butler, envelope_json, lab, rule, submission, team_of
from tests.servers import Opened, open_server
from tests.turning import Noting, a_model_engine
from tests.waiting import SOON, eventually

CLERK: Final = "System1/clerk"
LINES: Final = "select count(*) from delta"


@dataclass
class Writing:
    """An engine that tells what a test gives it."""

    play: Callable[[Turn, Callable[[Delta], None]], Awaitable[TurnResult]]
    stoppable: bool = True

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        assert turn.on_delta is not None
        return await self.play(turn, turn.on_delta)


@asynccontextmanager
async def a_server(
    database_url: str, tmp_path: Path, engine: Engine, *names: str, **options: Any
) -> AsyncIterator[Opened]:
    """With a worker whose only butlers, the clerk and those named, have this engine."""
    members = tuple(butler(name, "model", **options) for name in ("clerk", *names))
    tree = ((team_of(*members),), (rule(*(one.system_id for one in members)),))
    async with (
        open_server(database_url, tmp_path / "data", tree=tree) as server,
        at_work(server.lab.worker({"model": engine})),
    ):
        yield server


@dataclass
class Reader:
    """What a client knows: its text by butler, what happened, and where it can go on."""

    texts: dict[str, str] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    last: str = ""
    done: Any = None

    def take(self, mark: str, kind: str, data: Any) -> None:
        text = self.texts.get(data.get("system_id", ""), "")
        if kind == "reset":
            self.texts[data["system_id"]] = ""
        elif kind == "delta":
            assert 0 <= data["offset"] <= len(text)
            self.texts[data["system_id"]] = text[: data["offset"]] + data["text"]
        elif kind == "reply":
            assert text == data["text"], "what was told makes the reply"
        elif kind == "done":
            self.done = data
        self.kinds.append(kind)
        self.last = mark or self.last


async def events(
    server: Opened, request_id: str, after: str = "", token: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[str, str, Any]]:
    """The id, kind and data of each event. `token`: the header of another token than the operator's."""
    headers = ({"last-event-id": after} if after else {}) | dict(token or {})
    async with (
        asyncio.timeout(SOON),
        server.http.stream("GET", f"/v1/messages/{request_id}/stream", headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        got: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                got[name] = value
            elif "event" in got:
                yield got.get("id", ""), got["event"], json.loads(got["data"])
                got = {}


async def sent(server: Opened, text: str = "hello") -> str:
    return str((await server.submit(envelope_json(text, channel="api"))).json()["request_id"])


async def read(server: Opened, request_id: str) -> Reader:
    """To the end."""
    reader = Reader()
    async with aclosing(events(server, request_id)) as coming:
        async for event in coming:
            reader.take(*event)
    return reader


async def test_a_reply_is_read_while_it_is_written(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "Once", 1))
        await go_on.wait()
        tell(Delta(4, " upon", 1))
        return Answer("Once upon a time")

    reader = Reader()
    async with a_server(database_url, tmp_path, Writing(play)) as server:
        request_id = await sent(server)
        async with aclosing(events(server, request_id)) as coming:
            async for event in coming:
                reader.take(*event)
                if reader.texts == {CLERK: "Once"}:
                    go_on.set()
        assert reader.texts == {CLERK: "Once upon a time"}
        assert reader.kinds[-2:] == ["reply", "done"]
        replies = (await server.http.get(f"/v1/messages/{request_id}/replies")).json()
        assert reader.done == replies
        await eventually(lambda: nothing_left(server))
        again = await read(server, request_id)
        assert (again.texts, again.done) == (reader.texts, replies)


async def nothing_left(server: Opened) -> bool:
    return not await server.lab.count(LINES)


async def test_a_reader_goes_on_where_its_connection_was_lost(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "Once", 1))
        await go_on.wait()
        return Answer("Once upon a time")

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        request_id, reader = await sent(server), Reader()
        async with aclosing(events(server, request_id)) as coming:
            reader.take(*await anext(coming))
        assert reader.texts == {CLERK: "Once"}
        go_on.set()
        async with aclosing(events(server, request_id, reader.last)) as coming:
            async for event in coming:
                reader.take(*event)
        assert reader.kinds.count("reply") == 1
        async with aclosing(events(server, request_id, reader.last)) as coming:
            assert [kind async for _, kind, _ in coming] == ["done"]
        refused = await server.http.get(f"/v1/messages/{request_id}/stream", headers={"last-event-id": "none"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_cursor")


async def test_a_reader_cut_off_between_related_events_gets_the_right_text(database_url: str, tmp_path: Path) -> None:
    """It has taken a reset, and goes on before it, when what followed is not there any more."""
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "Only a draft", 1))
        tell(Delta(0, "Anything else", 2))
        await go_on.wait()
        return Answer("Once and for all")

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        request_id, reader = await sent(server), Reader()
        async with aclosing(events(server, request_id)) as coming:
            async for event in coming:
                reader.take(*event)
                if event[1] == "reset":
                    break
        runtime, operator = server.switchboard.runtime, Principal("operator", "test")
        streams = StreamService(runtime, Views(runtime, server.access))
        stream = await streams.open(operator, UUID(request_id), reader.last)
        go_on.set()
        await eventually(lambda: nothing_left(server))
        async with aclosing(stream.follow(asyncio.Event(), SOON, _always)) as following:
            async for one in following:
                reader.take(one.id, one.kind, msgspec.to_builtins(one.data))
        assert reader.texts == {CLERK: "Once and for all"}


async def _always() -> bool:
    return True


async def test_replies_stored_out_of_id_order_are_all_told_once(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = (UUID(int=n) for n in range(9, 0, -1))
    monkeypatch.setattr("switchboard.journey.turn.new_uuid7", lambda: next(ids))
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        if turn.member.system_id == CLERK:
            await go_on.wait()
        return Answer("done")

    reader, told = Reader(), list[str]()
    async with a_server(database_url, tmp_path, Writing(play), "other") as server:
        request_id = await sent(server)
        async with aclosing(events(server, request_id)) as coming:
            async for event in coming:
                reader.take(*event)
                if event[1] == "reply":
                    told.append(event[2]["system_id"])
                    break
        go_on.set()
        async with aclosing(events(server, request_id, reader.last)) as coming:
            told += [data["system_id"] async for _, kind, data in coming if kind == "reply"]
    assert told == ["System1/other", CLERK]


async def test_all_replies_are_told_however_many_they_are(database_url: str, tmp_path: Path) -> None:
    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        return Answer(turn.member.system_id)

    names = [f"b{n}" for n in range(104)]
    async with a_server(database_url, tmp_path, Writing(play), *names) as server:
        request_id = await sent(server)
        reader = await read(server, request_id)
        assert len(reader.done["replies"]) == reader.kinds.count("reply") == 105
        async with aclosing(events(server, request_id, reader.last)) as coming:
            assert [kind async for _, kind, _ in coming] == ["done"]


async def test_what_was_written_of_a_reply_that_is_not_sent_is_taken_back(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "never sent", 1))
        await go_on.wait()
        return NoReply("no")

    reader = Reader()
    async with a_server(database_url, tmp_path, Writing(play)) as server:
        request_id = await sent(server)
        async with aclosing(events(server, request_id)) as coming:
            first = await anext(coming)
            reader.take(*first)
            go_on.set()
            async for event in coming:
                reader.take(*event)
        assert reader.kinds == ["delta", "reset", "done"]
        await eventually(lambda: nothing_left(server))
        async with aclosing(events(server, request_id, first[0])) as coming:
            assert [kind async for _, kind, _ in coming] == ["reset", "done"]


async def test_a_stream_ends_with_its_token(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        await go_on.wait()
        return Answer("secret")

    async with a_server(database_url, tmp_path, Writing(play)) as server, asyncio.timeout(SOON):
        path = f"/v1/messages/{await sent(server)}/stream"
        headers = await server.token_for(Principal("operator", "guest"))
        async with server.http.stream("GET", path, headers=headers) as response:
            await server.access.revoke(Principal("operator", "test"), "guest")
            assert "secret" not in "".join([line async for line in response.aiter_lines()])
        go_on.set()


async def test_a_token_has_so_many_streams_and_no_more(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.app.messages.stream.MOST_STREAMS", 2)
    async with open_server(database_url, tmp_path / "data") as server, asyncio.timeout(SOON):
        path = f"/v1/messages/{await sent(server)}/stream"
        guest = await server.token_for(Principal("operator", "guest"))
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(server.http.stream("GET", path))
            refused = await server.http.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
            assert "2 streams of this token are open" in refused.json()["error"]["message"]
            assert refused.headers["retry-after"] == "1"
            assert (await server.http.get(path, params={"wait_s": 0}, headers=guest)).status_code == 200

        async def one_more() -> bool:
            return (await server.http.get(path, params={"wait_s": 0})).status_code == 200

        await eventually(one_more)


def test_looks_grow_rare_while_nothing_happens() -> None:
    pauses = list(
        accumulate((True, True, True, False), lambda pause, quiet: pause_after(pause, quiet=quiet), initial=0.25)
    )
    assert pauses == [0.25, 0.5, 1.0, 1.0, 0.25]


async def test_a_stream_is_asked_for_without_a_body_and_head_does_not_wait(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server, asyncio.timeout(SOON):
        path = f"/v1/messages/{await sent(server)}/stream"
        for body in (b"x", some(b"x")):
            refused = await server.http.request("GET", path, content=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
        head = await server.http.head(path)
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream")


async def some(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_a_poll_ends_when_its_body_is_refused() -> None:
    async def receive() -> Message:
        raise TooLarge("the body exceeds the limit")

    async with Polls().watch(receive) as gone:
        await gone.wait()


async def test_what_an_attempt_told_that_failed_is_taken_back(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:
        tell(Delta(0, "Half an answ", 1))
        if turn.attempt == 1 and not go_on.is_set():
            await go_on.wait()
            raise EngineFailure("gone", error_class="target_unavailable")
        return Answer("Half and whole")

    reader = Reader()
    async with (
        a_server(database_url, tmp_path, Writing(play)) as server,
        aclosing(events(server, await sent(server))) as coming,
    ):
        async for event in coming:
            reader.take(*event)
            go_on.set()
    assert "reset" in reader.kinds or reader.kinds == ["delta", "delta", "reply", "done"]
    assert reader.texts == {CLERK: "Half and whole"}


async def test_who_reads_learns_that_a_turn_waits_for_its_model(database_url: str, tmp_path: Path) -> None:
    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "Half", 1))
        raise Outage("no route", since=datetime.now(UTC), error_class="overload", retry_after=3600)

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        reader = Reader()
        async with aclosing(events(server, await sent(server))) as coming:
            async for mark, kind, data in coming:
                reader.take(mark, kind, data)
                if kind == "waiting":
                    break
        assert data == {"system_id": CLERK, "engine": "model", "error_class": "overload", "asked": []}
        assert not reader.texts.get(CLERK)


async def test_whatever_is_told_and_lost_the_pieces_make_the_reply(database_url: str, tmp_path: Path) -> None:
    """At random: texts that start over, are cut back, or miss pieces."""
    chance = random.Random(7)

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:
        text, step = "", 1
        for _ in range(chance.randrange(12)):
            kept, step = (
                chance.choice([0, len(text), len(text), chance.randint(0, len(text))]),
                step + chance.randrange(2),
            )
            text = text[:kept] + chance.choice(["", "ab", "ü☔", "\n\n", "😀"])
            tell(Delta(kept, text[kept:], step))
            await server.lab.database.run("delete from delta where random() < 0.1")
        return Answer(f"{text}!" if chance.randrange(2) else turn.text)

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        ids = [await sent(server, f"message {n}") for n in range(30)]
        for reader in await asyncio.gather(*(read(server, request_id) for request_id in ids)):
            [reply] = reader.done["replies"]
            assert reader.texts == {CLERK: reply["text"]}
        await eventually(lambda: nothing_left(server))


@pytest.mark.parametrize("role", ["operator", "connector"])
async def test_a_turn_with_a_model_tells_its_text_and_its_tools(
    database_url: str, tmp_path: Path, role: Literal["operator", "connector"]
) -> None:
    replies = [
        Reply(text="Let me look.", calls=(Call("look", {"text": "secret"}),), thinking="Hm."),
        Reply(text="It is there, I have seen it.", fault=Hang("go on", at="middle")),
    ]
    reader, used = Reader(), []
    connector = Principal("connector", "site", "api", "bot:house")
    async with (
        ScriptedLlm(replies) as llm,
        a_model_engine(llm, [Noting("look")]) as (engine, _),
        a_server(database_url, tmp_path, engine, grants={"others": ["look"]}) as server,
        aclosing(
            events(server, await sent(server), token=await server.token_for(connector) if role == "connector" else None)
        ) as coming,
    ):
        async for mark, kind, data in coming:
            reader.take(mark, kind, data)
            used += [data] if kind in {"tool", "tool_end"} else []
            assert kind == "tool" or "secret" not in str(data)
            assert "Hm." not in str(data)
            if kind == "delta" and data["step"] == 2:
                llm.release("go on")
    assert reader.texts == {CLERK: "It is there, I have seen it."}
    assert reader.kinds.index("tool") > reader.kinds.index("delta")
    arguments = '{"text": "secret"}' if role == "operator" else ""
    assert [(one["name"], one.get("arguments"), one.get("ok")) for one in used] == [
        ("look", arguments, None),
        ("look", None, True),
    ]
    assert "reset" in reader.kinds


async def test_a_reader_that_does_not_take_what_it_is_sent_is_cut_off(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "SLOW_S", 0.2)
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        while not go_on.is_set():
            tell(Delta(0, "x" * 1_000_000, 1))
            with suppress(TimeoutError):
                await asyncio.wait_for(go_on.wait(), 0.05)
        return Answer("done")

    async def cut() -> bool:
        return any("too slow" in entry["event"] for entry in logs)

    with capture_logs() as logs:
        async with a_server(database_url, tmp_path, Writing(play)) as server:
            request_id, at = await sent(server), urlsplit(server.url)
            _, writer = await asyncio.open_connection(at.hostname, at.port, limit=1024)
            head = [
                f"GET /v1/messages/{request_id}/stream HTTP/1.1",
                f"Host: {at.netloc}",
                f"Authorization: Bearer {server.token}",
            ]
            writer.write("\r\n".join([*head, "", ""]).encode())
            await eventually(cut)
            go_on.set()
            writer.close()
            monkeypatch.undo()  # on a busy machine nobody reads that fast
            assert (await read(server, request_id)).texts == {CLERK: "done"}


async def test_what_a_crashed_worker_has_told_is_removed(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server:
        database = server.lab.database
        writer = Writer(RequestId(new_uuid7()), SystemId(CLERK), 1)
        await deltas.write(database, [(writer, 1, Delta(0, "left"))])
        [task] = [one for one in retention_tasks(database, 90, 365) if one.name == "forget_deltas"]
        assert await task.run() == 0
        assert await deltas.forget(database, timedelta()) == 1


class Away(Database):
    """The database, which is away for one call as soon as `leave` was called."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.url, database.pool)
        self._away: Exception | None = None

    def leave(self, error: Exception) -> None:
        self._away = error

    async def run(self, sql: str, *args: object) -> str:
        error, self._away = self._away, None
        if error is not None:
            raise error
        return await super().run(sql, *args)


@pytest.mark.parametrize("error", [Unavailable("gone"), RuntimeError("the disk is full")])
async def test_what_cannot_be_removed_at_once_is_removed_before_the_end(database_url: str, error: Exception) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await parts.accept.accept(submission())
        [item] = await hand.claim()
        [work] = await lanes.load_work(parts.database, [item])
        database = Away(parts.database)
        told = Deltas(database, parts.notifier)
        with told.publishing(item, work) as tell:
            tell(Delta(0, "Once"))
            await eventually(lambda: parts.count(LINES))
            database.leave(error)
        await told.aclose()
        assert await parts.count(LINES) == 0


async def test_engines_that_do_not_tell_leave_nothing(database_url: str, tmp_path: Path) -> None:
    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:  # noqa: ARG001
        return Answer("at once")

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        reader = await read(server, await sent(server))
        assert (reader.kinds, reader.texts) == (["delta", "reply", "done"], {CLERK: "at once"})
        assert await server.lab.database.value("select pg_relation_size('switchboard.delta')") == 0


async def test_a_message_that_is_not_there_has_no_stream(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data") as server:
        answer = await server.http.get(f"/v1/messages/{UUID(int=1)}/stream")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")

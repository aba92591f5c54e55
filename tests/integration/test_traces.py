"""Traces: one of each message, from what is on record, at least once and with the same ids, without any content."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from switchboard.app.checked import check_settings
from switchboard.app.ops import traces
from switchboard.app.ops.traces import TraceExport, open_sink
from switchboard.app.settings import Settings, TraceSettings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.domain.errors import ConfigurationError
from switchboard.journey.reply import PullRequest
from switchboard.lanes.waiting import resume
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.ports.traces import SpansRefused, TraceSpan
from switchboard.store.checks.traces import check_traces
from switchboard.store.database import Database
from tests.collectors import Collector, attributes, collector
from tests.hands import Scripted, at_work, settled
from tests.lab import Lab, lab, submission
from tests.ports import free_port
from tests.waiting import eventually

WORDS = ("a very private wish", "alice@example.org", "thread-of-alice", "what the butler said", "call_named_by_a_model")
TEAM = {
    "team": {"name": "root"},
    "systems": [{"name": "System1/echo", "engine": "echo"}, {"name": "System4/root", "engine": "echo"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/echo"}]}],
}
DUE = "update trace_message set look_at = clock_timestamp()"


@pytest.fixture
def taking() -> Iterator[Collector]:
    with collector() as found:
        yield found


async def play(turn: Turn, journal: Journal) -> TurnResult:
    """Does something, waits for an event, and answers; what is a dead letter's notice it answers at once."""
    if turn.dead_letter is None and turn.text.endswith("?"):

        async def act(_: UUID) -> str:
            return WORDS[3]

        await journal.step(f"tool:1:{WORDS[4]}", act, effect="effectful")
        await journal.wait("approval")
    return Answer(WORDS[3])


async def work(parts: Lab) -> None:
    """A worker of its own, which ends."""
    async with at_work(parts.worker({"echo": Scripted(play)})):
        await eventually(lambda: settled(parts))


async def told(parts: Lab) -> None:
    """All replies are sent."""
    while replies := await parts.replies.pull(PullRequest("telegram", "bot:house")):
        for reply in replies:
            await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("sent"))


def export_to(parts: Lab, taking: Collector, share: float = 1.0) -> TraceExport:
    sink = open_sink(TraceSettings(url=taking.url))
    assert sink is not None
    return TraceExport(parts.database, sink, share)


async def accept(parts: Lab, text: str) -> UUID:
    one = await parts.accept.accept(submission(text, sender=WORDS[1], thread=WORDS[2], chat_type="private"))
    return one.request_id


async def test_a_message_is_one_trace_across_processes_with_resumed_turns_linked(
    database_url: str, taking: Collector
) -> None:
    async with lab(database_url) as parts:
        await export_to(parts, taking).export_due()  # from now on
        request_id = await accept(parts, f"{WORDS[0]}?")
        await work(parts)
        await parts.database.run(DUE)
        assert await export_to(parts, taking).export_due() == 0  # it is looked at when it can have ended
        await parts.database.run(DUE)
        before = await export_to(parts, taking).export_due()
        [key] = [row["key"] for row in await parts.database.rows("select key from awaited")]
        await resume(parts.database, parts.notifier, key, {"value": WORDS[3]})
        await work(parts)
        await told(parts)
        await parts.database.run(DUE)
        after = await export_to(parts, taking).export_due()
        assert await export_to(parts, taking).export_due() == 0
    spans = {span.span_id: span for span in taking.spans}
    assert len(spans) == len(taking.spans) == before + after
    assert {UUID(bytes=span.trace_id) for span in taking.spans} == {request_id}
    named = sorted(span.name for span in taking.spans)
    assert named == ["accept", "decide", "message", "reply", "step approval", "step tool", "turn", "turn"]
    [root] = [span for span in taking.spans if not span.parent_span_id]
    assert root.name == "message"
    assert [span.name for span in spans.values() if span.parent_span_id not in spans] == ["message"]
    parked, resumed = sorted(
        (span for span in taking.spans if span.name == "turn"), key=lambda one: one.start_time_unix_nano
    )
    assert [attributes(one)["outcome"] for one in (parked, resumed)] == ["parked", "answered"]
    assert ([link.span_id for link in resumed.links], list(parked.links)) == ([parked.span_id], [])
    [reply] = [span for span in taking.spans if span.name == "reply"]
    assert (reply.parent_span_id, attributes(reply)["state"]) == (resumed.span_id, "sent")
    assert root.end_time_unix_nano == max(span.end_time_unix_nano for span in taking.spans)
    assert not [word for word in WORDS for body in taking.bodies if word.encode() in body]


async def test_what_a_collector_did_not_acknowledge_is_resent_with_the_same_ids(
    database_url: str, taking: Collector
) -> None:
    async with lab(database_url) as parts:
        export = export_to(parts, taking)
        await export.export_due()
        ids = {await accept(parts, f"{WORDS[0]} {n}") for n in range(3)}
        await work(parts)
        await told(parts)
        await export.export_due()
        taking.status = 503
        await parts.database.run(DUE)
        with pytest.raises(SpansRefused, match="503"):
            await export.export_due()
        lost = [span.span_id for span in taking.spans]
        taking.status = 200
        await parts.database.run(DUE)
        assert await export_to(parts, taking).export_due() == len(lost)
        await parts.database.run(DUE)
        assert await export_to(parts, taking).export_due() == 0
        assert await parts.count("select count(*) from trace_message where not done") == 0
    assert [span.span_id for span in taking.spans] == lost + lost
    assert {UUID(bytes=span.trace_id) for span in taking.spans} == ids


async def test_a_worker_sends_them_by_itself_with_the_key(
    database_url: str, tmp_path: Path, taking: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACES_KEY", "a-key")
    given = {"database_url": database_url, "data_dir": tmp_path, "teams": [TEAM]}
    settings = Settings.model_validate({**given, "traces": {"url": taking.url, "key_env": "TRACES_KEY"}})
    async with open_runtime(settings) as runtime, open_switchboard(runtime) as parts, at_work(make_worker(runtime)):
        await eventually(lambda: _has_begun(runtime.database))
        message = await parts.accept.accept(submission(WORDS[0]))
        await eventually(lambda: _has_come(taking, "turn"))
    assert {UUID(bytes=span.trace_id) for span in taking.spans} == {message.request_id}
    assert {one["authorization"] for one in taking.headers} == {"Bearer a-key"}


async def _has_come(taking: Collector, name: str) -> bool:
    return name in [span.name for span in taking.spans]


async def _has_begun(database: Database) -> bool:
    return bool(await database.value("select count(*) from trace_export"))


async def test_a_collector_that_is_down_is_told_once_and_costs_less_and_less(
    database_url: str, taking: Collector
) -> None:
    now = [0.0]
    taking.status = 503
    async with lab(database_url) as parts:
        sink = open_sink(TraceSettings(url=taking.url))
        assert sink is not None
        export = TraceExport(parts.database, sink, clock=lambda: now[0])
        await parts.database.run(
            "insert into schedule (name, every, last_at) values ('export_traces', '2 s', clock_timestamp())"
        )
        await export.export_due()
        await accept(parts, WORDS[0])
        await export.export_due()
        tries = []
        for second in range(300):
            now[0] = float(second)
            await parts.database.run(DUE)
            if await export.start_due():
                tries.append(second)
                await _ended()
        assert tries == [0, 2, 6, 14, 30, 62, 122, 182, 242]
        assert len(taking.bodies) == len(tries)
        [found] = await check_traces(parts.database, taking.url)
        assert (found.status, "503" in found.detail) == ("warning", True)
        taking.status, now[0] = 200, 302.0
        assert await export.start_due()
        await _ended()
        [found] = await check_traces(parts.database, taking.url)
        assert (found.status, found.detail) == ("ok", "2 spans sent")
        await export.aclose()


async def test_a_message_that_is_refused_for_what_it_is_holds_up_no_other(database_url: str, taking: Collector) -> None:
    async with lab(database_url) as parts:
        export = export_to(parts, taking)
        await export.export_due()
        refused = await accept(parts, WORDS[0])
        taking.refused = refused.bytes
        good = {await accept(parts, f"{WORDS[0]} {n}") for n in range(3)}
        await work(parts)
        await told(parts)
        await export.export_due()
        await parts.database.run(DUE)
        assert await export.export_due()
        assert await parts.count("select count(*) from trace_message where not done and exported is null") == 0
    assert good <= {UUID(bytes=span.trace_id) for span in taking.spans}


async def test_a_worker_that_failed_goes_on_when_another_has_sent_what_was_due(
    database_url: str, taking: Collector
) -> None:
    async with lab(database_url) as parts:
        sink = open_sink(TraceSettings(url=taking.url))
        assert sink is not None
        export = TraceExport(parts.database, sink, clock=iter(range(0, 100_000, 100)).__next__)
        await export.export_due()
        await accept(parts, WORDS[0])
        await export.export_due()
        taking.status = 503
        await parts.database.run(DUE)
        assert await export.start_due()
        await _ended()
        taking.status = 200
        await parts.database.run(DUE)
        await export_to(parts, taking).export_due()
        assert await export.start_due()
        await _ended()
        later = await accept(parts, WORDS[1])
        for _ in range(3):
            await parts.database.run(DUE)
            assert await export.start_due()
            await _ended()
    assert later in {UUID(bytes=span.trace_id) for span in taking.spans}


ODD: Final = {
    "redirects": (
        b"HTTP/1.1 307 x\r\nlocation: https://there/\r\ncontent-length: 0\r\n\r\n",
        "redirects to https://there/",
    ),
    "a page": (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi", "answers with text/html"),
    "too much": (b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + bytes(200_000), "too long"),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_answer_counts_as_none(odd: str) -> None:
    answer, said = ODD[odd]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sink = open_sink(TraceSettings(url=f"http://127.0.0.1:{port}/v1/traces"))
        assert sink is not None
        with pytest.raises(SpansRefused, match=said):
            await sink.send([TraceSpan(1, 2, None, "turn", "internal", 0, 1, {})])


async def _ended() -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == "traces":
            await task


async def test_why_a_collector_does_not_answer_is_told() -> None:
    sink = open_sink(TraceSettings(url=f"http://127.0.0.1:{free_port()}/v1/traces"))
    assert sink is not None
    with pytest.raises(SpansRefused, match="connection"):
        await sink.send([TraceSpan(1, 2, None, "turn", "internal", 0, 1, {})])


@pytest.mark.parametrize(
    ("variable", "installed", "said"),
    [("", True, "TRACES_KEY holds no secret"), ("key", False, "pip install .*traces"), ("key", True, None)],
)
def test_a_worker_that_cannot_send_traces_does_not_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, *, installed: bool, said: str | None
) -> None:
    monkeypatch.setenv("TRACES_KEY", variable)
    if not installed:
        monkeypatch.setattr(traces, "_PACKAGE", "opentelemetry.missing.http")
    settings = Settings(traces=TraceSettings(url="http://127.0.0.1:1/v1/traces", key_env="TRACES_KEY"))
    with pytest.raises(ConfigurationError, match=said) if said else nullcontext():
        check_settings(settings, for_worker=True)

"""The gateway at `/v1/ws`: chats over a WebSocket, from a foreign client to turns in a worker and back."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import aiohttp
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed, InvalidStatus

from switchboard.app.access import Principal
from switchboard.app.messages.chat import ChatEntry, within
from switchboard.cli.client import ServerPlace
from switchboard.cli.messages.exchange import ChatLine, Exchange
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.ports.engine import (
    Answer,
    Ask,
    Delta,
    EngineFailure,
    Journal,
    ModelUsage,
    NoReply,
    Turn,
    TurnPhase,
    TurnResult,
)
from switchboard.server.contracts.gateway import METHODS
from switchboard.server.ws import connection, endpoint, protocol
from switchboard.server.ws.streams import ChatStreams
from switchboard.testing.scripted_llm import Call, Hang, Reply, ScriptedLlm
from tests.asking import spec
from tests.gateway import Client, Folded, client, socket, ws_url
from tests.hands import Scripted
from tests.integration.test_streams import CLERK, Writing, a_server
from tests.lab import envelope_json
from tests.servers import Opened, open_server
from tests.turning import Noting, a_model_engine
from tests.waiting import SOON, eventually

Tell = Callable[[Delta], None]
ANN: Final = Principal("connector", "ann's phone", "gateway", "ann")
BOB: Final = Principal("connector", "bob's phone", "gateway", "bob")
_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


async def upper(turn: Turn, tell: Tell) -> TurnResult:
    tell(Delta(0, turn.text.upper()[:2], 1))
    return Answer(turn.text.upper(), usage=(ModelUsage("m", 7, 3), ModelUsage("n", 1, 2)), stop_reason="length")


def many_pieces(text: str) -> list[Delta]:
    """What an engine tells that changes its mind: none of them goes on where the last one ended."""
    return [
        Delta(0, "Let me look. ", 1),
        Delta(0, "", 1, "look"),
        Delta(0, "Once", 2),
        Delta(2, "ly a draft", 2),
        Delta(0, "Once upon ", 3),
        Delta(5, f"and for all: {text[:4]}", 3),
    ]


@dataclass
class Story:
    """Tells its pieces, and ends when it may: until then they can be read again."""

    may_end: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def __call__(self, turn: Turn, tell: Tell) -> TurnResult:
        for one in many_pieces(turn.text):
            tell(one)
        await self.may_end[turn.text].wait()
        return Answer(f"Once and for all: {turn.text}")


# To begin with ------------------------------------------------------------------------------------------------------


async def test_a_message_is_answered_whole(database_url: str, tmp_path: Path) -> None:
    async with a_server(database_url, tmp_path, Writing(upper)) as server, client(server.url, server.token) as one:
        speaker = {"channel": "gateway", "endpoint": "operator-1", "sender": "operator-1"}
        assert (one.welcome["principal"], one.welcome["speaker"]) == ("operator-1", speaker)
        assert (await one.call("ping"))["at"].endswith("Z")
        answer = await one.say("hello")
        assert (answer["content"], answer["model"], answer["stop_reason"]) == ("HELLO", "n", "length")
        assert answer["usage"] == {"input_tokens": 8, "output_tokens": 5}
        message = (await server.http.get(f"/v1/messages/{answer['request_id']}")).json()
        assert (message["conversation"], message["sender"]) == ("gateway/operator-1/s", "operator-1")
        published = (await server.http.get("/schemas/gateway.v1.json", headers={"authorization": ""})).json()
        named = {kind["properties"]["method"]["const"] for kind in published["$defs"]["Request"]["oneOf"]}
        assert named == set(METHODS)


async def test_an_answer_is_told_while_it_is_written(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "", 1, status=TurnPhase("reading", 40)))
        tell(Delta(0, "Once", 1))
        await go_on.wait()
        return Answer("Once upon a time")

    async with a_server(database_url, tmp_path, Writing(play)) as server, client(server.url, server.token) as one:
        sent, folded = await one.say("a tale", stream=True), Folded()
        folded.take(reading := await one.event(sent["stream"]))
        assert reading["event"] == "chat.status"
        assert (reading["payload"]["phase"], reading["payload"]["seconds"]) == ("reading", 40)
        folded.take(await one.event(sent["stream"]))
        assert (sent["duplicate"], folded.texts) == (False, {CLERK: "Once"})
        assert (await one.call("ping"))["at"]
        go_on.set()
        await one.fold(sent["stream"], folded)
        assert folded.content == folded.end["content"] == "Once upon a time"
        assert folded.kinds == ["chat.status", "chat.delta", "chat.delta", "chat.reply", "chat.done"]
        [reply] = folded.end["replies"]
        assert reply["system_id"] == CLERK


async def test_a_turn_with_a_model_and_tools_over_the_gateway(database_url: str, tmp_path: Path) -> None:
    replies = [
        Reply(text="Let me look.", calls=(Call("look", {"text": "secret"}),), thinking="Hm."),
        Reply(text="It is there, I have seen it.", fault=Hang("go on", at="middle")),
    ]
    folded = Folded()
    async with (
        ScriptedLlm(replies) as llm,
        a_model_engine(llm, [Noting("look")]) as (engine, _),
        a_server(database_url, tmp_path, engine, owners=["gateway:operator-1"]) as server,
        client(server.url, server.token) as one,
    ):
        stream = (await one.say("where?", stream=True))["stream"]
        used = []
        while True:
            folded.take(event := await one.event(stream))
            used += [event] if event["event"].startswith("chat.tool") else []
            if event["payload"]["step"] == 2:
                break
        llm.release("go on")
        await one.fold(stream, folded)
    assert folded.content == folded.end["content"] == "It is there, I have seen it."
    told = [(one["event"], one["payload"]["name"]) for one in used]
    assert told == [("chat.tool", "look"), ("chat.tool_end", "look")]
    assert (used[0]["payload"]["arguments"], used[1]["payload"]["ok"]) == ('{"text": "secret"}', True)
    assert folded.end["usage"]["output_tokens"] > 0
    assert (folded.end["model"], folded.end["stop_reason"]) == ("m", "end")


async def test_a_turn_that_waits_for_people_tells_what_for(database_url: str, tmp_path: Path) -> None:
    async def asking(turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG001
        for n in range(2):
            await journal.expect(f"{n}", within=3600, ask=Ask("call", f"pay{n}", {}, "it is said so", "d" * 64, "r"))
        decided = [(await journal.wait(f"{n}")).value["decision"] for n in range(2)]
        return Answer(" and ".join(decided))

    async with a_server(database_url, tmp_path, Scripted(asking)) as server, client(server.url, server.token) as one:
        stream, folded = (await one.say("pay", stream=True))["stream"], Folded()
        told = [await one.event(stream) for _ in range(3)]
        assert [event["event"] for event in told] == ["chat.delta", "chat.reply", "chat.waiting"]
        assert told[0]["payload"]["text"].startswith("This needs approval first: pay0")
        waiting = told[-1]["payload"]
        assert [(waiting["system_id"], ask["kind"], ask["tool"]) for ask in waiting["asked"]] == [
            (CLERK, "call", "pay0"),
            (CLERK, "call", "pay1"),
        ]
        for event in told:
            folded.take(event)
        first, second = (ask["approval_id"] for ask in waiting["asked"])
        await one.call("approvals.decide", approval_id=first, decision="approve")
        folded.take(less := await one.event(stream))
        assert [ask["approval_id"] for ask in less["payload"]["asked"]] == [second]
        await one.call("chat.resume", stream=stream, seq=folded.seq - 1)
        again = await one.event(stream)
        assert (again["seq"], again["payload"]) == (folded.seq, less["payload"]), "who comes back is told again"
        await one.call("approvals.decide", approval_id=second, decision="refuse")
        await one.fold(stream, folded)
        assert folded.texts[CLERK] == "approved and refused"


async def test_an_operator_names_the_model_that_a_butler_asks(database_url: str, tmp_path: Path) -> None:
    async with (
        ScriptedLlm([Reply(text="I am the second.")]) as llm,
        a_model_engine(llm, specs=[spec("openai", llm.url, name) for name in ("first", "second")]) as (engine, _),
        a_server(database_url, tmp_path, engine) as server,
        client(server.url, server.token) as one,
    ):
        answer = await one.say("who?", model="second")
        assert (answer["content"], answer["model"]) == ("I am the second.", "second")
        error = await one.refused("chat.send", session="s", text="who?", key="3", model="third")
        assert "System1/clerk has no model third; it has: first, second" in error["message"]
        header = await server.token_for(ANN)
        async with client(server.url, header["authorization"].removeprefix("Bearer ")) as ann:
            error = await ann.refused("chat.send", session="s", text="who?", key="4", model="second")
            assert (error["code"], error["field"]) == ("forbidden", "control.model")
        of_ann: dict[str, Any] = {"channel": "gateway", "endpoint": "ann", "sender": "ann", "provider": "internal"}
        envelope = envelope_json("who?", **of_ann, of_control={"model": "second"})
        refused = await server.submit(envelope, **header)
        assert (refused.status_code, refused.json()["error"]["field"]) == (403, "control.model")
        batch = await server.http.post("/v1/ingest/batch", json={"envelopes": [envelope]}, headers=header)
        assert batch.json()["results"][0]["error"]["field"] == "control.model"
        assert await server.lab.count("select count(*) from message_inbox") == 2


async def test_a_client_of_another_library_can_talk(database_url: str, tmp_path: Path) -> None:
    async with (
        a_server(database_url, tmp_path, Writing(upper)) as server,
        aiohttp.ClientSession() as session,
        session.ws_connect(ws_url(server.url)) as one,
    ):
        await one.send_json({"type": "req", "id": "1", "method": "connect", "params": {"token": server.token}})
        assert (await one.receive_json())["ok"]
        params = {"session": "s", "text": "hi", "key": "1"}
        await one.send_json({"type": "req", "id": "2", "method": "chat.send", "params": params})
        assert (await one.receive_json())["payload"]["content"] == "HI"


# Once ---------------------------------------------------------------------------------------------------------------


async def test_one_key_is_one_message_on_however_many_connections(database_url: str, tmp_path: Path) -> None:
    turns = list[str]()

    async def play(turn: Turn, tell: Tell) -> TurnResult:
        turns.append(turn.text)
        return await upper(turn, tell)

    async with a_server(database_url, tmp_path, Writing(play)) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client(server.url, server.token)) for _ in range(4)]
        answers = await asyncio.gather(*(one.say("pay it", key="k") for one in clients))
        streamed = await clients[0].say("pay it", key="k", stream=True)
        folded = await clients[0].fold(streamed["stream"])
        assert {one["content"] for one in (*answers, folded.end)} == {"PAY IT"}
        assert {one["request_id"] for one in answers} == {streamed["request_id"]}
        assert (turns, streamed["duplicate"]) == (["pay it"], True)
        error = await clients[0].refused("chat.send", session="s", text="pay them", key="k")
        assert (error["code"], error["details"]["request_id"]) == ("idempotency_mismatch", streamed["request_id"])


async def test_messages_of_a_connection_are_answered_in_their_order(database_url: str, tmp_path: Path) -> None:
    turns = list[str]()

    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        turns.append(turn.text)
        return Answer("ok")

    async with a_server(database_url, tmp_path, Writing(play)) as server, client(server.url, server.token) as one:
        sent = [await one.ask("chat.send", session="s", text=str(n), key=f"k{n}") for n in range(20)]
        for request in sent:
            await one.result(request)
    assert turns == [str(n) for n in range(20)]


# Whose it is --------------------------------------------------------------------------------------------------------


async def test_two_tokens_with_one_name_of_a_session_know_nothing_of_each_other(
    database_url: str, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Tell) -> TurnResult:
        if turn.text == "wait":
            await go_on.wait()
        return await upper(turn, tell)

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        tokens = [await server.token_of(principal) for principal in (ANN, BOB)]
        async with client(server.url, tokens[0]) as ann, client(server.url, tokens[1]) as bob:
            sent = await ann.say("wait", session="same", key="k", stream=True)
            other = await bob.say("of bob", session="same", key="k")
            assert (other["content"], other["request_id"] == sent["request_id"]) == ("OF BOB", False)
            [written] = (await bob.call("chat.history", session="same"))["messages"]
            assert (written["text"], [one["text"] for one in written["replies"]]) == ("of bob", ["OF BOB"])
            assert await bob.call("chat.resume", stream=sent["stream"], seq=0) == {"resumed": False}
            assert await bob.call("chat.abort", session="same") == {"stopped": 0}
            error = await bob.refused("chat.abort", session="same", request_id=sent["request_id"])
            assert error["code"] == "not_found"
            go_on.set()
            assert (await ann.fold(sent["stream"])).content == "WAIT"
            [written] = (await ann.call("chat.history", session="same"))["messages"]
            assert (written["text"], written["key"], written["state"]) == ("wait", "k", "answered")


async def test_a_token_of_the_gateway_cannot_speak_as_somebody_else(server: Opened) -> None:
    """Its name is what owners of butlers and memories are known by."""
    header = await server.token_for(ANN)
    envelope = envelope_json("x", channel="gateway", endpoint="ann", sender="operator-1", provider="internal")
    refused = await server.submit(envelope, **header)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "foreign_sender")
    token = header["authorization"].removeprefix("Bearer ")
    speaker = {"channel": "cli", "endpoint": "e", "sender": "s"}
    async with socket(server.url) as opened:
        error = await Client(opened).refused("connect", token=token, speaker=speaker)
        assert error["code"] == "forbidden"


async def test_an_operator_may_speak_for_a_terminal(database_url: str, tmp_path: Path) -> None:
    speaker = {"channel": "cli", "endpoint": "ann@house", "sender": "ann"}
    async with (
        a_server(database_url, tmp_path, Writing(upper)) as server,
        client(server.url, server.token, speaker) as one,
    ):
        answer = await one.say("hello", session="tales")
        message = (await server.http.get(f"/v1/messages/{answer['request_id']}")).json()
        assert (message["conversation"], message["sender"]) == ("cli/ann%40house/tales", "ann")
        async with socket(server.url) as opened:
            other = {"channel": "telegram", "endpoint": "bot", "sender": "ann"}
            error = await Client(opened).refused("connect", token=server.token, speaker=other)
            assert (error["code"], error["field"]) == ("invalid_input", "speaker.channel")


# Cut and resumed ----------------------------------------------------------------------------------------------------


async def cut_after(server: Opened, frames: int, text: str) -> tuple[str, Folded]:
    """Send, and lose the connection after so many events."""
    async with client(server.url, server.token) as one:
        sent, folded = await one.say(text, key=text, stream=True), Folded()
        while folded.seq < frames:
            folded.take(await one.event(sent["stream"]))
        one.socket.transport.abort()
    return sent["stream"], folded


async def test_cut_at_any_frame_and_resumed_nothing_is_lost_or_doubled(database_url: str, tmp_path: Path) -> None:
    story, pieces = Story(), len(many_pieces("")) + 2  # two of them come with a reset
    async with a_server(database_url, tmp_path, Writing(story)) as server, client(server.url, server.token) as one:
        for frames in range(pieces + 1):
            for early in (True, False):
                text = f"tale {frames} {early}"
                stream, folded = await cut_after(server, frames, text)
                if early:
                    story.may_end[text].set()
                assert await one.call("chat.resume", stream=stream, seq=folded.seq) == {"resumed": True}
                story.may_end[text].set()
                await one.fold(stream, folded)
                assert folded.content == folded.end["content"] == f"Once and for all: {text}"
                seq = folded.seq
                assert await one.call("chat.resume", stream=stream, seq=seq) == {"resumed": True}
                assert await one.call("chat.resume", stream=stream, seq=seq - 1) == {"resumed": True}
                again = await one.event(stream)
                assert (again["seq"], again["event"], again["payload"]) == (seq, "chat.done", folded.end)
        messages = (await one.call("chat.history", session="s", limit=200))["messages"]
        assert len(messages) == 2 * (pieces + 1)
        assert all(len(message["replies"]) == 1 for message in messages)


async def test_cut_again_and_again_at_random(database_url: str, tmp_path: Path) -> None:
    dice, story = random.Random(3), Story()

    async def follow(server: Opened, stream: str, folded: Folded) -> None:
        async with client(server.url, server.token) as one:
            assert await one.call("chat.resume", stream=stream, seq=folded.seq) == {"resumed": True}
            for _ in range(dice.randrange(3)):
                if folded.end is None:
                    folded.take(await one.event(stream))
            one.socket.transport.abort()

    async with a_server(database_url, tmp_path, Writing(story)) as server:
        for n in range(4):
            stream, folded = await cut_after(server, 1, f"tale {n}")
            while folded.end is None:
                if folded.seq > 4:
                    story.may_end[f"tale {n}"].set()
                await follow(server, stream, folded)
            assert folded.content == folded.end["content"] == f"Once and for all: tale {n}"


async def test_a_stream_that_is_not_known_any_more_is_told_from_the_beginning(
    database_url: str, tmp_path: Path
) -> None:
    async with a_server(database_url, tmp_path, Writing(upper)) as server, client(server.url, server.token) as one:
        sent = await one.say("tale", key="k", stream=True)
        await one.fold(sent["stream"])
        assert await one.call("chat.resume", stream=sent["stream"], seq=99) == {"resumed": False}
        assert await one.call("chat.resume", stream="none", seq=0) == {"resumed": False}
        [written] = (await one.call("chat.history", session="s"))["messages"]
        assert (written["key"], written["state"]) == ("k", "answered")
        again = await one.say("tale", key=written["key"], stream=True)
        folded = await one.fold(again["stream"])
        assert (again["duplicate"], folded.content) == (True, "TALE")


async def test_a_reader_that_comes_back_takes_over_from_a_connection_that_hangs(
    database_url: str, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "Once", 1))
        await go_on.wait()
        return Answer("Once upon a time")

    async with (
        a_server(database_url, tmp_path, Writing(play)) as server,
        client(server.url, server.token) as old,
        client(server.url, server.token) as new,
    ):
        stream, folded = (await old.say("tale", stream=True))["stream"], Folded()
        folded.take(await old.event(stream))
        assert await new.call("chat.resume", stream=stream, seq=folded.seq) == {"resumed": True}
        go_on.set()
        await new.fold(stream, folded)
        assert folded.content == "Once upon a time"
        assert await old.call("ping")
        assert not old.events.get(stream)


@pytest.mark.slow
async def test_a_stream_goes_on_after_a_crash_of_the_database(place: Path, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        tell(Delta(0, "Once upon", 1))
        await go_on.wait()
        return Answer("Once and for all")

    settings = {"fsync": "off"}
    async with (
        embedded_postgres(place / "data", settings=settings) as database,
        a_server(database.url, tmp_path, Writing(play)) as server,
        client(server.url, server.token) as one,
    ):
        stream, folded = (await one.say("tale", key="k", stream=True))["stream"], Folded()
        folded.take(await one.event(stream))
        await _killed(place / "data")
        assert (await one.refused("chat.send", session="s", text="x", key="x"))["code"] == "unavailable"
        go_on.set()
        async with embedded_postgres(place / "data", settings=settings):
            await one.fold(stream, folded)
            assert folded.content == folded.end["content"] == "Once and for all"
            again = await one.say("tale", key="k")
            assert (again["content"], again["request_id"]) == ("Once and for all", folded.end["request_id"])


async def _killed(place: Path) -> None:
    """As by `kill -9`; its children find out."""
    pid = int((place / "postmaster.pid").read_text(encoding="ascii").split()[0])
    os.kill(pid, signal.SIGKILL)

    async def gone() -> bool:
        return _has_ended(Path(f"/proc/{pid}/status"))

    await eventually(gone)


def _has_ended(status: Path) -> bool:
    try:
        return "\nState:\tZ" in status.read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):  # the second if it goes while it is read
        return True


class Wire:
    """A way to the server that can be cut."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._ends: list[asyncio.StreamWriter] = []
        self.url = ""

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[Wire]:
        async with await asyncio.start_server(self._carry, "127.0.0.1", 0) as opened:
            self.url = f"http://127.0.0.1:{opened.sockets[0].getsockname()[1]}"
            yield self
            self.cut()

    def cut(self) -> None:
        while self._ends:
            self._ends.pop().transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._to.hostname, self._to.port)
        self._ends += [writer, back]
        await asyncio.gather(_carry(reader, back), _carry(there, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def test_the_terminal_goes_on_when_its_connection_was_lost(database_url: str, tmp_path: Path) -> None:
    story, shown, terminal = Story(), list[str](), {"channel": "cli", "endpoint": "here", "sender": "me"}

    def take(kind: str, told: Any) -> None:
        shown.append(kind)
        if told.get("text", "").startswith("and for all"):
            story.may_end["tale"].set()
        elif kind == "tool":
            wire.cut()

    async with a_server(database_url, tmp_path, Writing(story)) as server, Wire(server.url).laid() as wire:
        place = ServerPlace(wire.url, server.token, "")
        async with Exchange(place, terminal, ChatLine("s", "tale", "k"), take) as exchange:
            accepted = await exchange.send()
            answer = await exchange.follow(SOON)
        assert (answer.request_id, answer.good) == (accepted["request_id"], True)
        assert [reply["text"] for reply in answer.replies] == ["Once and for all: tale"]
        assert (shown.count("reply"), shown[-1]) == (1, "done")
        assert await server.lab.count("select count(*) from message_inbox") == 1


async def test_the_terminal_shows_nothing_twice_though_its_stream_is_forgotten(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back while a turn waits for people, and while another butler writes: all is told from the beginning."""
    go_on, shown, texts = asyncio.Event(), list[tuple[str, str]](), defaultdict[str, str](str)

    @dataclass
    class Both:
        stoppable: bool = True

        async def run(self, turn: Turn, journal: Journal) -> TurnResult:
            assert turn.on_delta is not None
            if turn.member.system_id != CLERK:
                turn.on_delta(Delta(0, "Once ", 1))
                await go_on.wait()
                return Answer("Once upon a time")
            await journal.expect("it", within=3600, ask=Ask("call", "pay", {}, "it is said so", "d" * 64, "r"))
            return Answer(str((await journal.wait("it")).value["decision"]))

    def take(kind: str, told: Any) -> None:
        name = told.get("system_id", "")
        shown.append((kind, name))
        if kind == "delta":
            assert 0 <= told["offset"] <= len(texts[name])
            texts[name] = texts[name][: told["offset"]] + told["text"]

    async def came(wanted: tuple[str, str]) -> bool:
        return wanted in shown

    async with a_server(database_url, tmp_path, Both(), "cook") as server:
        line = ChatLine("s", "pay", "k")
        exchange = Exchange(ServerPlace(server.url, server.token, ""), None, line, take)
        async with exchange:
            await exchange.send()
            following = asyncio.create_task(exchange.follow(SOON))
            await eventually(lambda: came(("waiting", CLERK)))
            await eventually(lambda: came(("delta", "System1/cook")))
            following.cancel()
        before = len(shown)
        monkeypatch.setattr(ChatStreams, "find", lambda *_: None)
        async with exchange:
            again = await exchange.follow(SOON, until_asked=True)
        assert (again.asked, again.settled, len(shown)) == (True, False, before)
        [asked] = (await server.http.get("/v1/approvals")).json()["approvals"]
        await server.http.post(f"/v1/approvals/{asked['approval_id']}/approve")
        go_on.set()
        async with exchange:
            answer = await exchange.follow(SOON, until_asked=True)
        assert answer.good
        assert {reply["system_id"]: reply["text"] for reply in answer.replies} == texts
        assert [texts[CLERK], texts["System1/cook"]] == ["approved", "Once upon a time"]
        replied = [name for kind, name in shown if kind == "reply"]
        assert sorted(replied) == [CLERK, "System1/cook", "switchboard"]


# The end of a turn --------------------------------------------------------------------------------------------------


async def test_abort_ends_what_runs_and_leaves_what_waits(database_url: str, tmp_path: Path) -> None:
    async def play(turn: Turn, tell: Tell) -> TurnResult:
        if turn.text != "long":
            return await upper(turn, tell)
        tell(Delta(0, "So far", 1))
        assert turn.stop is not None
        await turn.stop.wait()
        return Answer("So far", stop_reason="aborted")

    async with a_server(database_url, tmp_path, Writing(play)) as server, client(server.url, server.token) as one:
        for named in (False, True):
            sent = await one.say("long", stream=True)
            waiting = await one.ask("chat.send", session="s", text="next", key=str(uuid4()))
            (folded := Folded()).take(await one.event(sent["stream"]))
            more = {"request_id": sent["request_id"]} if named else {}
            assert await one.call("chat.abort", session="s", **more) == {"stopped": 1}
            assert (await one.result(waiting))["content"] == "NEXT"
            await one.fold(sent["stream"], folded)
            assert (folded.content, folded.end["stop_reason"]) == ("So far", "aborted")
        assert await one.call("chat.abort", session="s") == {"stopped": 0}


async def test_what_nobody_answers_is_an_error_with_a_code(database_url: str, tmp_path: Path) -> None:
    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        if turn.text == "no reply":
            return NoReply("none is needed")
        raise EngineFailure("the model is gone", error_class="target_unavailable", retryable=False)

    async with a_server(database_url, tmp_path, Writing(play)) as server, client(server.url, server.token) as one:
        error = await one.refused("chat.send", session="s", text="x", key="1")
        assert (error["code"], error["message"]) == ("LLM_ERROR", "the model is gone")
        folded = await one.fold((await one.say("x", key="2", stream=True))["stream"])
        assert (folded.kinds[-1], folded.end["code"], folded.end["state"]) == ("chat.error", "LLM_ERROR", "dead")
        quiet = await one.say("no reply")
        assert (quiet["content"], quiet["state"], quiet["replies"]) == ("", "declined", [])


async def test_a_message_for_which_there_is_no_butler(server: Opened) -> None:
    async with client(server.url, server.token) as one:
        error = await one.refused("chat.send", session="s", text="x", key="1")
        assert error["code"] == "no_route"


async def test_history_comes_in_pages(database_url: str, tmp_path: Path) -> None:
    async with a_server(database_url, tmp_path, Writing(upper)) as server, client(server.url, server.token) as one:
        for n in range(5):
            await one.say(f"m{n}", key=f"k{n}")
        await one.say("elsewhere", session="other")
        found, cursor = list[str](), dict[str, str]()
        while True:
            page = await one.call("chat.history", session="s", limit=2, **cursor)
            found += [f"{message['text']} {message['replies'][0]['text']}" for message in page["messages"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert found == [f"m{n} M{n}" for n in (4, 3, 2, 1, 0)]
        assert (await one.refused("chat.history", session="s", cursor="none"))["code"] == "invalid_cursor"


def test_a_page_of_history_fits_a_frame() -> None:
    page = [ChatEntry(UUID(int=n), None, "ü" * 5000, _AT, "answered", ()) for n in range(5)]
    assert len(within(25_000, page)) == 2
    [cut] = within(9_000, page)
    assert (len(cut.text), cut.cut) == (1000, True)


async def test_a_long_answer_fits_its_frames(database_url: str, tmp_path: Path) -> None:
    text = '"\n' * 400_000

    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        return Answer(text)

    async with a_server(database_url, tmp_path, Writing(play)) as server, client(server.url, server.token) as one:
        folded = await one.fold((await one.say("x", stream=True))["stream"])
        assert folded.content == text
        assert folded.end["content"] is None
        [message] = (await one.call("chat.history", session="s"))["messages"]
        assert message["cut"]


# Who may not ---------------------------------------------------------------------------------------------------------


async def test_a_wrong_token_or_none_is_refused_and_closed(server: Opened) -> None:
    agent = await server.token_of(Principal("agent", "echo", system_id="System1/echo"))
    phone = await server.token_of(Principal("connector", "bot", "telegram", "bot:house"))
    cases: tuple[tuple[str, Mapping[str, str], str], ...] = (
        ("connect", {"token": "sb_o_wrong"}, "unauthenticated"),
        ("connect", {"token": agent}, "forbidden"),
        ("connect", {"token": phone}, "forbidden"),
        ("ping", {}, "unauthenticated"),
        ("connect", {}, "missing_field"),
        ("connect", {"token": server.token, "tokn": "x"}, "unknown_field"),
    )
    for method, params, code in cases:
        async with socket(server.url) as opened:
            one = Client(opened)
            await opened.send(json.dumps({"type": "req", "id": "1", "method": method, "params": params}))
            assert (await one.frame())["error"]["code"] == code
            assert await one.closed() == (1008, code)


async def test_who_says_nothing_is_not_waited_for(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_S", 0.05)
    async with socket(server.url) as opened:
        assert (await Client(opened).closed())[0] == 1008


async def test_pages_of_other_sites_and_tokens_in_the_url_are_refused(database_url: str, tmp_path: Path) -> None:
    more = {"public_url": "https://chat.example.org", "gateway": {"origins": ["https://app.example.org:444"]}}
    async with open_server(database_url, tmp_path / "data", more=more) as server:
        for origin in (server.url, "https://chat.example.org", "https://app.example.org:444"):
            async with client(server.url, server.token, origin=origin) as one:
                assert await one.call("ping")
        port = server.url.rpartition(":")[2]
        for origin in ("https://evil.example", "null", "https://app.example.org", f"http://localhost:{port}", "a:b:c"):
            with pytest.raises(InvalidStatus) as caught:
                await socket(server.url, origin=origin).__aenter__()
            body = json.loads(caught.value.response.body)
            assert (caught.value.response.status_code, body["error"]["code"]) == (403, "foreign_origin")
        async with aiohttp.ClientSession() as session:
            for path, headers, status in (
                (f"?token={server.token}", {}, 422),
                ("", {"Host": "evil.example"}, 421),
                ("/other", {}, 403),
            ):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await session.ws_connect(ws_url(server.url) + path, headers=headers)
                assert refused.value.status == status
        plain = await server.http.get("/v1/ws")
        assert (plain.status_code, plain.json()["error"]["code"]) == (426, "upgrade_required")


_HANDSHAKE: Final = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 3\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Cookie: %b\r\n\r\n" % (b"a" * 10_000),
        b"X-Many: b\r\n" * 200 + b"\r\n",
    ],
)
async def test_a_handshake_that_cannot_be_read_is_answered_and_ended(server: Opened, rest: bytes) -> None:
    async with asyncio.timeout(SOON):
        answer = await _talk(server, _HANDSHAKE + rest)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 422 ")
    assert json.loads(body)["error"]["code"] == "invalid_input"


async def test_a_handshake_behind_a_request_that_waits_ends_both(server: Opened) -> None:
    """Nobody would see that its client has gone: it would wait for nobody, for as long as it was told to."""
    wanted = json.dumps({"channel": "telegram", "endpoint": "bot:house", "wait_s": 60}).encode()
    waiting = (
        b"POST /v1/outbox/next HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (server.token.encode(), len(wanted), wanted)
    )
    async with asyncio.timeout(SOON):
        assert await _talk(server, waiting + _HANDSHAKE + b"\r\n") == b""
        await eventually(lambda: _nobody_waits(server))


async def _nobody_waits(server: Opened) -> bool:
    return "\nswitchboard_long_polls 0.0\n" in (await server.http.get("/metrics")).text


async def _talk(server: Opened, data: bytes) -> bytes:
    """What comes back until the connection is closed."""
    at = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_frames_that_are_none_are_answered_or_end_the_connection(server: Opened) -> None:
    async with client(server.url, server.token) as one:
        for frame, code in (
            ("{", "invalid_json"),
            ("[]", "invalid_input"),
            ('{"type": "req", "id": "1"}', "missing_field"),
            ('{"type": "req", "id": "1", "method": "chat.sned"}', "unknown_method"),
            ('{"type": "req", "id": "1", "method": "ping", "params": {"x": 1}}', "unknown_field"),
            ('{"type": "req", "id": "1", "method": "ping", "more": 1}', "unknown_field"),
            ('{"type": "req", "id": "1", "method": "chat.history", "params": {"session": " s"}}', "invalid_input"),
            ("[" * 100_000, "invalid_json"),
            ('"\\ud800"', "invalid_json"),
        ):
            await one.socket.send(frame)
            assert (await one.frame())["error"]["code"] == code, frame[:80]
        assert await one.call("ping")
        await one.socket.send(b"bytes")
        assert (await one.closed())[0] == 1003
    meant = connection.unknown_method("chat.sned").message
    assert "did you mean chat.resume or chat.send?" in meant


async def test_frames_that_are_too_large_end_the_connection(server: Opened) -> None:
    async with socket(server.url) as opened:
        await opened.send("x" * (protocol.STRANGER_BYTES + 1))
        assert (await Client(opened).closed())[0] == 1009
    async with client(server.url, server.token) as one:
        await one.socket.send(" " * protocol.FRAME_BYTES)
        assert (await one.frame())["error"]["code"] == "invalid_json"
        await one.socket.send("x" * (protocol.FRAME_BYTES + 1))
        assert (await one.closed())[0] == 1009
    async with client(server.url, server.token) as one:
        with suppress(ConnectionClosed):
            await one.socket.send("x" for _ in range(1100))
        assert await one.closed() == (1009, "a message has at most 1000 pieces")


async def test_a_revoked_token_ends_its_connection(database_url: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(turn: Turn, tell: Tell) -> TurnResult:  # noqa: ARG001
        await go_on.wait()
        return Answer("secret")

    async with a_server(database_url, tmp_path, Writing(play)) as server:
        ann, bob = await server.token_of(ANN), await server.token_of(BOB)
        async with client(server.url, ann) as one, client(server.url, bob) as idle:
            await one.say("x", stream=True)
            for principal in (ANN, BOB):
                await server.access.revoke(Principal("operator", "test"), principal.name)
            assert (await one.closed())[0] == 1008
            await idle.ask("ping")
            assert (await idle.closed())[0] == 1008
            go_on.set()
            assert "secret" not in str(one.events)


async def test_a_token_waits_for_so_many_answers_and_stores_no_more(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.app.messages.stream.MOST_STREAMS", 2)
    nobody_works_for = {"channel": "api", "endpoint": "e", "sender": "s"}
    async with client(server.url, server.token, nobody_works_for) as one:
        for n in range(2):
            await one.ask("chat.send", session="s", text=str(n), key=str(n))
        error = await one.refused("chat.send", session="s", text="x", key="x")
        assert (error["code"], error["details"]) == ("overloaded", {"retry_after_s": 1.0})
        assert await server.lab.count("select count(*) from message_inbox") == 2


# Slow and gone ------------------------------------------------------------------------------------------------------


async def test_who_never_reads_is_cut_off_and_slows_nobody(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SLOW_S", 0.3)
    over = asyncio.Event()

    async def play(turn: Turn, tell: Tell) -> TurnResult:
        if turn.text != "flood":
            return await upper(turn, tell)
        while not over.is_set():
            tell(Delta(0, "x" * 1_000_000, 1))
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.05)
        return Answer("done")

    async def cut() -> bool:
        return any("too slow" in entry["event"] for entry in logs)

    with capture_logs() as logs:
        async with a_server(database_url, tmp_path, Writing(play)) as server, AsyncExitStack() as stack:
            slow = await stack.enter_async_context(client(server.url, server.token, max_queue=1))
            await slow.ask("chat.send", session="slow", text="flood", key="1", stream=True)
            slow.socket.transport.pause_reading()
            async with client(server.url, server.token) as other:
                assert (await other.say("hi"))["content"] == "HI"
                await eventually(cut)
                assert (await other.say("hi"))["content"] == "HI"
            over.set()
            slow.socket.transport.abort()


async def test_who_pings_and_never_reads_is_cut_off(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNREAD_BYTES", 100_000)
    monkeypatch.setattr(protocol, "REST_S", 0.0)

    async def flood(one: Client) -> None:
        while True:
            await one.socket.ping(random.randbytes(125))

    async with client(server.url, server.token) as one, asyncio.timeout(SOON):
        one.socket.transport.pause_reading()
        with pytest.raises((ConnectionClosed, OSError)):
            await flood(one)
        one.socket.transport.abort()


async def test_connections_that_are_cut_leave_nothing(database_url: str, tmp_path: Path) -> None:
    dice = random.Random(5)

    async def life(server: Opened) -> None:
        stage = dice.randrange(4)
        async with socket(server.url) as opened:
            one = Client(opened)
            if stage > 0:
                await one.ask("connect", token=server.token)
            if stage > 1:
                await one.ask("chat.send", session=str(dice.random()), text="x", key=str(dice.random()), stream=True)
            for _ in range(dice.randrange(4) if stage > 2 else 0):
                await one.frame()
            opened.transport.abort()

    with capture_logs() as logs:
        async with a_server(database_url, tmp_path, Writing(upper)) as server:
            held = list[int]()
            for _ in range(2):
                for _ in range(10):
                    await asyncio.gather(*(life(server) for _ in range(10)))
                await eventually(lambda: _settled(server))
                held.append(_held())
            assert held[1] <= held[0] + 3
    assert not [entry for entry in logs if entry["log_level"] in {"warning", "error"}]


def _held() -> int:
    """Descriptors and tasks of this process, where server and clients are."""
    return len(list(Path("/proc/self/fd").iterdir())) + len(asyncio.all_tasks())


async def _settled(server: Opened) -> bool:
    open_turns = await server.lab.count("select count(*) from delivery where state = 'pending'")
    names = [repr(task.get_coro()) for task in asyncio.all_tasks()]
    return not open_turns and not [name for name in names if "run_asgi" in name or "Connection." in name]

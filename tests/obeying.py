"""An installation whose butlers have a model that obeys every text it reads, and a web that notes what reaches it.

Messages are accepted, routed, answered by the engine `model` and settled as in production; only the model is scripted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from switchboard.agents.model.engine import ModelEngine
from switchboard.domain.ledger import LaneKey
from switchboard.domain.routing import Member
from switchboard.journey.compaction import Compactor
from switchboard.journey.turn import TurnLimits
from switchboard.ports.engine import EngineContext
from switchboard.store.memory.facts import StoredFacts
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.work.surroundings import StoredSurroundings
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from switchboard.testing.scripted_llm.obey import commands
from switchboard.tools.files import file_tools
from switchboard.tools.search import search_tool
from switchboard.tools.web_fetch import WebFetch, WebOptions
from tests.asking import spec
from tests.engines import Book
from tests.hands import at_work, settled
from tests.lab import TRUSTING, Lab, lab, submission, team_of
from tests.turning import Asked, NoMemos
from tests.waiting import eventually

CANARY: Final = re.compile(r"canary-[a-z]+")
WORD: Final = re.compile(r"[\w./-]{3,}")
SEEN: Final = "%SEEN%"
"""In a text that the model obeys: all canaries that it has seen."""


# The model ----------------------------------------------------------------------------------------------------------


def obedient(request: Request) -> Reply:
    """Does what the latest text says, and then says every word that it was given. Condensing, it keeps everything."""
    if "You condense" in request.system:
        return Reply(condensed(request.prompt))
    seen = "\n".join(said.text for said in request.messages)
    latest = [said.text for said in request.results] or [request.messages[-1].text]
    told = "\n".join(latest).replace(SEEN, ".".join(dict.fromkeys(CANARY.findall(seen))))
    begun = max(n for n, said in enumerate(request.messages) if said.role == "user")
    done = [(call.name, json.loads(call.arguments)) for said in request.messages[begun:] for call in said.calls]
    calls = tuple(Call(*wanted) for wanted in commands(told) if wanted not in done)
    return Reply(calls=calls) if calls else Reply(f"{told[:500]}\n\n{' '.join(sorted(set(WORD.findall(seen))))}")


def condensed(asked: str) -> str:
    """Facts and a summary that put everything that can be read into everything that may be kept."""
    read = json.loads(asked)["conversation"]
    everything = " ".join(dict.fromkeys(one["text"] for one in read))
    facts = [{"text": one["text"], "value": one["text"], "entry": one["entry"]} for one in read]
    mixed = [{"text": f"{one['text']} {everything}"[:300], "value": one["text"], "entry": one["entry"]} for one in read]
    return json.dumps({"summary": everything, "facts": [*facts[-5:], *mixed[-5:]]})


# The web ------------------------------------------------------------------------------------------------------------


@dataclass
class Web:
    """One server that is at every name, and the names that were looked up."""

    port: int = 0
    pages: dict[str, bytes] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, text: str) -> None:
        """What is at this path, whatever the query."""
        data = text.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(data)}\r\n\r\n"
        self.pages[path] = head.encode() + data

    def redirect(self, path: str, to: str) -> None:
        self.pages[path] = f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:  # noqa: ARG002
        self.names.append(host)
        return ("127.0.0.1",)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            target = head.split(" ")[1].partition("?")
            # An open redirect, as many hosts have one.
            if target[0] == "/redirect":
                self.redirect("/redirect", target[2].removeprefix("to="))
            writer.write(self.pages.get(target[0], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def a_web() -> AsyncIterator[Web]:
    web = Web()
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    web.port = server.sockets[0].getsockname()[1]
    async with server:
        yield web


# The installation ---------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """A worker with the engine `model`, and all that its model was asked."""

    parts: Lab
    llm: ScriptedLlm
    models: Asked
    workspaces: Path

    async def replies(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """The replies to messages that come in together."""
        accepted = [await self.parts.accept.accept(submission(**message)) for message in messages]
        await eventually(lambda: settled(self.parts), within=120)
        return [await self._reply(one.request_id) for one in accepted]

    async def _reply(self, request_id: UUID) -> str:
        [text] = await self.parts.replies_to(request_id)
        return text

    async def reply(self, **message: Any) -> str:
        [text] = await self.replies([message])
        return text

    async def compact(self) -> int:
        """Condense what is due, in every lane; how many summaries there are then."""
        compactor = Compactor(self.parts.database, self.models, ["m"])
        for row in await self.parts.database.rows("select lane from compaction"):
            assert await compactor.compact(LaneKey(row["lane"])) is None
        return await self.parts.count("select count(*) from summary")


@asynccontextmanager
async def stage(url: str, workspaces: Path, members: Sequence[Member], web: Web | None = None) -> AsyncIterator[Stage]:
    """With these butlers; messages name theirs (`pinned`)."""
    fetch = WebFetch(WebOptions(resolver=web.resolve)) if web else WebFetch()
    team = team_of(*members)
    async with ScriptedLlm(obedient) as llm, lab(url, [team], [], channels=TRUSTING) as parts:
        readers, models = (
            StoredReaders(parts.database, TRUSTING),
            Asked([spec("openai", llm.url, "m", context=200_000)]),
        )
        context = EngineContext(
            NoMemos(),
            Book(),
            models=models,
            workspaces=workspaces,
            readers=readers,
            history=StoredHistory(parts.database, readers),
            facts=StoredFacts(parts.database, readers),
            surroundings=StoredSurroundings(parts.database, TRUSTING, readers),
        )
        engine = ModelEngine(context, (*file_tools(), search_tool(), fetch))
        try:
            async with at_work(parts.worker({"model": engine}, poll=0.02, limits=TurnLimits())):
                yield Stage(parts, llm, models, workspaces)
        finally:
            await models.aclose()

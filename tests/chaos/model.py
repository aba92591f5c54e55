"""A model of a provider, as a process: it chooses by the text, and fails in every way in a part of its calls.

    python -m tests.chaos.model TRACE RATE SEED

Prints its URL as JSON when it answers, and now and then refuses connections for a moment. One line in the trace for
every call, `api WAY`, and `refusing` for every such moment.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from switchboard.testing.scripted_llm import (
    Call,
    Cut,
    Disconnect,
    Garbage,
    Hang,
    Reply,
    Request,
    ScriptedLlm,
    Status,
    TwoTools,
    UnknownTool,
    Usage,
)
from tests.chaos.node import Trace

WHOM: Final = re.compile(r"\d+ (b\d(?:\+b\d)*) e\d+")
"""A message says to whom it is to go: its number in its conversation, butlers, its event."""
FORTUNE: Final = 1_000_000
"""More tokens than a message may cost."""


def route(prompt: str) -> tuple[Call, ...]:
    """The calls that are right for a message: one butler for the whole, or several with a part each."""
    [names] = set(WHOM.findall(prompt))
    butlers = names.split("+")
    if len(butlers) == 1:
        return (Call("route_to_butler", {"butler": butlers[0]}),)
    return tuple(Call("route_to_butler", {"butler": name, "segment": name}) for name in butlers)


WAYS: Final[Mapping[str, Callable[[tuple[Call, ...]], Reply]]] = {
    "429": lambda _: Reply(fault=Status(429, retry_after=1)),
    "500": lambda _: Reply(fault=Status(500)),
    "disconnect": lambda _: Reply(fault=Disconnect()),
    "hang": lambda _: Reply(fault=Hang("for ever")),
    "half": lambda calls: Reply(calls=calls, fault=Cut()),
    "cut_off": lambda calls: Reply(calls=calls[:1], finish="length"),
    "garbage": lambda _: Reply(fault=Garbage()),
    "refused": lambda _: Reply(text="I will not.", finish="filter"),
    "no_call": lambda _: Reply(text="I do not know."),
    "wrong_butler": lambda calls: Reply(calls=(*calls[:-1], Call("route_to_butler", {"butler": "ghost"}))),
    "two_calls": lambda calls: Reply(calls=calls, fault=TwoTools()),
    "unknown_tool": lambda calls: Reply(calls=calls, fault=UnknownTool()),
    "expensive": lambda _: Reply(text="Hm.", usage=Usage(FORTUNE, 1)),
}


async def serve(trace: Trace, rate: float, dice: random.Random) -> None:
    """Answer until killed."""

    def brain(request: Request) -> Reply:
        calls = route(request.prompt)
        way = dice.choice(list(WAYS)) if dice.random() < rate else "well"
        trace.write("api", way)
        return Reply(calls=calls) if way == "well" else WAYS[way](calls)

    async with ScriptedLlm(brain) as llm:
        sys.stdout.write(json.dumps({"url": llm.url}) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(3)
        while True:
            trace.write("refusing")
            async with llm.closed():
                await asyncio.sleep(0.2)
            await asyncio.sleep(10 + 10 * dice.random())


def main() -> None:
    """Read the command line."""
    path, rate, seed = sys.argv[1:]
    asyncio.run(serve(Trace(Path(path)), float(rate), random.Random(int(seed))))


if __name__ == "__main__":
    main()

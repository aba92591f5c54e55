"""The models of the random programs: one that answers turns and keeps what it was sent, and one that believes all.

`world.py` plays with both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from switchboard.domain.llm import Reply as ModelReply
from switchboard.domain.llm import Report
from switchboard.domain.llm import Request as ModelRequest
from switchboard.ports.models import Asking
from switchboard.testing.scripted_llm import Reply, Request
from tests.integration.test_compaction import Cheap
from tests.integration.test_remembering import Clerk

LETTERS: Final = "bcdfghjklmnpqrstvwxz"
CANARY: Final = re.compile(rf"[{LETTERS}]{{16}}")
_MOST_OWN: Final = 7
"""Of the ten facts that an answer may state, so that some are left for what is not true."""


class Recorder(Clerk):
    """The scripted model; keeps the bytes of all requests of a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = list[str]()

    def __call__(self, request: Request) -> Reply:
        """As the clerk."""
        self.bodies.append(json.dumps(dict(request.body), ensure_ascii=False))
        return super().__call__(request)


class _Told(Struct, frozen=True):
    """An entry as a model is shown it."""

    entry: int
    text: str

    def stated(self, entry: int | None = None) -> dict[str, object]:
        """A fact of it, as if this entry, or another one, said so."""
        return {"text": self.text, "value": self.text, "entry": self.entry if entry is None else entry}


class Gullible(Cheap):
    """A model that makes facts and a summary of all that it reads, and says of the latest that somebody else said so.

    `meanwhile` is given the purpose and all that was sent, before the model answers.
    """

    def __init__(self, meanwhile: Callable[[str, str], Awaitable[None]]) -> None:
        self._meanwhile = meanwhile

    async def ask(self, request: ModelRequest, asking: Asking) -> Report:
        """As in the port."""
        sent = request.messages[0].text
        await self._meanwhile(asking.asker, f"{request.system}\n{sent}")
        read = json.loads(sent)
        told = [_Told(one["entry"], one["text"]) for one in read["conversation"]]
        said = [one for one in told if CANARY.search(one.text)]
        stated = [*(one.stated() for one in said[:_MOST_OWN]), *(one.stated(told[0].entry) for one in said[-3:])]
        summary = " ".join(dict.fromkeys((read.get("earlier_summary", ""), *(one.text for one in told))))
        return Report(ModelReply(json.dumps({"summary": summary, "facts": stated})))

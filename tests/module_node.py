"""A process with a module that computes for ever: `main([DATABASE_URL, PLACE])`.

`PLACE`, which is in its PYTHONPATH, is where `tests/installed.py` has put the module. It ends itself, after half a
second instead of thirty. The result of each call is written to the file `told` there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from switchboard.modules.kernel.opened import OpenModules
from switchboard.ports.tools import ToolScope
from switchboard.store.database import Database
from switchboard.store.models.module_quarantine import StoredQuarantine
from tests.installed import butler, installation


async def call_it(database_url: str, place: Path) -> None:
    """Call the module, if it may be called at all."""
    database = await Database.connect(database_url, size=1)
    owner = butler(["spinning", "diary"])
    modules = OpenModules(installation(owner, quarantine=StoredQuarantine(database, "here")))
    modules.watch.end_process_if_held(0.5)
    scope = ToolScope(Path(), frozenset(), frozenset(), UUID(int=1), UUID(int=2))
    tools = {tool.spec.name: tool for tool in await modules.of(owner)}
    (place / "told").write_text(" ".join(sorted(tools)))
    if "spinning_do" in tools:
        await tools["spinning_do"].call({}, scope)
    (place / "told").write_text((await tools["diary_read"].call({"day": "Monday"}, scope)).text)
    await modules.aclose()
    await database.close()


def main(arguments: Sequence[str]) -> None:
    """Call it, and say so."""
    asyncio.run(call_it(arguments[0], Path(arguments[1])))

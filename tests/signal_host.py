"""A program that ignores signals and starts programs of every kind: which signals do these ignore?

`integration/test_signals.py` starts it behind `trap '' …`. Out: as JSON, the mask of ignored signals of each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from switchboard.embedded.binaries import run
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import QUOTA
from switchboard.sandbox.run import Sandbox
from switchboard.sandbox.session import start_session
from switchboard.transport import kept
from switchboard.transport.programs import Program, death_guard, run_program

_ASK = "grep SigIgn /proc/self/status"


async def main() -> None:
    """Start them one after the other."""
    shell = ("/bin/sh", "-c", _ASK)
    program = Program(shell, {}, "/", b"", 10.0)
    guarded = Program((*death_guard(), *shell), {}, "/", b"", 10.0)
    said = {
        "ours": _status(),
        "command": (await run_program(program)).text,
        "guarded": (await run_program(guarded)).text,
        "mcp": await _kept(shell),
        "postgresql": (await run(*shell, cwd=Path("/"), account=None)).text,
    }
    sandbox = Sandbox(SandboxRules())
    if not await sandbox.lacking():
        with tempfile.TemporaryDirectory() as place:
            said["sandbox"] = (await sandbox.run(_ASK, Path(place), QUOTA)).output.decode()
            session = await start_session(sandbox, Path(place), QUOTA)
            said["bash"] = (await session.run(_ASK)).output.decode()
            await session.close()
    said["ours after"] = _status()
    json.dump({kind: int(text.partition("SigIgn:")[2].split()[0], 16) for kind, text in said.items()}, sys.stdout)


def _status() -> str:
    return Path("/proc/self/status").read_text()


async def _kept(argv: tuple[str, ...]) -> str:
    program = kept.start(kept.LongProgram(argv, dict(os.environ), Path("/")))
    text = b""
    while piece := await program.read():
        text += piece
    await program.end(1.0)
    return text.decode()


if __name__ == "__main__":
    asyncio.run(main())

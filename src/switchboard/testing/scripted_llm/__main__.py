"""The scripted LLM as a process, for other languages and for command lines.

`python -m switchboard.testing.scripted_llm --script FILE` prints one line of JSON, `{"url": …}`, when it is ready, and
ends with SIGTERM or Ctrl-C. Next: `server.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Final

import yaml

from switchboard.domain.errors import ConfigurationError
from switchboard.testing.scripted_llm.endpoints import Strictness
from switchboard.testing.scripted_llm.script import Script, read_script
from switchboard.testing.scripted_llm.server import ScriptedLlm

_WHAT: Final = "A scripted LLM on loopback; it prints its URL as JSON."


def main(arguments: list[str] | None = None) -> int:
    """Run until told to stop. Returns 0, or 2 if the script or the port is unusable."""
    parser = argparse.ArgumentParser(prog="python -m switchboard.testing.scripted_llm", description=_WHAT)
    parser.add_argument("--script", type=Path, required=True, metavar="FILE", help="the script, as JSON or YAML")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    parser.add_argument("--strict", action="store_true", help="reject what a strict provider rejects")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="lose the head of longer requests")
    parser.add_argument("--local", action="store_true", help="be a choosy local server with one slot")
    parser.add_argument("--while-stdin", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    try:
        script = _script(chosen.script)
        strict: Strictness = "local" if chosen.local else bool(chosen.strict)
        llm = ScriptedLlm(script, port=chosen.port, strict=strict, context=chosen.context)
        asyncio.run(_serve(llm, while_stdin=chosen.while_stdin))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _script(file: Path) -> Script:
    """The script in a file; JSON is also read as YAML, since JSON is YAML."""
    try:
        return read_script(yaml.safe_load(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file}: {error}") from error


async def _serve(llm: ScriptedLlm, *, while_stdin: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    loop = asyncio.get_running_loop()
    if while_stdin:  # run no longer than our parent process, however it ends
        loop.add_reader(sys.stdin.fileno(), stop.set)
    async with llm:
        sys.stdout.write(json.dumps({"url": llm.url}) + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())

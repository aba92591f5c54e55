"""Programs that play claude-code in whole turns: they start our MCP server as they are told, call tools, and misbehave.

A test gives the body of one, which may use `call`, `say`, `end` and `mark`; `turns_by` makes an engine that runs it.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from switchboard.agents.model.engine import ModelEngine
from switchboard.llm.spec import ModelSpec
from switchboard.ports.tools import Tool
from tests.turning import Asked, model_engine

PRELUDE: Final = """\
import json, os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(__file__).parent
def mark(name, text=None):
    (here / f"{name}.part").write_text(str(os.getpid()) if text is None else text)
    (here / f"{name}.part").rename(here / name)
def line(**value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
def say(text):
    line(type="stream_event", event={"type": "message_start"})
    for word in text.split(" "):
        line(type="stream_event", event={"type": "content_block_delta", "delta": {"text": word + " "}})
    usage = {"input_tokens": 100, "output_tokens": 10}
    line(type="assistant", message={"id": text, "usage": usage, "content": [{"type": "text", "text": text}]})
def end(text, **more):
    usage = {"input_tokens": 300, "output_tokens": 30}
    line(**{"type": "result", "subtype": "success", "is_error": False, "result": text, "stop_reason": "end_turn",
        "usage": usage, "total_cost_usd": 0.5, **more})
def send(method, **params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}) + "\\n")
    server.stdin.flush()
def ask(method, **params):
    send(method, **params)
    return json.loads(server.stdout.readline())
def call(tool, **arguments):
    return ask("tools/call", name=tool, arguments=arguments)["result"]["content"][0]["text"]
prompt = sys.stdin.read()
with (here / "prompts").open("a") as prompts:
    prompts.write(json.dumps(prompt) + "\\n")
at = json.loads(pathlib.Path(sys.argv[sys.argv.index("--mcp-config") + 1]).read_text())["mcpServers"].get("switchboard")
if at:
    words = [at["command"], *at["args"]]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ask("initialize", protocolVersion="2025-06-18")
    ask("tools/list")
"""


def program(place: Path, body: str, name: str = "program") -> Path:
    """A program in this directory."""
    file = place / name
    file.write_text(f"#!{sys.executable} -S\n{PRELUDE}{textwrap.dedent(body)}", encoding="utf-8")
    file.chmod(0o755)
    return file


def spec_of(file: Path, name: str = "cli", **more: Any) -> ModelSpec:
    """The model that is asked through a program."""
    return ModelSpec(name, "claude-code", "scripted-1", "http://127.0.0.1:9", program=str(file), **more)


@asynccontextmanager
async def turns_by(
    place: Path, body: str, tools: Sequence[Tool] = (), *, specs: Sequence[ModelSpec] = (), **context: Any
) -> AsyncIterator[ModelEngine]:
    """An engine whose turns this program does, or these models."""
    models = Asked(specs or [spec_of(program(place, body))])
    try:
        yield model_engine(models, tools, **{"workspaces": place, **context})
    finally:
        await models.aclose()


def living(place: Path) -> list[str]:
    """The commands of all processes with a file below this directory among their words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue  # it has ended
        if int(process.name) != os.getpid() and any(str(place) in word for word in words):
            found.append(" ".join(words))
    return found

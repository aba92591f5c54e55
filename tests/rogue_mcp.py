"""An MCP server without a package: it does what its tools are called, and most of that is wrong.

Run by its path; the first argument is a file with its tools as JSON, read whenever they are asked for, so tests can
change them. What it is called with is appended to the second, if there is one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MB = 1024 * 1024
ANY = {"type": "object"}


def a_tool(name: str, description: str = "", parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """As a server lists it; harmless, it says."""
    said = {"readOnlyHint": True, "idempotentHint": True}
    return {"name": name, "description": description, "inputSchema": parameters or ANY, "annotations": said}


def say(**message: Any) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def answer(request: int, text: str, **more: Any) -> None:
    say(id=request, result={"content": [{"type": "text", "text": text}], **more})


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                about = {"protocolVersion": version, "capabilities": {"tools": {}}}
                say(id=message["id"], result={**about, "serverInfo": {"name": "rogue", "version": "1"}})
            case "tools/list":
                say(id=message["id"], result={"tools": json.loads(Path(sys.argv[1]).read_text())})
            case "ping":
                say(id=message["id"], result={})
            case "tools/call":
                note(message["params"])
                called(message["id"], message["params"]["name"], message["params"].get("arguments") or {})


def note(params: dict[str, Any]) -> None:
    if len(sys.argv) > 2:
        with Path(sys.argv[2]).open("a") as file:
            file.write(json.dumps(params) + "\n")


def called(request: int, name: str, arguments: dict[str, Any]) -> None:
    """Tools that have nothing of their own say their `text`."""
    DEEDS.get(name, echo)(request, arguments)


def echo(request: int, arguments: dict[str, Any]) -> None:
    answer(request, arguments.get("text", ""))


def large(request: int, arguments: dict[str, Any]) -> None:
    answer(request, "x" * (arguments["megabytes"] * MB))


def line(_: int, __: dict[str, Any]) -> None:
    while True:
        sys.stdout.buffer.write(b"x" * MB)


def flood(_: int, __: dict[str, Any]) -> None:
    while True:
        say(method="notifications/message", params={"level": "info", "data": "x" * 1000})


def babble(request: int, _: dict[str, Any]) -> None:
    sys.stdout.write("not JSON at all\n{\n[1, 2]\n" + "loading…\n" * 1000)
    sys.stdout.flush()
    answer(request, "said")


def deaf(request: int, _: dict[str, Any]) -> None:
    answer(request, "no more")
    time.sleep(3600)


def ask(request: int, _: dict[str, Any]) -> None:
    say(id="q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
    said = json.loads(sys.stdin.buffer.readline())
    answer(request, json.dumps(said.get("error", said)))


def change(request: int, arguments: dict[str, Any]) -> None:
    Path(sys.argv[1]).write_text(json.dumps(arguments["tools"]))
    say(method="notifications/tools/list_changed")
    answer(request, "changed")


def misshape(request: int, arguments: dict[str, Any]) -> None:
    say(id=request, result={"content": [{"type": "text", "text": {arguments["text"]: 1}}]})


def swarm(request: int, _: dict[str, Any]) -> None:
    answer(request, str(orphan()))


def orphan() -> int:
    """A process in a session of its own whose parent is gone, and that holds our pipes."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (child := os.fork()) == 0:
            time.sleep(3600)
        os.write(write, str(child).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))


DEEDS: dict[str, Callable[[int, dict[str, Any]], object]] = {
    "die": lambda _, __: os._exit(3),
    "silent": lambda _, __: None,
    "freeze": lambda _, __: time.sleep(3600),
    "env": lambda request, _: answer(request, json.dumps(dict(os.environ))),
    "fail": lambda request, _: answer(request, "the disk is full", isError=True),
    "echo": echo,
    "large": large,
    "line": line,
    "flood": flood,
    "babble": babble,
    "orphan": swarm,
    "deaf": deaf,
    "ask": ask,
    "change": change,
    "misshape": misshape,
}


if __name__ == "__main__":
    main()

"""An MCP server without a package: it does what its tools are called, and most of that is wrong.

Run by its path; the first argument is a file with its tools as JSON, read whenever they are asked for, so tests can
change them. Lines that it is called with are appended to the second, if there is one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MB = 1024 * 1024
ANY = {"type": "object"}
TOOLS = ("echo", "die", "silent", "freeze", "large", "line", "flood", "print", "orphan", "deaf", "env", "ask", "change")


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
    match name:
        case "die":
            os._exit(3)
        case "silent":
            return
        case "freeze":
            time.sleep(3600)
        case "large":
            answer(request, "x" * (arguments["megabytes"] * MB))
        case "line":
            while True:
                sys.stdout.buffer.write(b"x" * MB)
        case "flood":
            while True:
                say(method="notifications/message", params={"level": "info", "data": "x" * 1000})
        case "print":
            print("not JSON at all\n{\n[1, 2]\n" + "loading…\n" * 1000, flush=True)
            answer(request, "printed")
        case "orphan":
            answer(request, str(orphan()))
        case "deaf":
            answer(request, "no more")
            time.sleep(3600)
        case "env":
            answer(request, json.dumps(dict(os.environ)))
        case "ask":
            say(id="q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
            said = json.loads(sys.stdin.buffer.readline())
            answer(request, json.dumps(said.get("error", said)))
        case "change":
            say(method="notifications/tools/list_changed")
            answer(request, "changed")
        case _:
            answer(request, arguments.get("text", ""))


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


if __name__ == "__main__":
    main()

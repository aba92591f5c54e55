"""A program that speaks like claude-code, as far as Switchboard listens, and fails in every way that such programs do.

`install` puts it into a directory, with a line that says which Python, and beside it a file of JSON: the `trace`, the
`rate` of failures, the `ways` to fail, where the `recordings` are. It calls our MCP server as the real one does,
chooses by the text, and writes down one line, `cli WAY`, for every run. It imports the standard library alone.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TOOL = "route_to_butler"


class Session:
    """One run of the program."""

    def __init__(self, recordings: Path) -> None:
        self._recordings = recordings
        words = sys.argv
        server = json.loads(Path(words[words.index("--mcp-config") + 1]).read_text())["mcpServers"]["switchboard"]
        self._url, self._headers = server["url"], server["headers"]
        [names] = set(re.findall(r"\d+ (b\d(?:\+b\d)*) e\d+", sys.stdin.read()))
        self.butlers: list[str] = names.split("+")

    def arguments(self, butler: str) -> dict[str, str]:
        whole = len(self.butlers) == 1
        return {"butler": butler} if whole else {"butler": butler, "segment": butler}

    def call(self, arguments: Mapping[str, str]) -> str:
        """Call our tool; what it says, or the error."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": TOOL, "arguments": arguments}}
        headers = {**self._headers, "Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25"}
        headers["Accept"] = "application/json, text/event-stream"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                result = json.loads(answer.read())["result"]
        except (urllib.error.URLError, OSError, KeyError, ValueError) as error:
            return f"MCP error: {error}"
        return str(result["content"][0]["text"])

    def told(self, results: Sequence[str]) -> None:
        """Print what claude-code prints of calls with these results."""
        usage = {"input_tokens": 300, "output_tokens": 30}
        for n, (butler, result) in enumerate(zip(self.butlers, results, strict=True)):
            tool_use = {"type": "tool_use", "id": f"toolu_{n}", "name": f"mcp__switchboard__{TOOL}"}
            content: Any = [tool_use | {"input": self.arguments(butler)}]
            _print({"type": "assistant", "message": {"id": f"m{n}", "role": "assistant", "content": content}})
            good = '"accepted"' in result
            content = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": result, "is_error": not good}]
            _print({"type": "user", "message": {"role": "user", "content": content}})
        end = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "stop_reason": "end_turn"}
        _print(end | {"usage": usage, "total_cost_usd": 0.001})

    def replay(self, case: str) -> None:
        """Print what the real program did."""
        sys.stdout.write((self._recordings / f"{case}.jsonl").read_text(encoding="utf-8"))


def _print(line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def well(one: Session) -> int:
    """Call for each butler, and tell of it."""
    one.told([one.call(one.arguments(butler)) for butler in one.butlers])
    return 0


def mute(one: Session) -> int:
    """The calls are made; nothing is told of them, and the exit code is bad. They count all the same."""
    for butler in one.butlers:
        one.call(one.arguments(butler))
    return 1


def late(one: Session) -> int:
    """The calls are made, and then it hangs until it is killed."""
    mute(one)
    return hang(one)


def lie(one: Session) -> int:
    """Tell of calls that were never made; the exit code is good."""
    one.told(['{"status": "accepted"}' for _ in one.butlers])
    return 0


def wrong_butler(one: Session) -> int:
    """Call for nobody, and tell of the error."""
    one.butlers = ["ghost"]
    return well(one)


def hang(_: Session) -> int:
    """Nothing comes any more."""
    time.sleep(600)
    return 0


def crash(_: Session) -> int:
    """Die of a signal."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def as_recorded(case: str, code: int) -> Callable[[Session], int]:
    """What the real program printed, and its exit code."""

    def play(one: Session) -> int:
        one.replay(case)
        return code

    return play


WAYS: Mapping[str, Callable[[Session], int]] = {
    "mcp_down": as_recorded("mcp_down", 0),
    "denied": as_recorded("denied", 0),
    "no_call": as_recorded("no_call", 0),
    "api_error": as_recorded("api_error", 1),
    "garbage": as_recorded("garbage", 1),
    "wrong_butler": wrong_butler,
    "lie": lie,
    "mute": mute,
    "late": late,
    "hang": hang,
    "crash": crash,
}


def install(directory: Path, *, rate: float, ways: Sequence[str] = tuple(WAYS)) -> Path:
    """Put the program into `directory`; where it is. Its trace is `cli.trace` beside it."""
    program = directory / "claude"
    program.write_text(f"#!{sys.executable} -S\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    program.chmod(0o755)
    recordings = Path(__file__).parents[1] / "fixtures" / "cli" / "claude-code"
    plan = {"trace": str(directory / "cli.trace"), "rate": rate, "ways": ways, "recordings": str(recordings)}
    program.with_suffix(".json").write_text(json.dumps(plan), encoding="utf-8")
    return program


def main() -> int:
    """One session; the exit code says nothing."""
    plan = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    one = Session(Path(plan["recordings"]))
    with open(plan["trace"], "a+", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as trace:
        trace.seek(0)
        way = rarest(plan["ways"], trace.read().splitlines()) if random.random() < plan["rate"] else "well"
        trace.write(f"cli {way}\n")
    return WAYS.get(way, well)(one)


def rarest(ways: Sequence[str], traced: Sequence[str]) -> str:
    """One of those that were met least: a run with few sessions must meet all of them."""
    return min(random.sample(ways, len(ways)), key=lambda way: traced.count(f"cli {way}"))


if __name__ == "__main__":
    sys.exit(main())

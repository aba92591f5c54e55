"""A house whose server and workers are real processes, for calls of tools that are killed in the middle.

`test_calls_killed.py` uses it. The butler's module `purse` has a tool of each effect; it notes each call in the file
`called`, and each effect in `effects`. A tool that is held says so in `held`, and goes on when `hold` is gone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from switchboard.server.contracts.modules import KEY
from tests.forked import Forked, Forks
from tests.installed import write_packages
from tests.ports import free_port
from tests.processes import environment, switchboard, write_teams
from tests.servers import NO_TLS
from tests.waiting import eventually

Hold = Literal["before", "after"]
"""Where a tool is held: before or after its effect."""
By = Literal["http", "mcp", "cli"]
"""How a call is made; over MCP with a token for ann, otherwise by the operator."""
PATIENCE_S: Final = 60.0
PURSE: Final = '''
from __future__ import annotations

import asyncio
import os
from pathlib import Path

from switchboard.ports.module import ModuleManifest, typed_tool
from switchboard.ports.tools import ToolScope

PLACE = Path(os.environ["PURSE"])


def note(name, line):
    with (PLACE / name).open("a") as file:
        file.write(f"{line}\\n")


def lines(name):
    return (PLACE / name).read_text().splitlines() if (PLACE / name).exists() else []


async def wait_at(where):
    hold = PLACE / "hold"
    if hold.exists() and hold.read_text() == where:
        note("held", where)
        while hold.exists():
            await asyncio.sleep(0.02)


async def take_effect(tool, scope, has_happened):
    effect = f"{tool} {scope.key}"
    note("called", effect)
    await wait_at("before")
    if not has_happened(effect):
        note("effects", effect)
    await wait_at("after")
    return f"{tool}: done"


async def purse_set(purse: Purse, scope: ToolScope) -> str:
    """Set what is in the purse; to set it again changes nothing."""
    return await take_effect("purse_set", scope, lambda effect: effect in lines("effects"))


async def purse_pay(purse: Purse, scope: ToolScope) -> str:
    """Pay, unless the book says that this was paid."""
    return await take_effect("purse_pay", scope, lambda effect: effect in lines("effects"))


async def purse_give(purse: Purse, scope: ToolScope) -> str:
    """Give something away; given twice it is gone twice."""
    return await take_effect("purse_give", scope, lambda effect: False)


class Purse:
    chores = ()

    async def aclose(self) -> None:
        pass


def open_purse(context):
    return Purse()


TOOLS = (
    typed_tool(purse_set, effect="idempotent", reach="inside"),
    typed_tool(purse_pay, effect="queryable", reach="inside"),
    typed_tool(purse_give, effect="effectful", reach="inside"),
)
MANIFEST = ModuleManifest("purse", TOOLS, "purse_module:open_purse")
'''


@dataclass(frozen=True)
class CallHouse:
    """Where the processes are started, and where their tools note what they do."""

    forks: Forks
    place: Path
    port: int
    env: Mapping[str, str]
    processes: list[Forked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lines(self, name: str) -> list[str]:
        """What the tools have noted in a file."""
        file = self.place / "purse" / name
        return file.read_text().splitlines() if file.exists() else []

    def hold(self, where: Hold) -> None:
        """Have the next call wait there."""
        (self.place / "purse" / "hold").write_text(where)

    def release(self) -> None:
        """Let the tool go on."""
        (self.place / "purse" / "hold").unlink()

    async def until_held(self, times: int = 1) -> None:
        """Wait until a tool says that it is held, for the nth time."""

        async def is_held() -> bool:
            return len(self.lines("held")) >= times

        await eventually(is_held, within=PATIENCE_S)

    def work(self, crash_at: str = "") -> Forked:
        """Start a worker."""
        return self._start("work", crash_at)

    async def end(self, process: Forked) -> None:
        """Kill it."""
        process.kill()
        await process.wait(PATIENCE_S)

    async def serve(self) -> Forked:
        """Start the server; returns when it answers."""
        server = self._start("serve", "")
        async with httpx2.AsyncClient(verify=NO_TLS) as http:

            async def answers() -> bool:
                assert server.returncode is None, server.errors.read_text()[-2000:]
                with suppress(httpx2.TransportError):
                    await http.get(f"{self.url}/health")
                    return True
                return False

            await eventually(answers, within=PATIENCE_S)
        return server

    def _start(self, command: str, crash_at: str) -> Forked:
        env = {**self.env, "SWITCHBOARD_CRASH_AT": crash_at}
        process = self.forks.start("switchboard.cli.main", command, env=env, errors=self.place / command)
        self.processes.append(process)
        return process

    @property
    def token(self) -> str:
        """The operator's."""
        return (self.place / "data" / "operator.token").read_text().strip()

    async def post(self, path: str, body: Mapping[str, Any], token: str = "") -> dict[str, Any]:
        """The answer of the server. Raises `httpx2.TransportError` if it ends before."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        async with httpx2.AsyncClient(verify=NO_TLS, timeout=PATIENCE_S, headers=headers) as http:
            answer = await http.post(f"{self.url}{path}", json=body)
        assert answer.is_success, answer.text
        found: dict[str, Any] = json.loads(answer.content)
        return found

    async def token_for_ann(self) -> str:
        """A token of the butler for ann, who owns it."""
        await self.post("/v1/people", {"person_id": "ann", "name": "Ann"})
        body = {"name": "desk", "role": "agent", "system_id": "System1/clerk", "person": "ann"}
        return str((await self.post("/v1/tokens", body))["token"])

    async def call(self, tool: str, key: str, by: By = "http", token: str = "") -> dict[str, Any]:
        """Call a tool and wait for the result. Raises an exception if the server ends before."""
        match by:
            case "http":
                body = {"system_id": "System1/clerk", "tool": tool, "idempotency_key": key}
                return await self.post("/v1/modules/calls", body)
            case "mcp":
                return await self._call_over_mcp(tool, key, token)
            case "cli":
                words = ("modules", "call", "clerk", tool, "--key", key, "--json")
                ended = await asyncio.to_thread(switchboard, self.env, *words)
                found: dict[str, Any] = json.loads(ended.stdout)
                return found

    async def _call_over_mcp(self, tool: str, key: str, token: str) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(verify=NO_TLS, timeout=PATIENCE_S, headers=headers) as http:
            transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport) as client:
                meta: Any = {KEY: key}
                result = await client.call_tool(tool, {}, meta=meta)
        [content] = result.content
        assert isinstance(content, TextContent)
        found: dict[str, Any] = json.loads(content.text)
        return found


@asynccontextmanager
async def call_house(
    forks: Forks, database_url: str, place: Path, *, approve: Sequence[str] = ()
) -> AsyncIterator[CallHouse]:
    """A house without a process; at the end, all that were started are killed. `approve`: what people must approve."""
    options = {"owners": ["person:ann"], "modules": ["purse"], "approve": list(approve)}
    clerk = {"name": "clerk", "type": "operation", "engine": "memo", "config": options}
    write_packages(place / "packages", {"purse": PURSE})
    (place / "purse").mkdir()
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": [clerk]})
    port = free_port()
    ours = {"PORT": str(port), "DATABASE_URL": database_url, "TEAMS_DIR": str(teams), "LOG_LEVEL": "error"}
    more = {"PYTHONPATH": str(place / "packages"), "PURSE": str(place / "purse")}
    house = CallHouse(forks, place, port, environment(place / "data", **ours) | more)
    try:
        yield house
    finally:
        for process in house.processes:
            await house.end(process)

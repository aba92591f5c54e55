"""An installation that is killed: `switchboard up` with accounts of channels, and its processes.

`channels_run.py` calls it, and `peers_run.py`, which has a butler with a model instead, and Telegram alone. A kill is
SIGKILL, of everything at once or of one part; nothing is told beforehand.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from typing import Any, Final

import httpx2

from switchboard.bench.platforms import TELEGRAM, PlatformAccount, put_account
from tests.chaos.correspondents import SAID
from tests.ports import free_port
from tests.processes import EXECUTABLE, environment

EVERYTHING: Final = "everything"
DATABASE: Final = "database"
SERVER: Final = "server"
PARTS: Final = (DATABASE, SERVER, "worker")
"""What can be killed alone, besides the connectors, which have the names of their accounts."""
READY_S: Final = 60.0
_BUTLER: Final = f"""
import json, sys, time
text = json.load(sys.stdin)["envelope"]["payload"]["normalized_text"].strip().splitlines()[-1]
with open(sys.argv[2], "a") as trace:
    trace.write(text + "\\n")
time.sleep(float(sys.argv[1]))
print({SAID!r} + text)
"""


@dataclass(slots=True)
class House:
    """The directory of the installation; `begun` are the turns that its butler has begun, with repetitions."""

    place: Path
    environment: Mapping[str, str]
    workers: int = 1
    """Processes beside the server, which has a worker itself."""
    _up: Popen[str] | None = None
    _url: str = ""

    @classmethod
    def built(cls, place: Path, turn_s: float, accounts: Iterable[PlatformAccount], more: Mapping[str, str]) -> House:
        """With a butler whose turns take so long, and these accounts; `more` goes into the environment.

        Its port is the same after each start, so that platforms can post events to it.
        """
        (place / "butler.py").write_text(_BUTLER)
        (place / "begun").touch()
        (place / "teams").mkdir()
        command = [sys.executable, "-S", str(place / "butler.py"), str(turn_s), str(place / "begun")]
        options = {"command": command, "timeout": 120}
        team = {
            "team": {"name": "root"},
            "systems": [{"name": "slow", "type": "operation", "engine": "command", "config": options}],
            "routing_rules": [{"name": "everything", "channel": "*", "targets": [{"system_id": "System1/slow"}]}],
        }
        (place / "teams/root.json").write_text(json.dumps(team))
        for account in accounts:
            put_account(place, account)
        port = free_port()
        where = {"PORT": f"{port}", "PUBLIC_URL": f"http://127.0.0.1:{port}"}
        teams, channels = str(place / "teams"), str(place / "channels.d")
        ours = environment(place / "data", TEAMS_DIR=teams, CHANNELS_DIR=channels, **where)
        return cls(place, {**ours, **more})

    @classmethod
    def initialized(cls, place: Path, api_url: str, model_url: str, owners: Sequence[str]) -> House:
        """As `init` writes it for a model at this URL, which does 16 requests at once; the people own the butler."""
        arguments = ["--yes", "--no-test", "--url", f"{model_url}/v1", "--model", "scripted-1", "--channel", "none"]
        ours = environment(place / "data")
        with (place / "log").open("a") as log:
            run([EXECUTABLE, "init", ".", *arguments], cwd=place, env=ours, check=True, stdout=log, stderr=STDOUT)
        settings, team = place / "switchboard.toml", place / "teams/root.json"
        settings.write_text(settings.read_text() + "concurrency = 16\n")
        document = json.loads(team.read_text())
        document["systems"][0]["config"]["owners"] += owners
        team.write_text(json.dumps(document))
        put_account(place, TELEGRAM.account_at(api_url))
        return cls(place, ours, workers=0)

    @property
    def begun(self) -> list[str]:
        """The texts of the turns that the butler has begun, some more than once."""
        return (self.place / "begun").read_text().splitlines()

    async def start(self) -> None:
        """`switchboard up`, until it takes messages."""
        async with asyncio.timeout(READY_S):
            line = await asyncio.to_thread(self._begin)
        self._url = str(json.loads(line)["url"])

    async def stop(self) -> None:
        """Told to end."""
        if self._up is not None:
            self._up.terminate()
            await asyncio.to_thread(self._up.wait, READY_S)

    async def kill(self, victim: str) -> None:
        """`kill -9` of everything, or of one part; what starts the part again is ours, too, unless it is the server."""
        if victim in (EVERYTHING, SERVER):
            await self._kill_up([] if victim == SERVER else [*self._database(), *self._parts().values()])
            return
        found = self._database() if victim == DATABASE else [self._parts().get(victim, [])]
        for pid in [pid for some in found for pid in some]:
            _kill(pid)

    async def asked(self, path: str, **params: str) -> Any:
        """What the server says to its operator."""
        token = (self.place / "data/operator.token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=self._url, headers=headers, trust_env=False, timeout=30) as http:
            return (await http.get(path, params=params)).raise_for_status().json()

    async def _kill_up(self, others: list[list[int]]) -> None:
        assert self._up is not None
        for pid in [self._up.pid, *(pid for some in others for pid in some)]:
            _kill(pid)
        await asyncio.to_thread(self._up.wait)

    def _database(self) -> list[list[int]]:
        try:
            pid = int((self.place / "data/postgres/postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return []
        return [[pid, *_below(pid)]]

    def _parts(self) -> dict[str, list[int]]:
        """Workers and connectors with all that is below them; butlers of the server's own worker are `other`."""
        assert self._up is not None
        found: dict[str, list[int]] = {"other": []}
        for pid in _children(self._up.pid):
            words = _command(pid)
            name = "worker" if "work" in words else words[-1] if "connect" in words else "other"
            found.setdefault(name, []).extend([pid, *_below(pid)])
        return found

    def _begin(self) -> str:
        """Its first line, which it writes when it is ready."""
        with (self.place / "log").open("a") as log:
            command = [EXECUTABLE, "up", "--json", *(["--workers", str(self.workers)] if self.workers else [])]
            env = dict(self.environment)
            self._up = Popen(command, env=env, cwd=self.place, stdout=PIPE, stderr=log, text=True)
        assert self._up.stdout is not None
        return self._up.stdout.readline()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> list[str]:
    try:
        return [word.decode(errors="replace") for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def _below(pid: int) -> list[int]:
    return [each for child in _children(pid) for each in (child, *_below(child))]

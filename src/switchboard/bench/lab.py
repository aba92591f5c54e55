"""What every benchmark needs: a separate switchboard with real parts, load for it, and statistics.

Called by the other modules here. All processes listen on loopback and end with the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

import aiohttp

from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.embedded.binaries import find_programs
from switchboard.embedded.postmaster import EmbeddedServer
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.store.database import Database

_ECHO: Final[JsonMapping] = {
    "team": {"name": "root"},
    "systems": [{"name": "echo", "type": "operation", "engine": "echo"}],
    "routing_rules": [{"name": "everything", "channel": "*", "targets": [{"system_id": "System1/echo"}]}],
}

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ReadyProcess:
    """A Switchboard process that is ready: its address, its token, and how long it took to start (s)."""

    url: str
    token: str = field(repr=False)
    pid: int
    ready_s: float

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request to it."""
        return {"authorization": f"Bearer {self.token}"}


@contextmanager
def home(team: JsonMapping = _ECHO) -> Iterator[Path]:
    """A temporary directory with one team; the default team echoes."""
    with tempfile.TemporaryDirectory(prefix="switchboard-bench-") as name:
        place = Path(name)
        place.chmod(0o711)  # started by root, the database runs as a plain user, who must have access
        (place / "teams").mkdir()
        (place / "teams" / "root.json").write_text(json.dumps(team), encoding="utf-8")
        yield place


@asynccontextmanager
async def switchboard(
    place: Path, *arguments: str, more: Mapping[str, str] = _NOTHING, log: int | None = None
) -> AsyncIterator[ReadyProcess]:
    """`switchboard ARGUMENTS --json` in a separate process, shut down cleanly.

    `more` goes into its environment; its log goes to the open file `log`.
    """
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(OUR_VARIABLES)},
        "SWITCHBOARD_DATA_DIR": str(place / "data"),
        "SWITCHBOARD_TEAMS_DIR": str(place / "teams"),
        "SWITCHBOARD_PORT": "0",
        "SWITCHBOARD_LOG_LEVEL": "error",
        "SWITCHBOARD_ACCEPT__BACKLOG": "100000000",  # without workers nothing reduces the backlog
        **more,
    }
    command = ("-m", "switchboard.cli.main", *arguments, "--json")
    async with program(environment, *command, log=log) as (process, line, took):
        ready = json.loads(line)
        token = await asyncio.to_thread(Path(ready["token_file"]).read_text) if "token_file" in ready else ""
        yield ReadyProcess(ready.get("url", ""), token.strip(), process.pid, took)


@asynccontextmanager
async def program(
    environment: Mapping[str, str], *arguments: str, log: int | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, bytes, float]]:
    """Run Python with `arguments`; yields the process, its first line, and the seconds until that line.

    Its standard input is a pipe, and its standard error the open file `log`, if one is given.
    """
    began = perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        env=dict(environment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60) if process.stdout else b""
        if not line:
            raise ConfigurationError(f"{arguments} did not start")
        yield process, line, perf_counter() - began
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def database(place: Path, size: int) -> AsyncIterator[Database]:
    """The database of a home, with `size` connections; its server is started if it is not running."""
    async with embedded_postgres(place / "data" / "postgres") as server:
        opened = await Database.connect(server.url, size=size)
        try:
            yield opened
        finally:
            await opened.close()


@asynccontextmanager
async def scripted_model(place: Path, script: JsonMapping) -> AsyncIterator[str]:
    """The URL of a scripted model, which runs in a separate process."""
    file = place / "script.json"
    file.write_text(json.dumps(script), encoding="utf-8")
    async with program(os.environ, "-m", "switchboard.testing.scripted_llm", "--script", str(file)) as (_, line, _):
        yield json.loads(line)["url"]


async def post(http: aiohttp.ClientSession, path: str, body: object) -> bytes:
    """The body of the answer. Raises ClientResponseError if it is an error."""
    async with http.post(path, json=body) as response:
        answer = await response.read()
        response.raise_for_status()
    return answer


async def steadily(count: int, per_second: float) -> AsyncIterator[int]:
    """Yield the numbers from 0 to `count` - 1, each at its own time, however long the caller takes."""
    began = perf_counter()
    for n in range(count):
        await asyncio.sleep(max(0.0, began + n / per_second - perf_counter()))
        yield n


def messages(count: int, keys: int, mark: str) -> list[JsonObject]:
    """Envelopes of about 900 bytes as a chat connector sends them, in `keys` conversations."""
    return [message(f"{mark}-{n}", f"chat-{n % keys}") for n in range(count)]


def message(event: str, chat: str) -> JsonObject:
    """One such envelope."""
    text = "Could you remind me on Thursday that the plumber comes between nine and eleven? " * 3
    return {
        "schema_version": "ingest.v1",
        "source": {"channel": "api", "provider": "http", "endpoint_identity": "api:bench"},
        "event": {"external_event_id": event, "external_thread_id": chat, "observed_at": "2026-01-01T00:00:00Z"},
        "sender": {"identity": chat, "display_name": "A person with a name", "chat_type": "private"},
        "payload": {"raw": {"update": event, "message": {"chat": {"id": chat}, "text": text}}, "normalized_text": text},
        "control": {"policy_tier": "default"},
    }


async def rate(works: Sequence[Callable[[], Awaitable[int]]], seconds: float) -> float:
    """Items per second done by all `works`, each called repeatedly; a call returns how many items it did."""
    began = perf_counter()
    done = 0

    async def caller(work: Callable[[], Awaitable[int]]) -> None:
        nonlocal done
        while perf_counter() - began < seconds:
            finished = await work()  # a separate statement, or additions by others meanwhile would be overwritten
            done += finished

    await asyncio.gather(*(caller(work) for work in works))
    return done / (perf_counter() - began)


_PGBENCH_TABLE: Final = """
create table if not exists bench_insert (
    id uuid primary key, source text not null, dedupe text not null, body jsonb not null, unique (source, dedupe));
"""
# The row is as large as the messages of the other measurements.
_PGBENCH_SCRIPT: Final = """\\set n random(1, 1000000000)
insert into bench_insert values (gen_random_uuid(), 'bench', 'event-' || :n || '-' || :client_id || '-' || random(),
    '{body}') on conflict do nothing;
"""


async def pgbench(server: EmbeddedServer, seconds: float, clients: int = 64) -> float:
    """The baseline: transactions per second of PostgreSQL's own client doing durable single-row inserts."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        size = len(json.dumps(message("event", "chat")))
        script.write(_PGBENCH_SCRIPT.replace("{body}", json.dumps({"text": "x" * size})))
        script.flush()
        where = ("-h", str(server.socket_dir), "-p", str(server.port), "-U", "postgres", "postgres")
        binaries = (await find_programs(None, None)).directory
        await _output(binaries / "psql", "-qc", _PGBENCH_TABLE, *where)
        load = ("-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(max(1, round(seconds))))
        output = await _output(binaries / "pgbench", *load, "-f", script.name, *where)
    return float(output.partition("tps = ")[2].split()[0])


async def _output(path: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        path, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": os.environ.get("PATH", "")}
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise ConfigurationError(f"{path.name}: {errors.decode(errors='replace').strip()}")
    return output.decode()


def resident_mb(pid: int) -> float | None:
    """Resident memory of a process in 10^6 bytes; None if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb(pid: int) -> float | None:
    """Peak resident memory of a process in 10^6 bytes; None if the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None


def cpu_ms(pids: Iterable[int]) -> float:
    """CPU time of processes so far; of those that the system does not report none is counted."""
    ticks = 0
    for pid in pids:
        with suppress(OSError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def growth(before: float | None, after: float | None) -> float | None:
    """The growth; None if either value is unknown."""
    return None if before is None or after is None else after - before


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile of the values; `percent` from 0 to 100."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]

"""Real `switchboard` processes for tests: started, waited for by what they print, and always ended.

In: an environment; out: running servers and finished commands. Nothing here sleeps to be in time: a process is ready
when it says so, and every wait has a deadline after which the process is killed and the test fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from tests.forked import ForkedCommand

DEADLINE = 60.0
EXECUTABLE = str(Path(sys.executable).with_name("switchboard"))


@dataclass(frozen=True, slots=True)
class Server:
    """A process that keeps running, and what it said when it was ready."""

    process: subprocess.Popen[str]
    said: Mapping[str, Any]
    environment: Mapping[str, str]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    """What a user has, without anything of Switchboard but what is given (names without SWITCHBOARD_)."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SWITCHBOARD_")}
    ours = {"DATA_DIR": str(data_dir), "PORT": "0", **more}
    return kept | {"COLUMNS": "100", "TZ": "UTC"} | {f"SWITCHBOARD_{name}": value for name, value in ours.items()}


@contextmanager
def running(
    env: Mapping[str, str], *arguments: str, cwd: Path | None = None, before: Sequence[str] = ()
) -> Iterator[Server]:
    """`switchboard ARGUMENTS --json`, ready; `before`: a program that starts it.

    Its URL is in the environment that it is yielded with.
    """
    start = subprocess.Popen if before else ForkedCommand
    process = start(
        [*before, EXECUTABLE, *arguments, "--json"],
        env=dict(env),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # stderr is a pipe that nobody reads before the end: quiet, so that it never fills.
    )
    try:
        said = _first_line(process)
        url = {"SWITCHBOARD_URL": str(said["url"])} if "url" in said else {}
        yield Server(process, said, dict(env) | url)
    finally:
        if process.poll() is None:
            process.terminate()
        _end(process)


def _first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    timer = Timer(DEADLINE, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    if not line:
        _, errors = process.communicate(timeout=DEADLINE)
        raise AssertionError(f"{process.args!r} ended with {process.returncode}: {errors}")
    said: dict[str, Any] = json.loads(line)
    return said


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


def switchboard(
    env: Mapping[str, str], *arguments: str | Path, given: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    command = [EXECUTABLE, *map(str, arguments)]
    with ForkedCommand(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said, errors = process.communicate(given, timeout=DEADLINE)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def told(env: Mapping[str, str], *arguments: str | Path, code: int = 0, given: str | None = None) -> dict[str, Any]:
    """What a command says with --json: exactly one object, and the exit code that is expected."""
    done = switchboard(env, *arguments, "--json", given=given)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    [line] = done.stdout.splitlines()
    said: dict[str, Any] = json.loads(line)
    return said


def write_teams(directory: Path, *teams: Mapping[str, Any]) -> Path:
    """Team files, one per team."""
    directory.mkdir(exist_ok=True)
    for team in teams:
        (directory / f"{team['team']['name']}.json").write_text(json.dumps(team))
    return directory


def butler(name: str, command: Sequence[str] | None = None) -> dict[str, Any]:
    """A System1 of a team file: memo, or a program."""
    engine: dict[str, Any] = {"engine": "command", "config": {"command": list(command)}} if command else {}
    return {"name": name, "type": "operation", **engine}


def until(holds: Callable[[], bool]) -> None:
    """Look again and again until it is true; fails after DEADLINE seconds."""
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def that_know(place: Path) -> list[str]:
    """The command lines of all processes that have the place in their arguments or in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        command = known = b""
        with suppress(OSError):  # it has ended meanwhile, or shows its environment to root only
            command = (process / "cmdline").read_bytes()
            known = (process / "environ").read_bytes()
        if bytes(place) in command + known:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


@contextmanager
def scripted_llm(script: Mapping[str, Any] | Sequence[Mapping[str, Any]], directory: Path) -> Iterator[str]:
    """A scripted provider in a process of its own; its URL. The script is kept in `directory`."""
    file = directory / "script.json"
    file.write_text(json.dumps(script))
    command = [EXECUTABLE, "-m", "switchboard.testing.scripted_llm.__main__", "--script", str(file)]
    process = ForkedCommand(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True)
    try:
        yield str(_first_line(process)["url"])
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)

"""Commands in the process of the test, against a server: what they say, and their exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard.cli.client import Client, open_client
from switchboard.cli.main import main
from switchboard.domain.json_values import JsonObject
from tests.lab import envelope_json
from tests.postgres import Postgres
from tests.processes import Server, environment, running, write_teams


@contextmanager
def served(postgres: Postgres, place: Path, *teams: JsonObject, **settings: str) -> Iterator[Server]:
    """`switchboard up` on a database of its own."""
    files = write_teams(place / "teams", *teams)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        name = runner.run(postgres.create())
        ours = {"DATABASE_URL": postgres.url(name), "TEAMS_DIR": str(files), "LOG_LEVEL": "error"}
        with running(environment(place / "data", **ours, **settings), "up") as started:
            yield started
        runner.run(postgres.drop(name))


class Cli:
    """Commands as a user of the server would give them, from the `environment` on in the whole process."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, environment: Mapping[str, str]
    ) -> None:
        self._capsys = capsys
        self._patch = patch
        for name, value in environment.items():
            patch.setenv(name, value)

    def run(self, *arguments: object, given: str | bytes | None = None) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)."""
        if given is not None:
            data = given.encode() if isinstance(given, str) else given
            self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    def says(self, *arguments: object, code: int = 0, given: str | None = None) -> str:
        """Stdout of a command that ends with `code`."""
        ended, out, err = self.run(*arguments, given=given)
        assert ended == code, (arguments, out, err)
        return out

    def json(self, *arguments: object, code: int = 0, given: str | None = None) -> dict[str, Any]:
        """The one object that it prints."""
        [line] = self.says(*arguments, "--json", code=code, given=given).splitlines()
        said: dict[str, Any] = json.loads(line)
        return said


def ask(work: Callable[[Client], Any]) -> Any:
    """A request that no command makes."""

    async def run() -> Any:
        async with open_client() as client:
            return await work(client)

    return asyncio.run(run())


def envelope(event: str, *, channel: str = "telegram", text: str = "hello", endpoint: str = "bot") -> dict[str, Any]:
    """An envelope with a message of the channel in it."""
    raw = {"message": {"message_id": event}}
    return envelope_json(text, channel=channel, event=event, endpoint=endpoint, raw=raw)

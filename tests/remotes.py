"""Remote butlers for tests: `remote_butler.py` as processes that are started, killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.forked import ForkedCommand

TOKEN: Final = "canary-token-of-a-remote-butler"


@dataclass
class Remote:
    """One remote butler. What it was called with is in `calls`, what it really did in `done`."""

    directory: Path
    kind: str = "stateless"
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self._lines("calls")

    @property
    def done(self) -> list[str]:
        return self._lines("done")

    def _lines(self, name: str) -> list[Any]:
        file = self.directory / f"{name}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def mend(self) -> None:
        """From now on `once` is answered."""
        (self.directory / "mended").touch()

    def start(self) -> None:
        """Again at the same port, if it ran before."""
        arguments = (str(self.port), str(self.directory), TOKEN, self.kind)
        self.process = ForkedCommand(
            ["python", "-m", "tests.remote_butler", *arguments],
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        assert said[:1] == ["ready"], said
        self.port = int(said[1])

    def kill(self) -> None:
        """As `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def options(self, **more: Any) -> dict[str, Any]:
        """What a team file says of it."""
        return {"url": self.url, "token_env": "REMOTE_TOKEN", "allow_private": True, "timeout": 10, **more}


@contextmanager
def a_remote(directory: Path, kind: str = "stateless") -> Iterator[Remote]:
    """Running until the end of the block."""
    remote = Remote(directory, kind)
    remote.start()
    try:
        yield remote
    finally:
        remote.kill()

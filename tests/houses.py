"""Makes the database of a release, from which later releases are upgraded in tests: `make house`.

`releases/0.1.0-pre.dump` is of the last schema before 0.1.0, so that an upgrade with a migration of ours is tried until
0.2.0 has one.

In: the command `switchboard` of an installed release; out: `tests/releases/VERSION.dump`, a backup of what the demo
leaves behind, of a further 1,200 messages that were answered, and of 40 that no worker has seen. `make
release` wants it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

RELEASES: Final = Path(__file__).parent / "releases"
ANSWERED: Final = 1_200
OPEN: Final = 40
_CONVERSATIONS: Final = 60
_DEADLINE_S: Final = 120.0
MODEL: Final = {"name": "scripted", "kind": "openai", "model": "script-1", "base_url": "http://127.0.0.1:9/v1"}
"""Named by the demo's butlers; nothing asks it here."""


def write_messages(file: Path, first: int, count: int) -> None:
    """Envelopes of devices that report something, from the number `first` on, as lines of JSON."""
    with file.open("w", encoding="utf-8") as lines:
        for number in range(first, first + count):
            lines.write(json.dumps(_envelope(number)) + "\n")


def _envelope(number: int) -> Mapping[str, object]:
    return {
        "schema_version": "ingest.v1",
        "source": {"channel": "api", "provider": "http", "endpoint_identity": "api:home"},
        "event": {"external_event_id": f"report-{number}", "observed_at": "2025-06-02T08:01:00Z"},
        "sender": {"identity": f"device-{number % _CONVERSATIONS}"},
        "payload": {"raw": {"number": number}, "normalized_text": f"Report {number}: the cellar is dry."},
        "control": {},
    }


def make_house(program: Path, file: Path, scratch: Path) -> None:
    """Write a backup of a populated database of this program's release. Raises CalledProcessError."""
    house, batch = scratch / "house", scratch / "batch.jsonl"
    env = {key: value for key, value in os.environ.items() if not key.startswith("SWITCHBOARD_")}
    subprocess.run([program, "demo", house, "--keep", "--scripted"], env=env, check=True)
    env["SWITCHBOARD_DATA_DIR"], env["SWITCHBOARD_PORT"] = str(house), "0"
    env["SWITCHBOARD_TEAMS_DIR"], env["SWITCHBOARD_MODELS"] = str(house / "examples/teams"), json.dumps([MODEL])
    with _running(program, env, "up") as url:
        write_messages(batch, 0, ANSWERED)
        subprocess.run([program, "import", batch], env={**env, "SWITCHBOARD_URL": url}, check=True)
        _wait_until_settled(program, env)
    with _running(program, env, "serve") as url:
        write_messages(batch, ANSWERED, OPEN)
        subprocess.run([program, "import", batch], env={**env, "SWITCHBOARD_URL": url}, check=True)
    subprocess.run([program, "db", "backup", file], env=env, check=True)


@contextmanager
def _running(program: Path, env: Mapping[str, str], command: str) -> Iterator[str]:
    started: list[str | Path] = [program, command, "--json"]
    with subprocess.Popen(started, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            said = json.loads(line or "{}")
            if "url" not in said:
                raise RuntimeError(f"switchboard {command} did not start: {line}")
            yield str(said["url"])
        finally:
            process.terminate()


def _wait_until_settled(program: Path, env: Mapping[str, str]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        said = subprocess.run([program, "doctor", "--json"], env=env, check=False, capture_output=True).stdout
        found = {one["name"]: one["detail"] for one in json.loads(said)["findings"]}
        if " 0 in flight" in found.get("books: targets", ""):
            return
        time.sleep(0.5)
    raise TimeoutError("the messages were not answered in time")


def main() -> None:
    """Make the database of the release whose command is given."""
    program = Path(sys.argv[1]).absolute()
    version = json.loads(subprocess.run([program, "version", "--json"], check=True, capture_output=True).stdout)
    file = RELEASES / f"{version['version']}.dump"
    RELEASES.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    with TemporaryDirectory(prefix="switchboard-house-") as scratch:
        Path(scratch).chmod(0o755)  # where we are root, the database is another user
        make_house(program, file, Path(scratch))
    sys.stdout.write(f"{file}: {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()

"""A butler's program that looks for the operator's power and for secrets, run by a real `switchboard up`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.processes import Server, environment, running, told, until, write_teams

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no Linux")]
AS_ROOT = os.geteuid() == 0
_SETPRIV = shutil.which("setpriv")

SPY = """#!/bin/sh
echo "I am $(id -un)"
for file in "$1/operator.token" "$1/server.url" /proc/$PPID/environ /proc/$PPID/maps /proc/$PPID/mem; do
    head -c 1 "$file" >/dev/null 2>&1 && echo "read $file"
done
ls "$1" >/dev/null 2>&1 && echo "listed $1"
readlink /proc/$PPID/fd/0 && echo "looked at the descriptors"
for file in /proc/[0-9]*/environ; do
    tr '\\0' '\\n' <"$file" 2>/dev/null | grep -q '^CANARY_KEY=' && echo "found the canary in $file"
done
ls /proc/self/fd | wc -l | sed 's/^ */descriptors: /'
"""


def spied(server: Server) -> list[str]:
    """What the program has found out, when both workers have started: before, Python has not come to our code."""
    token = (Path(server.environment["SWITCHBOARD_DATA_DIR"]) / "operator.token").read_text().strip()
    metrics, headers = f"{server.environment['SWITCHBOARD_URL']}/metrics", {"authorization": f"Bearer {token}"}
    with httpx2.Client(headers=headers, trust_env=False) as http:
        until(lambda: "switchboard_workers_alive 2.0" in http.get(metrics).text)
    [reply] = told(server.environment, "send", "look around", "--channel", "cli", "--wait", "30")["replies"]
    found: str = reply["text"]
    return found.splitlines()


def environment_with_spy(place: Path, **options: Any) -> dict[str, str]:
    """Of a switchboard whose only butler is the program, and which has a secret in its environment."""
    program = place / "spy"
    program.write_text(SPY)
    program.chmod(0o755)
    config = {"command": [str(program), str(place / "data")], "cwd": "/", **options}
    spy = {"name": "spy", "type": "operation", "engine": "command", "config": config}
    rule = {"name": "all", "channel": "*", "targets": [{"system_id": "System1/spy"}]}
    systems = [spy, {"name": "root", "type": "intelligence", "engine": "memo"}]
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": systems, "routing_rules": [rule]})
    return environment(place / "data", TEAMS_DIR=str(teams)) | {"CANARY_KEY": "canary"}


@pytest.mark.skipif(not AS_ROOT, reason="only root can run programs as another user")
@pytest.mark.parametrize("where", ["member", "settings"])
def test_a_program_with_a_user_of_its_own_gets_nothing(place: Path, where: str) -> None:
    env = environment_with_spy(place, **({"user": "nobody"} if where == "member" else {}))
    if where == "settings":
        env["SWITCHBOARD_PROGRAM_USER"] = "nobody"
    with running(env, "up", "--workers", "1") as server:
        assert spied(server) == ["I am nobody", "descriptors: 4"]


def test_a_program_of_the_same_user_sees_nothing_of_our_processes(place: Path) -> None:
    """The files are open to it, memory and environment are not; root needs the right to trace, which is taken here."""
    env = environment_with_spy(place)
    without: Sequence[str] = ()
    if AS_ROOT:
        if _SETPRIV is None:
            pytest.skip("there is no setpriv")
        rights = "-sys_ptrace,-sys_admin,-perfmon"
        without = (_SETPRIV, f"--bounding-set={rights}", f"--inh-caps={rights}")
    with running(env, "up", "--workers", "1", before=without) as server:
        found = spied(server)
    assert f"read {place}/data/operator.token" in found
    assert [line for line in found if "/proc" in line or "descriptors" in line] == ["descriptors: 4"]

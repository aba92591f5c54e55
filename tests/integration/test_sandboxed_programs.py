"""Programs of `command` butlers that are shut in, by the option `sandbox`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from switchboard.agents.command import CommandEngine
from switchboard.ports.engine import Answer, TurnResult
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox
from tests.engines import failure, run
from tests.routing import butler

MIB = 1024**2


@pytest_asyncio.fixture
async def _sandboxed() -> None:
    if lacking := await Sandbox(SandboxRules()).lacking():
        pytest.skip(lacking)


pytestmark = pytest.mark.usefixtures("_sandboxed")


def shut_in(script: str, cwd: Path | None = None, **more: Any) -> dict[str, Any]:
    """The options of a member whose program is a script of `sh`."""
    where = {"cwd": f"{cwd}"} if cwd else {}
    return {"command": ["/bin/sh", "-c", script], "sandbox": True, **where, **more}


async def said(script: str, cwd: Path | None = None, **more: Any) -> TurnResult:
    return await run(CommandEngine(), shut_in(script, cwd, **more))


async def test_a_program_answers_from_its_directory(tmp_path: Path) -> None:
    program = tmp_path / "answer.sh"
    program.write_text('#!/bin/sh\ngrep -c delivery.v1; echo "$GREETING"; pwd; cat words')
    program.chmod(0o755)
    (tmp_path / "words").write_text("heron")
    options = {"command": ["./answer.sh"], "cwd": f"{tmp_path}", "env": {"GREETING": "Good day"}, "sandbox": True}
    assert await run(CommandEngine(), options) == Answer(f"1\nGood day\n{tmp_path}\nheron")


ATTEMPTS = (
    "cat {secret}",
    "cat /etc/shadow",
    "cat {data}/operator.token",
    "touch {cwd}/new",
    "echo x >>{cwd}/words",
    "getent hosts example.com",
    "echo x >/proc/self/fd/0",
    "env | grep SECRET",
    "tr '\\0' '\\n' </proc/$PPID/environ | grep SECRET",
    "touch /usr/bin/new",
)


async def test_a_program_reaches_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "heron")
    data, cwd = tmp_path / "data", tmp_path / "cwd"
    for directory in (data, cwd):
        directory.mkdir()
    for file in (data / "operator.token", cwd / "words", tmp_path / "secret"):
        file.write_text("heron")
    commands = [one.format(secret=tmp_path / "secret", data=data, cwd=cwd) for one in ATTEMPTS]
    script = "\n".join(f"({one}) >/dev/null 2>&1 && echo {n}" for n, one in enumerate(commands)) + "\necho over"
    engine = CommandEngine(sandbox=SandboxRules(hidden=(data,)))
    assert await run(engine, shut_in(script, cwd)) == Answer("over")
    assert (cwd / "words").read_text() == "heron"


WRITES = """
cd "$SWITCHBOARD_REPLY_FILES" && echo x >a.txt && cat a.txt
cd "$HOME" && echo y >b && cat b
"""


async def test_a_program_writes_to_the_directory_of_its_turn(tmp_path: Path) -> None:
    assert await said(WRITES, tmp_path) == Answer("x\ny")
    assert await said('test "$PWD" = "$HOME" && echo at home') == Answer("at home")


async def test_a_directory_with_our_own_files_is_refused(tmp_path: Path) -> None:
    engine = CommandEngine(sandbox=SandboxRules(hidden=(tmp_path / "data",)))
    error = await failure(engine, shut_in("echo no", tmp_path))
    assert (error.error_class, error.retryable) == ("target_unavailable", False)
    assert "more than files of the butler" in str(error)


async def test_what_a_program_was_killed_for(tmp_path: Path) -> None:
    engine = CommandEngine(sandbox=SandboxRules(memory=64 * MIB))
    error = await failure(engine, shut_in("head -c 100M /dev/zero | tail >/dev/null || exit 1", tmp_path))
    assert "memory" in str(error)
    error = await failure(CommandEngine(), shut_in("sleep 60", tmp_path, timeout=0.5))
    assert error.error_class == "timeout"


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    error = await failure(CommandEngine(), {"command": ["./nope"], "cwd": f"{tmp_path}", "sandbox": True})
    assert (error.error_class, error.retryable) == ("target_unavailable", False)
    error = await failure(CommandEngine(), shut_in("exit 127", tmp_path))
    assert error.retryable


async def test_without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shutil.which("bwrap")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    error = await failure(CommandEngine(), shut_in("echo no", tmp_path))
    assert (error.error_class, error.retryable) == ("target_unavailable", False)
    assert "not installed" in str(error)
    member = butler("x", "command", **shut_in("echo no", tmp_path))
    assert "not installed" in (CommandEngine().lacking(member) or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_as_another_user() -> None:
    result = await said("id -u; grep -c processes /proc/self/limits", user="nobody")
    assert result == Answer("1000\n1")

"""The walkthroughs of the documents are really run, and what they print is compared with what they claim.

A block after `<!-- executed: NAME -->` belongs to the walkthrough NAME; one after `<!-- file: NAME/PATH -->` is a file
of it. All blocks of a walkthrough run in one shell, in the checkout, against a real `switchboard up` on a free port. In
the claimed output `…` stands for anything; ids, times and ports may differ, and an id that was printed may be typed.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest

from tests.documents import DOCUMENTS, HOME, Block, Step, blocks, steps
from tests.forked import commands_for_shells
from tests.places import passable
from tests.ports import free_port
from tests.processes import DEADLINE, EXECUTABLE, environment
from tests.programs import real_program, search_path

pytestmark = pytest.mark.slow

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REPEATED = re.compile(
    r"cat |switchboard (agents list|channels$|messages|explain|dlq (list|show)|approvals (list|show)|doctor"
    r"|(outbox|lanes|memory) list)\b"
)
"""What only looks, and may have looked too early."""
_READY = "listens on"
_BASH = shutil.which("bash") or "bash"
_SETPRIV = shutil.which("setpriv") or ""


class Walkthrough:
    """One shell, what was typed in it, and the ids of the document with those that came in their place."""

    def __init__(self, name: str, place: Path, commands: Path) -> None:
        self._name, self._place = name, place
        self._ids: dict[str, str] = {}
        self._begun = 0
        """How many commands run on, or did."""
        self._ports = {claimed: free_port() for claimed in ("8471", "8472", "8473")}
        env = {k: v for k, v in environment(place).items() if k != "SWITCHBOARD_DATA_DIR"}
        env |= {"COLUMNS": "160", "PATH": f"{commands}:{Path(EXECUTABLE).parent}:{search_path()}"}
        self._shell = subprocess.Popen(
            [_BASH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=HOME,
            text=True,
            start_new_session=True,
        )

    def do(self, step: Step) -> None:
        """Type a command and look at what it prints; what only looks is tried again for a while."""
        if step.command == "switchboard up":
            return self._match(step, self._up())
        if step.command.endswith(" &") and ">" not in step.command:
            return self._match(step, self._begin(self._here(step.command), "\n"))
        deadline = time.monotonic() + 30
        while True:
            try:
                return self._match(step, self._type(self._here(step.command)))
            except AssertionError:
                if not _REPEATED.match(step.command) or time.monotonic() > deadline:
                    raise

    def _up(self) -> str:
        """Start it, or start it again: then the one that runs is ended first, as with Ctrl-C."""
        self._type("kill %?'switchboard up' 2>/dev/null && wait %?'switchboard up'")
        for file in self._place.rglob("*.toml"):  # of an example that the document has copied
            file.write_text(self.here(file.read_text(encoding="utf-8")), encoding="utf-8")
        said = self._begin("switchboard up &", "Try it")
        [url] = re.findall(rf"{_READY} (\S+)", said)
        self._type(f"export SWITCHBOARD_URL={url}")
        return said

    def _begin(self, command: str, last: str) -> str:
        """Type what runs on; what it says, up to this word."""
        self._begun += 1
        log, errors = self._place / f"{self._begun}.log", self._place / f"{self._begun}.err"
        log.touch()
        self._type(f"{command.removesuffix(' &')} >{log} 2>{errors} &")
        deadline = time.monotonic() + DEADLINE
        while last not in (said := log.read_text(encoding="utf-8")):
            assert time.monotonic() < deadline, errors.read_text(encoding="utf-8")
            self._type("sleep 0.1")
        return said

    def _type(self, command: str) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null\necho; echo @@done@@\n")
        self._shell.stdin.flush()
        timer = Timer(DEADLINE, self._shell.kill)
        timer.start()
        try:
            lines = list(iter(self._shell.stdout.readline, "@@done@@\n"))
        finally:
            timer.cancel()
        return "".join(lines)

    def _here(self, text: str) -> str:
        """With the ids of this run."""
        for claimed, real in self._ids.items():
            text = text.replace(claimed, real)
        return self.here(text)

    def here(self, text: str) -> str:
        """With the directory of this run, and ports that are free for what runs beside Switchboard."""
        for claimed, port in self._ports.items():
            text = re.sub(rf'(127\.0\.0\.1(?::|", )|--port |_PORT=){claimed}', rf"\g<1>{port}", text)
        return text.replace(f"~/switchboard-{self._name}", str(self._place))

    def _match(self, step: Step, printed: str) -> None:
        at = 0
        for line in step.output.splitlines():
            pattern, ids = self._pattern(line)
            found = re.compile(pattern, re.DOTALL).search(printed, at)
            assert found, f"`{step.command}` should print {line!r}, it prints:\n{printed}"
            at = found.end()
            self._ids |= {claimed: found[number] for number, claimed in enumerate(ids, 1)}

    def _pattern(self, line: str) -> tuple[str, list[str]]:
        """What a claimed line looks like here; the ids in it that are new, each a group."""
        ids: list[str] = []
        parts = []
        for word in re.split(rf"({_ID.pattern}|http://127\.0\.0\.1:\d+|\s*…\s*|\s+)", self._here(line.strip())):
            if word.startswith("http://127.0.0.1"):
                parts.append(r"http://127\.0\.0\.1:\d+")
            elif word.strip() == "…":
                parts.append(".*?")
            elif not word.strip():
                parts.append(r"[\s│]+" if word else "")
            elif _ID.fullmatch(word) and word not in self._ids.values():
                ids.append(word)
                parts.append(f"({_ID.pattern})")
            else:
                parts.append(re.escape(word))
        return "".join(parts).replace(re.escape("it:") + r"[\s│]+", "it:.*?"), ids

    def close(self) -> None:
        """Shut the server down cleanly, then the shell."""
        if self._begun:
            self._type("kill $(jobs -p); wait")
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()


def _walkthroughs() -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = {}
    for block in (block for document in DOCUMENTS for block in blocks(document) if block.mark):
        found.setdefault(block.name.partition("/")[0], []).append(block)
    return found


@pytest.mark.parametrize("name", _walkthroughs())
def test_a_walkthrough_does_what_it_says(name: str) -> None:
    parts = _walkthroughs()[name]
    if any("curl " in block.text for block in parts) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if any('"claude-code"' in block.text for block in parts) and real_program("claude-code") is None:
        pytest.skip("claude-code is not installed; `make clis` does it")
    with passable() as place, commands_for_shells() as commands:
        walk = Walkthrough(name, place, commands)
        try:
            for block in (block for block in parts if block.mark == "file"):
                file = place / block.name.partition("/")[2]
                file.parent.mkdir(exist_ok=True)
                file.write_text(walk.here(block.text), encoding="utf-8")
            for step in (step for block in parts if block.mark == "executed" for step in steps(block)):
                walk.do(step)
        finally:
            walk.close()


def test_the_tour_and_the_butler_are_run() -> None:
    assert {"tour", "hello", "household"} <= _walkthroughs().keys()
    assert sum(len(steps(b)) for b in _walkthroughs()["tour"] if b.mark == "executed") > 10


def _as_nobody(*command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as the user `nobody`, through a shell: what setpriv itself starts may still have rights of root."""
    nobody = pwd.getpwnam("nobody")
    env = {k: v for k, v in environment(home).items() if not k.startswith("SWITCHBOARD_")}
    return subprocess.run(
        [
            *(_SETPRIV, f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"),
            *("/bin/sh", "-c", '"$@"', "sh", *command),
        ],
        env=env | {"HOME": str(home), "TMPDIR": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not _SETPRIV, reason="there is no setpriv")
def test_the_demo_works_as_a_plain_user() -> None:
    with passable() as place:
        os.chown(place, pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid)
        if _as_nobody(sys.executable, "-c", "import switchboard", home=place).returncode:
            pytest.skip(f"{sys.executable} is closed to other users")
        done = _as_nobody(sys.executable, "-m", "switchboard.cli.main", "demo", home=place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "they balance: nothing lost, nothing doubled" in done.stdout
    assert "is decided by a scripted model on this machine" in done.stdout
    assert "team root classified by scripted" in done.stdout

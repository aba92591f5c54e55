"""`make dist`: builds the wheel and the sdist, and tries them as somebody who has nothing else.

In: the checkout; out: `dist/` with both, or an exit code that is not 0. Both are checked (`twine check --strict`, what
they contain), and the wheel is installed by the runtime lock into an empty environment, where `demo`, `init` with a
scripted model, `up` and `chat --once` must work; as root they run as the user `nobody`, who may write nowhere else.
The engine and the connector of the documents are type-checked (`mypy --strict`) and tested there, as others' are.
`.ci/run` and `make release` run it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from switchboard import DISTRIBUTION, __version__
from tests.documents import DOCUMENTS, blocks
from tests.pictures import outdated

HOME: Final = Path(__file__).parent.parent
DIST: Final = HOME / "dist"
WANTED: Final = (
    "py.typed",
    "store/sql/migrations/0001_baseline.sql",
    "cli/monitoring/alerts.yml",
    "cli/monitoring/dashboard.json",
    "server/http/examples/messages.json",
    "examples/inbox/household.mbox",
    "examples/household/teams/root.json",
    "examples/teams/root.json",
    "examples/connectors/folder/pyproject.toml",
    "examples/modules/canteen/pyproject.toml",
)
_JUNK: Final = ("__pycache__", ".pyc", ".hypothesis", ".venv", "node_modules", ".switchboard/", ".local-model")
_SECONDS: Final = 180.0
_OUTSIDE: Final = ("my_package/shout.py", "tests/test_shout.py", "kit/test_folder_channel.py")
"""Files of the documents, as others write them."""
_NOBODY: Final = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("/bin/sh", "-c", 'exec "$@"', "sh"),  # what setpriv itself starts may still have rights of root
)
_FIT: Final = "import sys; sys.exit(sys.version_info < (3, 11))"
_NOTE: Final = {"name": "write_file", "arguments": {"path": "notes.txt", "content": "buy milk"}}
_CALL: Final = {"name": "look_up_number", "arguments": {"person": "Ada"}}
SCRIPT: Final = {
    "rules": [
        {"when": {"tool": "look_up_number"}, "replies": [{"calls": [_CALL]}], "again": True},
        {"when": {"results": False}, "replies": [{"calls": [_NOTE]}], "again": True},
        {"when": {"results": True}, "replies": [{"text": "It is in notes.txt."}], "again": True},
    ]
}


def flaws(wheel: list[str], sdist: list[str]) -> list[str]:
    """What is wrong with the names of the files in both."""
    junk = [name for name in (*wheel, *sdist) if any(one in name for one in _JUNK)]
    foreign = [name for name in wheel if not name.startswith(("switchboard/", f"{_stem()}.dist-info/"))]
    missing = [name for name in WANTED if f"switchboard/{name}" not in wheel]
    unlike = [name for name in wheel if name.startswith("switchboard/") and f"{_stem()}/src/{name}" not in sdist]
    tests = [name for name in sdist if name.startswith(f"{_stem()}/tests/")]
    found = {
        "junk": junk,
        "not ours in the wheel": foreign,
        "missing in the wheel": missing,
        "tests": tests,
        "not in the sdist": unlike,
    }
    return [f"{what}: {', '.join(names[:5])}" for what, names in found.items() if names]


def build() -> Path:
    """The wheel. Raises SystemExit if it or the sdist is not as it should be."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(HOME))
    wheel, sdist = DIST / f"{_stem()}-py3-none-any.whl", DIST / f"{_stem()}.tar.gz"
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    with zipfile.ZipFile(wheel) as packed, tarfile.open(sdist) as archive:
        found = flaws(packed.namelist(), archive.getnames())
    if found:
        sys.exit("\n".join(found))
    _say(f"{wheel.name}: {wheel.stat().st_size // 1000} kB, {sdist.name}: {sdist.stat().st_size // 1000} kB")
    return wheel


def install(wheel: Path, place: Path) -> Path:
    """The directory of the programs of a new environment that has the wheel, and what the runtime lock names."""
    uv_program = str(Path(sys.executable).parent / "uv")
    _run(uv_program, "venv", "--quiet", "--python", _open_python(), str(place / "env"))
    programs = place / "env" / "bin"
    python = str(programs / "python")
    uv = (uv_program, "pip", "install", "--quiet", "--python", python)
    _run(*uv, "--require-hashes", "-r", str(HOME / "requirements-runtime.lock"))
    _run(*uv, "--no-deps", str(wheel))
    _run(*uv[:2], "check", "--python", python)
    _run("du", "-sh", "--apparent-size", str(place / "env"))
    return programs


def _open_python() -> str:
    """An interpreter that an ordinary user can run: the one of this checkout may be in root's home."""
    base = str(Path(sys.executable).resolve())
    if os.geteuid() != 0:
        return base
    for one in (base, "/usr/bin/python3", "/usr/local/bin/python3"):
        if subprocess.run((*_NOBODY, one, "-c", _FIT), check=False, capture_output=True).returncode == 0:
            return one
    sys.exit("no Python 3.11 or newer here can be run by an ordinary user; run this as one")


def try_out(programs: Path, place: Path) -> None:
    """Run what the README says, in `place`, which is the home of whoever runs it."""
    person = _Person(programs, place)
    if old := outdated(person.run("demo", "--scripted")):
        sys.exit("\n".join(["the demo no longer prints what its picture shows; `make pictures` draws it:", *old]))
    (place / "script.json").write_text(json.dumps(SCRIPT))
    (place / "script.json").chmod(0o644)
    with person.scripted_model() as url:
        person.run("init", "house", "--yes", "--url", f"{url}/v1", "--model", "worker")
        with person.house():
            said = person.run("chat", "--once", "Note that I must buy milk", within="house")
    if "It is in notes.txt." not in said or "buy milk" not in (place / "house/files/notes.txt").read_text():
        sys.exit(f"chat said: {said}")


def check_outside(programs: Path, place: Path) -> None:
    """Types and tests of what others write against `switchboard.ports` and `switchboard.testing`."""
    _say("types and tests of third parties")
    texts = {block.name: block.text for page in DOCUMENTS for block in blocks(page) if block.mark == "file"}
    outside, python = place / "outside", str(programs / "python")
    for name in _OUTSIDE:
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(texts[name], encoding="utf-8")
    shutil.copy(HOME / "src/switchboard/examples/connectors/folder/folder_channel.py", outside / "kit")
    (outside / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    needed = (f"{name}=={version_of(name)}" for name in ("pytest", "pytest-asyncio"))
    _run(str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--python", python, *needed)
    checked = ("--strict", "--config-file=", "--explicit-package-bases", "--cache-dir", str(place / "mypy"))
    _run(sys.executable, "-m", "mypy", *checked, "--python-executable", python, ".", cwd=outside, MYPYPATH=".:kit")
    _run(python, "-m", "pytest", "-q", ".", cwd=outside, PYTHONPATH=f"{outside}:{outside}/kit")


class _Person:
    """Somebody ordinary: as root, `nobody`, with a home of its own and no variables of ours."""

    def __init__(self, programs: Path, home: Path) -> None:
        self._programs, self._home = programs, home
        self._as: tuple[str, ...] = ()
        if os.geteuid() == 0:
            self._as = _NOBODY
            os.chown(home, 65534, 65534)

    def run(self, *words: str, within: str = ".") -> str:
        """What `switchboard` says. Raises SystemExit if it fails."""
        _say(f"switchboard {' '.join(words)}")
        began = time.monotonic()
        command = (*self._as, str(self._programs / "switchboard"), *words)
        done = subprocess.run(
            command,
            cwd=self._home / within,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        if done.returncode:
            sys.exit(f"switchboard {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        _say(f"  {time.monotonic() - began:.1f} s")
        return done.stdout

    @contextmanager
    def scripted_model(self) -> Iterator[str]:
        """The URL of a model that knows the script; it is ready when it prints that."""
        module = ("-m", "switchboard.testing.scripted_llm", "--script", str(self._home / "script.json"))
        with self._beside((str(self._programs / "python"), *module), ".") as process:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]

    @contextmanager
    def house(self) -> Iterator[None]:
        """`switchboard up`, until it says that it is up."""
        with self._beside((str(self._programs / "switchboard"), "up", "--port", "0"), "house") as process:
            assert process.stdout is not None
            for line in process.stdout:
                _say(f"  up: {line.rstrip()}")
                if "http://" in line:
                    break
            yield

    @contextmanager
    def _beside(self, command: tuple[str, ...], within: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            (*self._as, *command),
            cwd=self._home / within,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()  # a job in the background of a script has SIGINT ignored, and so have its children
            process.communicate(timeout=_SECONDS)

    @property
    def _environment(self) -> Mapping[str, str]:
        # Slim systems have no time zones: those of the package must do.
        given = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONTZPATH": ""}
        return {"HOME": str(self._home), **given}


def _stem() -> str:
    return f"{DISTRIBUTION.replace('-', '_')}-{__version__}"


def _run(*command: str, cwd: Path = HOME, **more: str) -> None:
    done = subprocess.run(command, cwd=cwd, env=os.environ | more, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} ended with {done.returncode}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Build, check, install, try."""
    wheel = build()
    with TemporaryDirectory(prefix="switchboard-dist-") as place:
        Path(place).chmod(0o755)
        home = Path(place) / "home"
        home.mkdir()
        programs = install(wheel, Path(place))
        try_out(programs, home)
        check_outside(programs, Path(place))
    _say("the wheel works in an empty environment")
    return 0


if __name__ == "__main__":
    sys.exit(main())

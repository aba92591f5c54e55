"""What is distributed: its name, its contents, and what another distribution may have overwritten."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import switchboard
from switchboard import DISTRIBUTION, __version__
from switchboard.app.ops.doctor import check_machine
from switchboard.app.settings import Settings
from tests.dist import WANTED, flaws
from tests.documents import DOCUMENTS, HOME

SOURCE = Path(switchboard.__file__).parent
_OURS = (SOURCE / "__init__.py").read_text()
STEM = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
WHEEL = [*(f"switchboard/{name}" for name in WANTED), f"{STEM}.dist-info/METADATA"]
SDIST = [f"{STEM}/src/switchboard/{name}" for name in WANTED]


def test_the_name_is_the_same_everywhere() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["name"], project["version"]) == (DISTRIBUTION, __version__)
    other = re.compile(
        r"pip install (-U |--upgrade )?['\"]?switchboard(?!-server)|\bswitchboard\[|dependencies = \[\"switchboard\""
    )
    said = [*DOCUMENTS, *SOURCE.rglob("*.py"), *SOURCE.rglob("*.toml")]
    assert [str(file) for file in said if other.search(file.read_text(encoding="utf-8"))] == []
    in_code = [file.name for file in SOURCE.rglob("*.py") if DISTRIBUTION in file.read_text(encoding="utf-8")]
    assert in_code == ["distribution.py"]


@pytest.mark.parametrize(
    ("wheel", "sdist", "found"),
    [
        (WHEEL, SDIST, []),
        (WHEEL[1:], SDIST, ["missing in the wheel: py.typed"]),
        ([*WHEEL, "tests/kit.py"], SDIST, ["not ours in the wheel: tests/kit.py"]),
        (WHEEL, SDIST[1:], ["not in the sdist: switchboard/py.typed"]),
        (WHEEL, [*SDIST, f"{STEM}/tests/kit.py"], [f"tests: {STEM}/tests/kit.py"]),
        (WHEEL, [*SDIST, f"{STEM}/src/a.pyc"], [f"junk: {STEM}/src/a.pyc"]),
    ],
)
def test_what_should_not_be_packed_is_found(wheel: list[str], sdist: list[str], found: list[str]) -> None:
    assert flaws(wheel, sdist) == found


def test_doctor_finds_a_stranger_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    [ours] = [one for one in check_machine(settings) if one.name == "package"]
    assert ours.status == "ok"
    information = tmp_path / "switchboard-1.6.10.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Switchboard\nVersion: 1.6.10\n")
    (information / "RECORD").write_text("switchboard/__init__.py,,\n")
    (tmp_path / "switchboard").mkdir()
    (tmp_path / "switchboard" / "__init__.py").touch()  # from Python 3.12 on, what is not there does not count
    monkeypatch.syspath_prepend(str(tmp_path))
    [theirs] = [one for one in check_machine(settings) if one.name == "package"]
    assert (theirs.status, theirs.remedy.split(",")[0]) == ("error", "pip uninstall switchboard")


_RECORD = "switchboard/__init__.py,,\nswitchboard/manager.py,,\n"
_THEIRS = "VERSION = '1.6.10'\n"


@pytest.mark.parametrize(
    ("init", "record", "why"),
    [
        (_THEIRS, _RECORD, "switchboard 1.6.10 has files in"),
        (_OURS, _RECORD, "switchboard 1.6.10 has files in"),
        (_THEIRS, None, "files of switchboard-server are missing"),
        (None, None, "files of switchboard-server are missing"),
        (_OURS, "../../../bin/switchboard,,\n_switchboard.pth,,\n", None),
        (_OURS, None, None),
    ],
    ids=["theirs last", "ours last", "theirs alone", "removed", "an editable one of ours", "alone"],
)
def test_beside_a_stranger_it_does_not_start(
    tmp_path: Path, init: str | None, record: str | None, why: str | None
) -> None:
    package = tmp_path / "switchboard"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__", "sql", "bench", "testing"))
    (package / "__init__.py").unlink()
    if init is not None:
        (package / "__init__.py").write_text(init)
    if record is not None:
        (tmp_path / "switchboard-1.6.10.dist-info").mkdir()
        (tmp_path / "switchboard-1.6.10.dist-info" / "RECORD").write_text(record)
    # Where the package is a namespace, the one under test must not be found as well.
    script = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.remove({str(SOURCE.parent)!r})"
    script += "; sys.argv[1:] = ['version']; from switchboard.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    if why is None:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 1
        assert why in done.stderr
        assert f"install --force-reinstall --no-deps {DISTRIBUTION}" in done.stderr

"""What is distributed: its name, its contents, and what another distribution may have overwritten."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from switchboard import DISTRIBUTION, __version__
from switchboard.app.ops.doctor import check_machine
from switchboard.app.settings import Settings
from tests.dist import WANTED, flaws
from tests.documents import DOCUMENTS, HOME

STEM = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
WHEEL = [*(f"switchboard/{name}" for name in WANTED), f"{STEM}.dist-info/METADATA"]
SDIST = [f"{STEM}/src/switchboard/{name}" for name in WANTED]


def test_the_name_is_the_same_everywhere() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["name"], project["version"]) == (DISTRIBUTION, __version__)
    assert [page for page in DOCUMENTS if "switchboard[" in page.read_text(encoding="utf-8")] == []


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
    monkeypatch.syspath_prepend(str(tmp_path))
    [theirs] = [one for one in check_machine(settings) if one.name == "package"]
    assert (theirs.status, theirs.remedy.split(",")[0]) == ("error", "pip uninstall switchboard")

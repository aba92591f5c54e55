"""What CI makes of the results of its two runs of tests, and of tests that are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import HOME
from tests.release import notes
from tests.results import forgive_in, total

TESTS = """
import pathlib, pytest
def test_good(): pass
def test_bad(): assert False
@pytest.mark.parametrize("x", ["a::b", "c/d"])
def test_flaky(x): assert False
@pytest.fixture
def broken(): raise ValueError
def test_of_broken(broken): pass
def test_without_it(): pytest.skip("nginx is not installed")
@pytest.mark.skip(reason="only root can become another user")
def test_of_root(): pass
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


@pytest.mark.parametrize(
    ("skipping", "told"),
    [("told", "1 failed, 1 passed, 3 skipped, 1 error"), ("refused", "2 failed, 1 passed, 2 skipped, 1 error")],
)
def test_results_are_read_from_the_file_and_what_can_be_had_is_not_skipped(
    tmp_path: Path, skipping: str, told: str
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "from tests import no_skips\n"
        "def pytest_configure(config):\n"
        "    if no_skips.are_refused(): config.pluginmanager.register(no_skips)\n"
    )
    file = tmp_path / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={file}", "."]
    environment = os.environ | {"SKIPPING": skipping, "PYTHONPATH": str(HOME)}
    environment.pop("PYTEST_ADDOPTS", None)
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    forgive_in(str(file), {"test_it.py::test_flaky[a::b]", "test_it.py::test_flaky[c/d]"})
    # Two that passed at the second try count as passed and as flaky.
    counts = told.replace("1 passed", "3 passed")
    assert total([file]).partition(" in ")[0] == f"{counts}, 2 flaky"


def test_a_run_that_left_no_file_has_failed(tmp_path: Path) -> None:
    (tmp_path / "half.xml").write_text("<testsuites><testsuite")
    assert total([tmp_path / "none.xml", tmp_path / "half.xml"]) == "2 failed, 0 passed in 0s"


def test_the_notes_of_a_release_are_what_stands_below_the_topmost_heading() -> None:
    changelog = (
        "# Changelog\n\nOne line a change.\n\n## 0.2.0\n\nBefore:\n\n- a\n\n### More\n\n- b\n\n## 0.1.0\n\n- old\n"
    )
    assert notes(changelog) == ("0.2.0", "Before:\n\n- a\n\n### More\n\n- b")
    assert notes("## 0.1.0\n") == ("0.1.0", "")

"""What `.ci/run` makes of the results of its two runs of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / ".ci" / "run"


def the_sum_of(place: Path, *lines: str) -> str:
    """The function of the script, on the last lines of the runs."""
    source = CI.read_text()
    function = source[source.index("sum_of_tests() {") :].partition("\n}\n")[0] + "\n}\n"
    last = place / "last"
    last.write_text("".join(f"{line}\n" for line in lines))
    run = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", f'last="$1"\n{function}sum_of_tests', "sum", last],
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["9367 passed, 8 skipped in 482.11s (0:08:02)", "355 passed, 1 skipped in 221.50s (0:03:41)"],
            "9722 passed, 9 skipped in 703.61s",
        ),
        (
            ["1 failed, 9366 passed, 1 flaky in 500.00s (0:08:20)", "356 passed, 1 error in 2.00s"],
            "1 failed, 9722 passed, 1 error, 1 flaky in 502s",
        ),
        (["2 failed, 3 passed, 2 errors in 1.00s", "4 passed in 2.00s"], "2 failed, 7 passed, 2 error in 3s"),
        (["356 passed in 221.00s (0:03:41)"], "1 failed, 356 passed in 221s"),  # one run has not come to its end
        ([], "2 failed, 0 passed in 0s"),
    ],
)
def test_the_results_of_both_runs_are_one(tmp_path: Path, lines: list[str], told: str) -> None:
    assert the_sum_of(tmp_path, *lines) == told

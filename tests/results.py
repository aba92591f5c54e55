"""Results of runs of tests, from the files that `pytest --junitxml` writes.

`.ci/run` prints one line about both of its runs; `tests.once_more` marks in such a file what passed at its second
try, as `flakyFailure` and `flakyError`. In: files; out: a line, or the file changed. Next: the last line of CI.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from _pytest.junitxml import mangle_test_address

_OUTCOMES: Final = {
    "failure": "failed",
    "skipped": "skipped",
    "error": "error",
    "flakyFailure": "flaky",
    "flakyError": "flaky",
}
_SHOWN: Final = ("failed", "passed", "skipped", "error", "flaky")
_FLAKY: Final = {"failure": "flakyFailure", "error": "flakyError"}


def total(files: Sequence[Path]) -> str:
    """All results as one line, as pytest has it. A run that left no file, or half of one, has failed."""
    outcomes: Counter[str] = Counter()
    seconds = 0.0
    for file in files:
        try:
            suites = ElementTree.parse(file).getroot()  # noqa: S314 - pytest wrote it
        except (OSError, ElementTree.ParseError):
            outcomes["failed"] += 1
            continue
        seconds += sum(float(suite.get("time", "0")) for suite in suites.iter("testsuite"))
        for test in suites.iter("testcase"):
            found = {_OUTCOMES[part.tag] for part in test if part.tag in _OUTCOMES}
            outcomes.update(found)
            outcomes["passed"] += found <= {"flaky"}
    told = ", ".join(f"{outcomes[one]} {one}" for one in _SHOWN if outcomes[one] or one == "passed")
    return f"{told} in {round(seconds, 2):g}s"


def forgive_in(file: str | None, tests: set[str]) -> None:
    """Mark these tests (ids of pytest) as flaky in the file, if there is one."""
    if not tests or file is None or not Path(file).exists():
        return
    tree = ElementTree.parse(file)  # noqa: S314 - pytest wrote it
    addresses = {_address(test) for test in tests}
    for case in tree.getroot().iter("testcase"):
        if (case.get("classname"), case.get("name")) in addresses:
            for part in case:
                part.tag = _FLAKY.get(part.tag, part.tag)
    tree.write(file, encoding="utf-8", xml_declaration=True)


def _address(test: str) -> tuple[str, str]:
    *names, last = mangle_test_address(test)
    return ".".join(names), last


if __name__ == "__main__":
    sys.stdout.write(f"{total([Path(name) for name in sys.argv[1:]])}\n")

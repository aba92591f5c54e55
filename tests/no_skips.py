"""A pytest plugin, which conftest.py registers if `SKIPPING=refused` (CI): a skipped test fails, with its reason.

In: the reports of tests; out: the same, failed if they were skipped for something that can be had. All that tests skip
for lack of a program goes through here, however they say it. Next: `.ci/run`, which has the table of programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Final

import pytest

NO_PACKAGE_MENDS: Final = re.compile(
    "|".join(
        (
            r"the subject has no ",
            r"it comes with the extra `bench`",  # its lock is another one
            r"PostgreSQL \d+ is not installed",  # Debian has one version
            r"only root|as root|not root",
            r"is closed to (others|other users)",
            r"not allowed to mount here|devices cannot be made here",
            r"the system's PgBouncer follows prepared statements",
            r"no Linux|of Linux|Linux reports|on this system|nothing forks here",
        )
    )
)
"""Reasons that lie in the machine, or in the test's own subject."""


def are_refused() -> bool:
    """Whether skipped tests fail in this run."""
    return os.environ.get("SKIPPING") == "refused"


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report of a skipped test becomes one of a failed test."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if NO_PACKAGE_MENDS.search(reason) is None:
            report.outcome = "failed"
            report.longrepr = f"no test may be skipped here for what can be had: {reason}"
    return report

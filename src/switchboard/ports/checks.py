"""What `switchboard doctor` runs, and what it finds.

Checks lie beside what they check, in a module `checks.py` where a package has several, and take just the values that
they need. `app/ops/checks.py` puts them in order, and `app/ops/doctor.py` runs them. Checks change nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal

from msgspec import Struct

CheckStatus = Literal["ok", "error", "warning"]
MOST: Final = 20
"""Findings of one kind that are shown."""


class CheckResult(Struct, frozen=True):
    """One line of the report. `remedy` says what to do about an error (or may be done about a warning)."""

    name: str
    status: CheckStatus
    detail: str
    remedy: str = ""


Check = Callable[[], Awaitable[Iterable[CheckResult]]]
"""Looks at one thing. Raises what its database raises."""


def ok(name: str, detail: str) -> CheckResult:
    """Something that is as it should be."""
    return CheckResult(name, "ok", detail)


def warning(name: str, detail: str, remedy: str) -> CheckResult:
    """Something that somebody should look at; the installation works."""
    return CheckResult(name, "warning", detail, remedy)


def error(name: str, detail: str, remedy: str) -> CheckResult:
    """Something that does not work until it is mended."""
    return CheckResult(name, "error", detail, remedy)


def count_of(number: int, noun: str) -> str:
    """`1 team`, `3 teams`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""A browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import find_chromium, run_chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """A browser of the whole session; tests have cookies of their own in it."""
    if find_chromium() is None:
        pytest.skip("there is no chromium here; in Debian: apt-get install chromium-headless-shell")
    with run_chromium() as address:
        yield address

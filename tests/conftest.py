"""Fixtures, settings and hooks for all tests."""

from __future__ import annotations

import gc
import os
import ssl
from functools import cache
from zlib import crc32

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

from tests import guard, no_skips
from tests.forked import end_forking, forks
from tests.guard import pytest_cmdline_main
from tests.logs import logs_as_before
from tests.places import place
from tests.postgres import database_url, empty_database_url, postgres

__all__ = ["database_url", "empty_database_url", "forks", "logs_as_before", "place", "postgres", "pytest_cmdline_main"]

# How long an example takes says nothing: machines that run tests stand still for seconds at a time.
settings.register_profile("usual", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.register_profile("quick", settings.get_profile("usual"), max_examples=20)
settings.register_profile("asked", settings.get_profile("usual"), max_examples=100)
settings.register_profile("wide", settings.get_profile("usual"), max_examples=7_000)
_CAPPED = {"quick", "usual"}
_SETTINGS = "_hypothesis_internal_use_settings"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin the guard hears of fixtures of the whole session as well, as a conftest it would not."""
    config.pluginmanager.register(guard, "guard")
    if no_skips.are_refused():
        config.pluginmanager.register(no_skips, "no_skips")
    gc.disable()
    setattr(httpcore2, "default_ssl_context", _trust)  # noqa: B010 - mypy knows that it is a function


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` and `make quick` cap how many examples a test asks for itself; `make random` does not."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place_in_run)
    if settings.get_current_profile_name() not in _CAPPED:
        return
    for test in {item.function for item in items if isinstance(item, pytest.Function)}:
        asked: settings | None = getattr(test, _SETTINGS, None)
        if asked is not None and asked.max_examples > settings().max_examples:
            setattr(test, _SETTINGS, settings(asked, max_examples=settings().max_examples))


def _place_in_run(item: pytest.Item) -> tuple[bool, int]:
    """What takes longest is not begun last, and files that wait are spread among files that compute.

    Each process begins with a piece of the list: of files in their order, one would get all that wait, and what it has
    left at the end would leave the processors idle.
    """
    return item.get_closest_marker("chaos") is None, crc32(item.nodeid.partition("::")[0].encode())


def pytest_collection_finish() -> None:
    """All that was imported and collected stays: to look for garbage in it takes long, and there is none."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as `switchboard` has it
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Fixtures have ended what they started."""
    end_forking()


_read_certificates = httpcore2.default_ssl_context


@cache
def _certificates(trust_env: bool, *_: str | None) -> ssl.SSLContext:
    return _read_certificates(_trust_env=trust_env)


def _trust(*, _trust_env: bool = True) -> ssl.SSLContext:
    """Read once: that takes 20 ms, and each client of each test would do it."""
    return _certificates(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

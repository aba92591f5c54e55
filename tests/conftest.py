"""Fixtures, settings and hooks for all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests import guard
from tests.forked import forks
from tests.guard import pytest_cmdline_main
from tests.logs import logs_as_before
from tests.postgres import database_url, empty_database_url, postgres

__all__ = ["database_url", "empty_database_url", "forks", "logs_as_before", "postgres", "pytest_cmdline_main"]

# How long an example takes says nothing: machines that run tests stand still for seconds at a time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=20)
settings.register_profile("wide", settings.get_profile("untimed"), max_examples=7_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "untimed"))


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin the guard hears of fixtures of the whole session as well, as a conftest it would not."""
    config.pluginmanager.register(guard, "guard")

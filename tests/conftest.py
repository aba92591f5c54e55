"""Fixtures and settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.postgres import database_url, postgres

__all__ = ["database_url", "postgres"]

# How long an example takes says nothing: machines that run tests stand still for seconds at a time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

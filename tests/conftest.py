"""Fixtures for all tests."""

from __future__ import annotations

from tests.postgres import database_url, postgres

__all__ = ["database_url", "postgres"]

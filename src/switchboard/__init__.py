"""Switchboard: a self-hosted message switchboard for AI agents."""

from typing import Final

DISTRIBUTION: Final = "switchboard-server"
"""The name in package indexes, as in `pyproject.toml`; `switchboard` is somebody else's there."""
__version__ = "0.1.0"

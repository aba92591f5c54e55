"""Switchboard: a self-hosted message switchboard for AI agents."""

from switchboard.distribution import DISTRIBUTION as DISTRIBUTION

__version__ = "0.1.0"

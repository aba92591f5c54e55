"""Switchboard: a self-hosted message switchboard for AI agents."""

__version__ = "0.1.0"

"""Connectors: their accounts and heartbeats, posted events, and quarantine."""

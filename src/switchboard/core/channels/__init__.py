"""Channels: one file each, the table in `registry.py`, the definition of a channel in `ports/channel.py`."""

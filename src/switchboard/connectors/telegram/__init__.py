"""Telegram by a bot: `manifest.py` says what it can do, `channel.py` is an open account."""

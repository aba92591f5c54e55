"""Telegram bots: `manifest.py` declares what they can do, `channel.py` is an open account."""

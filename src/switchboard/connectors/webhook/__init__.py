"""Webhooks of any program: `POST /hooks/NAME` at the server. See `manifest.py`."""

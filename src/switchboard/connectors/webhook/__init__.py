"""Webhooks from any program: `POST /hooks/NAME` at the server. See `manifest.py`."""

"""Checks of the database and of what is in it, for `app/ops/checks.py`."""

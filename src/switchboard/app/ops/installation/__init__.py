"""A whole installation in one file, and back: `switchboard backup` and `switchboard restore`. Next: `saving.py`."""

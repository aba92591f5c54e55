"""Whose words the parts of a message are. Next: `own.py`."""

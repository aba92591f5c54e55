"""Dialogues of invented people, and questions that a memory of them should answer. Next: `reading.py`."""

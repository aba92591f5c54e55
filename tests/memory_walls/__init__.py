"""Random programs against the walls of memory, judged by an oracle: `python -m tests.memory_walls`. See `world.py`."""

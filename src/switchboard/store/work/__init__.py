"""The engine's rows: lanes, steps, turns and their history in progress, and the processes that work."""

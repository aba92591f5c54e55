"""The commands that keep running: their options, the parts of a process, its start and its end."""

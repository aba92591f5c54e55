"""Tasks that are due at a time: reminders, and what a butler does regularly. See docs/tasks.md."""

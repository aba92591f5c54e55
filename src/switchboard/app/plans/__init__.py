"""Plans, for operators: what a butler would plan, without doing it."""

"""Messages in and out, with their files, and dead letters."""

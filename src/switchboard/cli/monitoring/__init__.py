"""`switchboard monitoring`: files for those who watch an installation, and the command that prints them."""

"""A new installation: what is found on the machine, what is asked, what is tested, and the files that are written."""

"""`switchboard service`: the unit of systemd that keeps an installation running."""

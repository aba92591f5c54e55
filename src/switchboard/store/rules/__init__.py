"""Rules, teams and remote butlers."""

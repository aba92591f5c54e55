"""What modules keep: their SQL, their schemas with a role each, and what they do from time to time."""

"""Recordings in messages, and what a machine heard in them."""

"""Texts from outside: made storable, visible and short, and JSON that people and models wrote. Pure."""

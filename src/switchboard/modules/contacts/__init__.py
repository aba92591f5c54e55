"""Contacts: the people whom somebody has in their address books, kept as their servers have them."""

"""Accounts on servers of calendars and contacts: whose they are, how they are opened, and who may see into them."""

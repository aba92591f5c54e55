"""Changing objects of calendars (RFC 5545) line by line, so that what others have written in them stays. Pure."""

"""Calendars and address books on servers: one client for CalDAV and CardDAV, which differ in a few names."""

"""Google's calendars and contacts behind the port of servers: Calendar API v3, and People API v1 for reading."""

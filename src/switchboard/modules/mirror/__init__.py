"""The mirror of collections on servers, calendars and address books alike: whole objects, as the server has them."""

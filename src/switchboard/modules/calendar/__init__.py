"""What is in people's calendars, and what is changed there."""

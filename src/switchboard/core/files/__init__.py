"""Files of messages and replies: their names, types and parts. Pure."""

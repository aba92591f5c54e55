"""`switchboard channels`: the accounts of channels, from adding one to taking it out of service."""

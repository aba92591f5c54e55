"""`switchboard channels`: the accounts of channels, from adding one to removing it."""

"""Accounts opened by OAuth 2: consent of a person, tokens in a file, access tokens that are renewed in time."""

"""The use cases of connectors: accounts, replies, webhooks, posted events, pairing, quarantine."""

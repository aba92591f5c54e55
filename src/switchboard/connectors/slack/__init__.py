"""The connector of Slack, by Socket Mode and the Web API. Next: `manifest.py`, `channel.py`."""

"""Discord, by its gateway and REST API. `manifest.py` is what the rest of Switchboard sees."""

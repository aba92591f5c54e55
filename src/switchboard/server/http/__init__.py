"""The HTTP API: one router module per area, `gate.py` stands before all of them; `server/app.py` puts it together."""

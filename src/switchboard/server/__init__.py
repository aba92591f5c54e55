"""The doors: `http/` (API), `mcp.py` (tools); `serve.py` opens them. They know `app` and `domain`, nothing deeper."""

"""The interfaces: `http/` (API), `mcp/` (tools); `serve.py` starts them. They import `app` and `domain`, not deeper."""

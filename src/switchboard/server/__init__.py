"""The interfaces: `http/` (API) and `mcp/` (tools), put together by `app.py` and started by `serve.py`.

They import `app` and `domain`, not deeper.
"""

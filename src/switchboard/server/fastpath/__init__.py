"""The only code that bypasses FastAPI, uvicorn or the MCP SDK; tests compare each with the standard path.

- `direct.py`: past FastAPI's middleware and routing, for POSTs that bring messages in (`test_fastpath.py`)
- `described.py`: past the validators that FastAPI makes for responses (`test_described.py`)
- `heads.py`, `one_write.py`: past uvicorn's protocol, for every connection (`test_fastpath.py`, `test_one_write.py`)
- `mcp_ingest.py`: past the SDK, for `ingest` and `ingest_batch` (`test_fastpath_mcp.py`)

It imports neither `http` nor `mcp`, which pass in what it needs. Decision 0041 lists the savings.
"""

"""What a connector does whatever its platform is.

Pure, with the time as an argument: `chunking`, `rendering`, `parts` (what a reply is sent as), `limits` (how fast),
`progress` (how far the cursor may move). Next: `parts.py`.
"""

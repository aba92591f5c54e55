"""What a connector does whatever its platform is.

Pure, with the time as an argument: `chunking`, `rendering`, `parts` (what a reply is sent as), `limits` (how fast),
`progress` (how far the cursor may move), `intake` (what becomes of an event). Messages come in through `receiving`,
replies go out through `sending`, and `runner` keeps one account open. Next: `runner.py`.
"""

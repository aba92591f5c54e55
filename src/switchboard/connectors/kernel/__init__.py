"""The parts of a connector that do not depend on its platform.

Pure, with the time as an argument: `chunking`, `rendering`, `parts` (how a reply is split), `limits` (how fast to
send), `progress` (how far the cursor may move), `intake` (how an event is treated). Messages come in through
`receiving`, replies go out through `sending`, and `runner` keeps one account open. Next: `runner.py`.
"""

"""The gateway: chats over a WebSocket at `/v1/ws`. `door.py` is where a connection comes in."""

"""The gateway: chats over a WebSocket at `/v1/ws`. `endpoint.py` is where a connection comes in."""

"""What Slack refuses, and the faults that it can be told to make. `server.py` carries them out."""

from __future__ import annotations

from switchboard.testing.platform_server import Cut, Hang, Page


class SlackError(Exception):
    """An answer with `"ok": false`: the code of its error, and further fields.

    `retry_after` in seconds makes it 429 with the header; without it, the status is 200, as always at Slack.
    """

    def __init__(self, code: str, *, retry_after: int | None = None, **fields: object) -> None:
        super().__init__(code)
        self.code, self.retry_after, self.fields = code, retry_after, fields


Fault = SlackError | Page | Hang | Cut

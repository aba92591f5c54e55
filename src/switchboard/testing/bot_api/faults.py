"""Deliberate faults, as values; each spoils one call of a method. `server.py` carries them out."""

from __future__ import annotations

from msgspec import Struct, field

from switchboard.domain.json_values import JsonMapping


class ApiError(Exception):
    """An unsuccessful answer: its code, its description in Telegram's words, and `parameters`."""

    def __init__(self, code: int, description: str, **parameters: object) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters


class Status(Struct, frozen=True):
    """An error of the API, such as `Status(429, "Too Many Requests: retry after 40", {"retry_after": 40})`."""

    code: int
    description: str
    parameters: JsonMapping = field(default_factory=dict)


class Page(Struct, frozen=True):
    """A page instead of the API's answer, as proxies send it: `Page(502)`, or `Page(200)` that looks like a success."""

    code: int
    text: str = "<html><body>Bad Gateway</body></html>"


class Hang(Struct, frozen=True):
    """No answer until the client gives up; `taken`: Telegram has carried out the request."""

    taken: bool = False


class Cut(Struct, frozen=True):
    """The connection is reset once the request has been read; `taken`: Telegram has carried out the request."""

    taken: bool = True


Fault = Status | Page | Hang | Cut

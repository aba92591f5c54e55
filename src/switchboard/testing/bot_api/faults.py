"""What can go wrong on purpose, as values; each spoils one call of a method. `server.py` carries them out."""

from __future__ import annotations

from dataclasses import dataclass, field

from switchboard.domain.json_values import JsonMapping


class ApiError(Exception):
    """An answer that is no success: its code, its description in Telegram's words, and `parameters`."""

    def __init__(self, code: int, description: str, **parameters: object) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters


@dataclass(frozen=True, slots=True)
class Status:
    """An error of the API, such as `Status(429, "Too Many Requests: retry after 40", {"retry_after": 40})`."""

    code: int
    description: str
    parameters: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page in place of the API, as proxies send it: `Page(502)`, or `Page(200)` that looks like a success."""

    code: int
    text: str = "<html><body>Bad Gateway</body></html>"


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer until the client gives up; `taken`: Telegram has done what was asked."""

    taken: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is reset once the request has been read; `taken`: Telegram has done what was asked."""

    taken: bool = True


Fault = Status | Page | Hang | Cut

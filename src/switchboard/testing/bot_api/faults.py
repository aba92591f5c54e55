"""Deliberate faults, as values; each spoils one call of a method. `server.py` carries them out."""

from __future__ import annotations

from msgspec import Struct, field

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.platform_server import Cut, Hang, Page


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


Fault = Status | Page | Hang | Cut

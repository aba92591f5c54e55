"""Templates that turn the JSON of a webhook into a message: constants and paths in braces, freely mixed. Pure.

    text = "{headers.x-github-event} {body.action}: {body.issue.title}"
    sender = "{body.sender.login|body.pusher.name}"

`{body}` is the JSON, `{headers}` the request headers; keys and positions are joined by dots, and of several paths the
first with a value counts. `{{` and `}}` are literal braces. Next: `manifest.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field

from switchboard.ports.raw import at

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")
_PATH: Final = re.compile(r"(?:body|headers)(?:\.[^.|{}]+)*")
_POSITION: Final = re.compile(r"[0-9]{1,6}")


def checked(template: str) -> str:
    """The template itself. Raises ValueError that says what is wrong with it."""
    for piece in _PIECE.finditer(template):
        if piece[2]:
            raise ValueError(f"a lone {piece[2]} in {template!r}; for a brace itself write it twice")
        for path in (piece[1] or "").split("|") if piece[1] is not None else ():
            if not _PATH.fullmatch(path.strip()):
                raise ValueError(f"{{{piece[1]}}}: a path begins with body or headers, such as {{body.id}}")
    return template


Template = Annotated[str, Field(max_length=10_000), AfterValidator(checked)]


class MessageMap(BaseModel, extra="forbid", frozen=True):
    """Templates for the parts of a message; an empty one means the sender's usual value."""

    text: Template = "{body}"
    sender: Template = ""
    sender_name: Template = ""
    thread: Template = ""
    event_id: Template = ""
    only: dict[Template, tuple[str, ...]] = {}
    """What a template must give for the event to be answered; others are kept as history."""


class TemplateContext(Struct, frozen=True):
    """The parts of a webhook that templates can access."""

    body: object
    headers: Mapping[str, str]

    def filled(self, template: str) -> str:
        """Fill in the values of the paths; a path without a value is empty."""
        return _PIECE.sub(self._value, template)

    def fits(self, only: Mapping[str, Sequence[str]]) -> bool:
        """Whether every template yields a value."""
        return all(self.filled(template) in values for template, values in only.items())

    def _value(self, piece: re.Match[str]) -> str:
        if piece[1] is None:
            return piece[0][0]
        return next((text for path in piece[1].split("|") if (text := self._at(path.strip()))), "")

    def _at(self, path: str) -> str:
        root, *steps = path.split(".")
        if root == "headers":
            return self.headers.get(".".join(steps).lower(), "")
        found = self.body
        for step in steps:
            is_position = isinstance(found, list) and _POSITION.fullmatch(step)
            found = at(found, int(step) if is_position else step)
        return _text(found)


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()

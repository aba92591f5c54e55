"""Templates that turn the JSON of a webhook into a message: constants and paths in braces, freely mixed. Pure.

    text = "{headers.x-github-event} {body.action}: {body.issue.title}"
    sender = "{body.sender.login|body.pusher.name}"

`{body}` is the JSON, `{headers}` the request headers; keys and positions are joined by dots, and of several paths the
first with a value counts. `{{` and `}}` are literal braces. In a text, `{body.comment|quoted}` holds words of others,
which count as nobody's order. Next: `manifest.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field

from switchboard.core.passages.fitting import fitting
from switchboard.domain.envelope import Passage, PassageKind
from switchboard.ports.raw import at

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")
_PATH: Final = re.compile(r"(?:body|headers)(?:\.[^.|{}]+)*")
_QUOTED: Final = "quoted"
_POSITION: Final = re.compile(r"[0-9]{1,6}")


def check_template(template: str) -> str:
    """The template itself. Raises ValueError that says what is wrong with it."""
    for piece in _PIECE.finditer(template):
        if piece[2]:
            raise ValueError(f"a lone {piece[2]} in {template!r}; for a brace itself write it twice")
        for path in (piece[1] or "").split("|") if piece[1] is not None else ():
            if path.strip() == _QUOTED:
                raise ValueError(f"{{{piece[1]}}}: only values in map.text are marked as quoted, each as its last word")
            if not _PATH.fullmatch(path.strip()):
                raise ValueError(f"{{{piece[1]}}}: a path begins with body or headers, such as {{body.id}}")
    return template


def checked_text(template: str) -> str:
    """The same for a template of a text, in which values may be marked as quoted."""
    check_template(_PIECE.sub(_without_mark, template))
    return template


def _without_mark(piece: re.Match[str]) -> str:
    return piece[0] if not _is_quoted(piece) else f"{{{piece[1].rpartition('|')[0]}}}"


def _is_quoted(piece: re.Match[str]) -> bool:
    return piece[1] is not None and piece[1].rpartition("|")[2].strip() == _QUOTED and "|" in piece[1]


Template = Annotated[str, Field(max_length=10_000), AfterValidator(check_template)]
TextTemplate = Annotated[str, Field(max_length=10_000), AfterValidator(checked_text)]


class MessageMap(BaseModel, extra="forbid", frozen=True):
    """Templates for the parts of a message; an empty one means the sender's usual value."""

    text: TextTemplate = "{body}"
    sender: Template = ""
    sender_name: Template = ""
    thread: Template = ""
    event_id: Template = Field(
        default="",
        description="what names the event, and not the thing that it is about, such as {body.id}",
        json_schema_extra={"ask": True},
    )
    only: dict[Template, tuple[str, ...]] = {}
    """What a template must give for the event to be answered; others are kept as history."""


class TemplateContext(Struct, frozen=True):
    """The parts of a webhook that templates can access."""

    body: object
    headers: Mapping[str, str]

    def fill_template(self, template: str) -> str:
        """Fill in the values of the paths; a path without a value is empty."""
        return _PIECE.sub(self._value_of, template)

    def passages(self, template: str) -> tuple[Passage, ...]:
        """The passages of a filled template; those with marked values are quoted, the rest is the sender's."""
        found, own, at = list[Passage](), "", 0
        for piece in _PIECE.finditer(template):
            own += template[at : piece.start()]
            at = piece.end()
            if _is_quoted(piece):
                found += [*_passages_of("own", own), *_passages_of("quoted", self._value_of(piece))]
                own = ""
            else:
                own += self._value_of(piece)
        return fitting((*found, *_passages_of("own", own + template[at:])))

    def fits(self, only: Mapping[str, Sequence[str]]) -> bool:
        """Whether every template yields a value."""
        return all(self.fill_template(template) in values for template, values in only.items())

    def _value_of(self, piece: re.Match[str]) -> str:
        if piece[1] is None:
            return piece[0][0]
        paths = (path for one in piece[1].split("|") if (path := one.strip()) != _QUOTED)
        return next((text for path in paths if (text := self._text_at(path))), "")

    def _text_at(self, path: str) -> str:
        root, *steps = path.split(".")
        if root == "headers":
            return self.headers.get(".".join(steps).lower(), "")
        found = self.body
        for step in steps:
            is_position = isinstance(found, list) and _POSITION.fullmatch(step)
            found = at(found, int(step) if is_position else step)
        return _text_of(found)


def _passages_of(kind: PassageKind, text: str) -> tuple[Passage, ...]:
    return (Passage(kind=kind, text=words),) if (words := text.strip()) else ()


def _text_of(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()

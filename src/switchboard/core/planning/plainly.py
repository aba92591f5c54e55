"""Results of steps as a person is sent them: what a tool returned, in words, without what is written for models. Pure.

`outcome.py` calls it for the text of an ended plan. In: the text on record of a step; out: a text. Tools pass on what
others wrote as JSON, and the results that a specialist is shown stand between lines of ours, which a small model may
repeat: neither is for people. Next: `views.py`, which writes those lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchboard.core.text.lenient import json_value, mapping, string
from switchboard.core.text.outside import FOLLOWS
from switchboard.core.text.visible import visible

_MOST_HEAD: Final = 200
"""Characters in which the sentence before the JSON of a tool ends."""
_LITERAL: Final = frozenset({"read_file", "search_files"})
"""Tools whose results are what stands in files."""
_DEEPEST: Final = 4
_MOST_LINES: Final = 500
_NOT_DONE: Final = re.compile(r"^={5,} not done\n(?:\[[^\n]*\]\n)*={5,} end$\n?", re.MULTILINE)
_FRAME: Final = re.compile(r"^={5,} (?:end of )?([a-z0-9][a-z0-9_-]{0,19})(?:: [^\n]*)?$\n?", re.MULTILINE)
_MARK: Final = re.compile(
    r"\[([a-z0-9][a-z0-9_-]{0,19}) (?:(failed|skipped|cancelled)(?:: ([^\]\n]{0,300}))?|left out: no space)\]"
)


def plain_result(tool: str, text: str) -> str:
    """What a tool returned, in words: a page as its address and its text, JSON as lines of names and values.

    A file that was read, and a page, stay as they are.
    """
    head, follows, _ = text[: _MOST_HEAD + len(FOLLOWS)].partition(FOLLOWS)
    if not follows:
        return text if tool in _LITERAL else _render_if_json(text)
    found = mapping(json_value(text[len(head) + len(follows) :]))
    url, note, body = (string(found.get(name)) for name in ("url", "note", "text"))
    parts = (url, note, body if url else _render_if_json(body))
    return "\n\n".join(filter(None, parts)) if found else text


def _render_if_json(text: str) -> str:
    """A text; if it is the JSON of an object or a list, its content in words."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return text
    value = json_value(stripped)
    if not isinstance(value, Mapping | list) or not value:
        return text
    try:
        lines = list(_lines(value, 0))
    except RecursionError:
        return text
    more = [f"… and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join((*lines[:_MOST_LINES], *more))


def _lines(value: object, depth: int) -> Iterator[str]:
    """The lines of a JSON value: `name: value`, and `- value` for what is in a list."""
    indent = "  " * depth
    inner = value.items() if isinstance(value, Mapping) else (("-", one) for one in _as_list(value))
    for name, one in inner:
        head = f"{indent}{name}" if name == "-" and isinstance(value, list) else f"{indent}{visible(str(name))}:"
        if isinstance(one, Mapping | list) and one and depth < _DEEPEST:
            yield head
            yield from _lines(one, depth + 1)
        else:
            yield f"{head} {_scalar(one)}".rstrip()


def _as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ({}, []):
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def without_marks(text: str, named: Mapping[str, str]) -> str:
    """A text of a model without the lines and marks that stood around its input.

    `named`: the steps of its plan, by id, in words. A mark of a step that failed becomes a remark in words.
    """

    def framed(found: re.Match[str]) -> str:
        return "" if found[1] in named else found[0]

    def marked(found: re.Match[str]) -> str:
        if found[1] not in named:
            return found[0]
        why = f": {found[3]}" if found[3] else ""
        return f"({named[found[1]]} {found[2] or 'was left out'}{why})"

    bare = _FRAME.sub(framed, _NOT_DONE.sub("", text))
    return _MARK.sub(marked, bare).strip()

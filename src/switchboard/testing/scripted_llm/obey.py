"""The calls that a text tells a model to make. For the model that always obeys, whoever wrote the text.

`script.py` calls `commands` with the whole prompt. A command is `call NAME with {…}` (`with` may be missing). Text that
went through JSON, even repeatedly, is also searched: an attacker's words usually arrive quoted.
"""

from __future__ import annotations

import json
import re
from typing import Final

from switchboard.domain.json_values import JsonObject

_COMMAND: Final = re.compile(r"\bcall\s+([A-Za-z_][\w:./-]*)\s*(?:with\s*)?(?=\{)", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DEPTH: Final = 4
"""How deeply text may be quoted: more deeply than in anything we build."""


def commands(text: str) -> list[tuple[str, JsonObject]]:
    """The calls that a text demands: (tool, arguments). First plain ones, in order, then quoted ones."""
    found: list[tuple[str, JsonObject]] = []
    for _ in range(_DEPTH):
        text = _ESCAPE.sub(_plain, _take_commands(text, found))
    return found


def _take_commands(text: str, found: list[tuple[str, JsonObject]]) -> str:
    """Move the commands of a text to `found`, and return the rest, so that nothing is obeyed twice."""
    rest, at = "", 0
    for match in _COMMAND.finditer(text):
        try:
            arguments, end = json.JSONDecoder().raw_decode(text, match.end())
        except json.JSONDecodeError:
            continue
        found.append((match[1], arguments))
        rest, at = rest + text[at : match.start()], end
    return rest + text[at:]


def _plain(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROL.get(escaped, escaped)

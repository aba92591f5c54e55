"""What pydantic says of a request, as an error of ours: the same codes over HTTP and MCP.

`http/errors.py` and `mcp/tool_spec.py` call it. In: pydantic's problems; out: the first of them as an InvalidInput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping

_CODES: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("missing_field", "is required"),
    "extra_forbidden": ("unknown_field", "is not a known field"),
}


def first_problem(problems: Sequence[JsonMapping], path: Sequence[str | int]) -> InvalidInput:
    """The first of `problems`, which lies at `path` of the body or the parameters."""
    first = problems[0]
    field = ".".join(str(part) for part in path)[:200] or None
    said = first["msg"].removeprefix("Value error, ")
    code, sentence = _CODES.get(first["type"], ("invalid_input", f"{said[:1].lower()}{said[1:]}"))
    of_ours = field is None and said != first["msg"]
    message = said if of_ours else f"{field or 'the body'}{' ' if first['type'] in _CODES else ': '}{sentence}"
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(f"{message}{rest}", code=code, field=field)

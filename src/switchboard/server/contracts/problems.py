"""Converts pydantic's problems with a request to our errors, with the same codes over HTTP and MCP.

`http/errors.py` and `mcp/tool_spec.py` call it. In: pydantic's problems; out: the first of them as an InvalidInput.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Final

from switchboard.core.text.problems import after, path_of, wrong
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping

_CODES: Final[Mapping[str, str]] = {"missing": "missing_field", "extra_forbidden": "unknown_field"}


def first_problem(problems: Sequence[JsonMapping], at: int, known: Collection[str]) -> InvalidInput:
    """The first of `problems`; a field whose name is similar to a `known` one comes before all others.

    The path of a problem within the body or the parameters is its `loc` from `at` on.
    """
    hinted = ((one, _suggest_field(one["loc"][at:], known)) for one in problems if one["type"] == "extra_forbidden")
    first, hint = next(filter(itemgetter(1), hinted), (problems[0], ""))
    field = path_of(first["loc"][at:])[:200] or None
    whole = None if first["type"] == "value_error" else "the body"
    message = after(field or whole, wrong(first))
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(f"{message}{hint}{rest}", code=_CODES.get(first["type"], "invalid_input"), field=field)


def _suggest_field(path: Sequence[str | int], known: Collection[str]) -> str:
    """The field that the unknown one at `path` probably means; empty for nested fields."""
    meant = near(str(path[0]), known) if len(path) == 1 else ()
    return f"; did you mean {or_list(meant)}?" if meant else ""

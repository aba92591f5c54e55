"""Tools made of typed functions: what a model sees of them, and what becomes of its arguments."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import pytest
from msgspec import Meta, Struct

from switchboard.ports.module import ModuleManifest, PreparedCall, typed_tool
from switchboard.ports.tools import ToolOutcome, ToolScope

SCOPE: Final = ToolScope(Path(), frozenset(), frozenset(), UUID(int=1), UUID(int=2), zone="Europe/Berlin")


class Appointment(Struct, frozen=True):
    title: str
    day: date


async def diary_list(
    module: list[Appointment],
    scope: ToolScope,
    since: Annotated[date, "The first day"],
    most: Annotated[int, Meta(ge=1, le=50)] = 10,
    title: str | None = None,
    json: bool = False,
) -> object:
    """The appointments from a day on.

    At most 50.
    """
    found = [one for one in module if one.day >= since and title in (None, one.title)][:most]
    return [scope.zone, *found] if json else f"{len(found)} in {scope.zone}"


async def prepare_list(_: object, since: date, most: int, title: str | None) -> PreparedCall:
    """What it would do."""
    return PreparedCall("idempotent", "high" if most > 20 else "low", digest=f"{since} {title}")


TOOL: Final = typed_tool(diary_list, effect="idempotent", prepare=prepare_list, reach="inside")
DIARY: Final = [Appointment("dentist", date(2026, 3, 1)), Appointment("tax", date(2026, 4, 1))]


def test_a_model_sees_name_docstring_and_arguments_of_the_function() -> None:
    spec = ModuleManifest("diary", (TOOL,), "diary:open_diary").tools[0].spec
    assert (spec.name, spec.description) == ("diary_list", "The appointments from a day on.\n\nAt most 50.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "since": {"type": "string", "format": "date", "description": "The first day"},
            "most": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "title": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "json": {"type": "boolean", "default": False},
        },
        "required": ["since"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"since": "2026-03-02"}, "1 in Europe/Berlin"),
        ({"since": "2026-01-01", "title": "tax"}, "1 in Europe/Berlin"),
        (
            {"since": "2026-04-01", "json": True},
            '["Europe/Berlin",{"title":"tax","day":"2026-04-01"}]',
        ),
    ],
)
async def test_typed_arguments_reach_the_function(arguments: dict[str, object], told: str) -> None:
    assert await TOOL.run(DIARY, arguments, SCOPE) == ToolOutcome(told)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "since: field required"),
        ({"since": "soon"}, "since: input should be a valid date"),
        ({"since": "2026-03-02", "most": 51}, "most: input should be less than or equal to 50"),
        ({"since": "2026-03-02", "until": "x"}, "until: extra inputs are not permitted"),
    ],
)
async def test_wrong_arguments_are_told_and_nothing_is_called(arguments: dict[str, object], told: str) -> None:
    assert TOOL.prepare is not None
    for outcome in (await TOOL.run(DIARY, arguments, SCOPE), await TOOL.prepare(DIARY, arguments, SCOPE)):
        assert isinstance(outcome, ToolOutcome)
        assert not outcome.ok
        assert told in outcome.text


async def test_risk_is_computed_from_the_same_typed_arguments() -> None:
    assert TOOL.prepare is not None
    prepared = await TOOL.prepare(DIARY, {"since": "2026-03-02", "most": 21}, SCOPE)
    assert prepared == PreparedCall("idempotent", "high", digest="2026-03-02 None")


async def undocumented(_: object) -> str:
    return ""


async def loose(_: object, *more: str) -> str:
    """It takes anything."""
    return "".join(more)


@pytest.mark.parametrize("function", [undocumented, loose])
def test_functions_that_cannot_be_tools_are_refused(function: Any) -> None:
    with pytest.raises(ValueError, match=r"must (be|have)"):
        typed_tool(function, effect="idempotent")


def test_the_port_of_modules_does_not_import_pydantic() -> None:
    said = "import sys, switchboard.ports.module; raise SystemExit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0

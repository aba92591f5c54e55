"""What mypy finds in code that copies Structs and dataclasses, with the settings of this project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.processes import DEADLINE

SETTINGS: Final = Path(__file__).parents[2] / "pyproject.toml"
COPIES: Final = """
import dataclasses
from msgspec import Struct, structs

class Point(Struct):
    x: int

class Place(Point):
    name: str

@dataclasses.dataclass
class Line:
    length: int

def right(line: Line, place: Place) -> Place:
    dataclasses.replace(line, length=1)
    return structs.replace(place, x=1, name="")

def wrong(point: Point, either: Line | Place) -> None:
    dataclasses.replace(point, x=1)
    dataclasses.asdict(either)
    dataclasses.fields(Point)
    structs.replace(point, x="1")
    structs.replace(point, y=1)
    structs.replace(Line(1), length=2)
"""


def test_the_type_checker_knows_how_structs_are_copied(tmp_path: Path) -> None:
    (tmp_path / "copies.py").write_text(COPIES, encoding="utf-8")
    options = ("--config-file", str(SETTINGS), "--cache-dir", str(tmp_path), "--follow-imports", "silent")
    # A process of its own: mypy raises the limit of recursion of the one that it is in.
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path / "copies.py")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False).stdout
    wrong = COPIES[: COPIES.index("def wrong")].count("\n") + 1
    assert [(int(line.split(":")[1]) - wrong, line.split("error: ")[1]) for line in told.splitlines()[:-1]] == [
        (1, "Point is a Struct and no dataclass; msgspec.structs has the same functions  [misc]"),
        (2, "Place is a Struct and no dataclass; msgspec.structs has the same functions  [misc]"),
        (3, "Point is a Struct and no dataclass; msgspec.structs has the same functions  [misc]"),
        (4, 'Argument "x" to "replace" of "Point" has incompatible type "str"; expected "int"  [arg-type]'),
        (5, 'Unexpected keyword argument "y" for "replace" of "Point"  [call-arg]'),
        (6, "Line is no Struct; dataclasses has the same function  [misc]"),
    ]

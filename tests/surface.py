"""What users and other programs see of Switchboard, recorded: a change of it shows in the diff, or is none.

`make surface` records it in `tests/fixtures/surface`; `test_surface.py` compares, in `tests/unit` what needs no
database and in `tests/integration` what `switchboard doctor` finds. In: the product; out: one text for each file. In a
conflict take either side, then `make surface`. Next: `tests/statements.py`, for what is sent to the database.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from textwrap import dedent
from types import ModuleType
from typing import Final, TypedDict, get_args
from unittest.mock import Mock, patch

from typer import Context
from typer.core import TyperCommand, TyperGroup

from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.main import COMMANDS, command_line, main
from switchboard.domain import numbers
from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.server.app import create_app
from switchboard.store.database import Database
from switchboard.store.migrate import migrate
from tests.postgres import FAST

DIRECTORY: Final = Path(__file__).parent / "fixtures" / "surface"
WRONG_SETTINGS: Final = DIRECTORY / "wrong_settings.json"

PUBLISHED: Final = ("switchboard.ports", "switchboard.turns", "switchboard.pipeline", "switchboard.testing")
"""Packages that programs of others import from; of `turns` and `pipeline`, only what the package itself names."""
_WHOLE: Final = ("switchboard.ports", "switchboard.testing")
_PRIVATE: Final = re.compile(r"\b_[A-Za-z]\w*")


class WrongSettings(TypedDict):
    """A file and variables that are refused, and how."""

    file: str
    variables: dict[str, str]
    message: str


# The interfaces -----------------------------------------------------------------------------------------------------


def render_openapi() -> str:
    """The OpenAPI: a line for each operation, each schema, and each of the other parts."""
    runtime = Runtime(Settings(), Mock(), Mock(), Mock())
    document = create_app(Switchboard(runtime, Mock(), Mock(), Mock())).openapi()
    document["info"]["version"] = "VERSION"
    parts = {
        f"{method.upper()} {path}": one for path, all_ in document["paths"].items() for method, one in all_.items()
    }
    parts |= {f"{kind}.{name}": one for kind, all_ in document["components"].items() for name, one in all_.items()}
    parts |= {name: one for name, one in document.items() if name not in {"paths", "components"}}
    return "".join(f"{name} {json.dumps(one, ensure_ascii=False)}\n" for name, one in parts.items())


def render_help() -> str:
    """`--help` of every command, as a terminal with 100 columns shows it."""
    with _environment({"COLUMNS": "100", "TERM": "dumb"}):
        return "".join(_help_of(words) for words in _all_commands())


def _all_commands() -> Iterator[tuple[str, ...]]:
    yield ()
    for entry in COMMANDS:
        yield from _commands_below(command_line([entry.name]).commands[entry.name], (entry.name,))


def _commands_below(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    assert isinstance(command, TyperCommand | TyperGroup)
    yield words
    if isinstance(command, TyperGroup):
        for name in command.list_commands(Context(command)):
            yield from _commands_below(command.commands[name], (*words, name))


def _help_of(words: tuple[str, ...]) -> str:
    out = _run_command(*words, "--help")
    lines = (line.rstrip() for line in out.splitlines())
    return f"$ switchboard {' '.join((*words, '--help'))}\n" + "\n".join(lines) + "\n"


def _run_command(*words: str) -> str:
    """What it writes to stdout."""
    out = io.StringIO()
    with redirect_stdout(out), suppress(SystemExit):
        main(words)
    return out.getvalue()


# Names --------------------------------------------------------------------------------------------------------------


def render_names() -> str:
    """Published names, with their fields, methods and signatures."""
    return "".join(_describe_module(module) for name in PUBLISHED for module in _modules_of(name))


def _modules_of(name: str) -> Iterator[ModuleType]:
    package = import_module(name)
    yield package
    if name in _WHOLE:
        for found in walk_packages(package.__path__, f"{name}."):
            if not found.name.rpartition(".")[2].startswith("_"):
                yield import_module(found.name)


def _describe_module(module: ModuleType) -> str:
    names = getattr(module, "__all__", None) or _names_defined_in(module)
    lines = [line for name in sorted(names) for line in _describe(name, getattr(module, name, None))]
    return f"\n{module.__name__}\n" + "".join(f"  {_PRIVATE.sub('_', line)}\n" for line in lines)


def _names_defined_in(module: ModuleType) -> Iterator[str]:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = [node.name]
        elif isinstance(node, ast.Assign):
            found = [target.id for target in node.targets if isinstance(target, ast.Name)]
        else:
            found = [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []
        yield from (name for name in found if not name.startswith("_"))


def _describe(name: str, value: object) -> Iterator[str]:
    if not (inspect.isclass(value) or inspect.isfunction(value)) or not value.__module__.startswith("switchboard"):
        yield name
        return
    [node] = ast.parse(dedent(inspect.getsource(value))).body
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield _signature(node)
    elif isinstance(node, ast.ClassDef):
        yield f"class {node.name}({', '.join(map(ast.unparse, [*node.bases, *node.keywords]))})"
        yield from (f"  {line}" for line in _describe_body(node))


def _describe_body(node: ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
            if not line.name.startswith("_") or line.name == "__init__":
                yield _signature(line)
        elif isinstance(line, ast.AnnAssign | ast.Assign):
            text = ast.unparse(_WithoutLimits().visit(line))
            yield from () if text.startswith("_") else (text,)


class _WithoutLimits(ast.NodeTransformer):
    """Leaves the types of fields: their limits are those of settings, and not checked where a program makes a value."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Called for `Positive`."""
        limited = get_args(getattr(numbers, node.id, None))
        return ast.Name(limited[0].__name__) if limited else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Called for `Annotated[float, Meta(gt=0)]`, and for other types with parameters."""
        if ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        self.generic_visit(node)
        return node


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    decorators = "".join(f"@{ast.unparse(one)} " for one in node.decorator_list)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{decorators}{kind} {node.name}({ast.unparse(node.args)}){returned}"


# Settings -----------------------------------------------------------------------------------------------------------


def render_wrong_settings() -> str:
    """The recorded files and variables, each with the message that refuses it now; empty if it is taken."""
    cases: list[WrongSettings] = json.loads(WRONG_SETTINGS.read_text(encoding="utf-8"))
    for case in cases:
        case["message"] = refuse_settings(case["file"], case["variables"])
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    return f"[\n{lines}\n]\n"


def refuse_settings(file: str, variables: Mapping[str, str]) -> str:
    """The message for a `switchboard.toml` with this text, and these variables of the environment."""
    with tempfile.TemporaryDirectory() as place, chdir(place), _environment(variables):
        Path("switchboard.toml").write_text(file, encoding="utf-8")
        try:
            load_settings()
        except ConfigurationError as error:
            return error.message
        return ""


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Ours without anything of Switchboard, and these."""
    ours = {name: value for name, value in os.environ.items() if not name.upper().startswith("SWITCHBOARD_")}
    with patch.dict(os.environ, ours | dict(variables), clear=True):
        yield


# Doctor -------------------------------------------------------------------------------------------------------------

_HOUSE: Final = """
port = 9
channels_dir = "channels.d"
notify = ["telegram/bot:house/41"]

[[models]]
name = "small"
kind = "openai"
model = "none"
base_url = "http://127.0.0.1:9/v1"

[[mcp_servers]]
name = "clock"
command = ["/nowhere/clock"]
butlers = ["*"]

[[teams]]
team = "root"
members = [{ system_id = "System1/memo", number = 1, engine = "memo" }]
"""
_STORED: Final = """
insert into switchboard.team values ('root', null, ''), ('lonely', 'root', '');
insert into switchboard.member values ('System1/x', 'lonely', 1, 'magic');
"""
_ACCOUNT: Final = 'channel = "telegram"\nendpoint = "bot:house"\ntoken_env = "HOUSE_TOKEN"\n'
_OF_THE_MACHINE: Final = {"python", "package", "sandbox", "database", "durability", "clock", "schema"}
"""Findings that depend on the machine and on the release: only their place is recorded."""


async def render_doctor(database_url: str) -> str:
    """What `switchboard doctor` finds in a house with wrong files, where servers and programs are missing.

    `database_url`: an empty database.
    """
    database = await Database.connect(database_url, size=1)
    try:
        await migrate(database)
        async with database.connection() as connection:
            await connection.execute(_STORED)
    finally:
        await database.close()
    return await asyncio.to_thread(_examine_house, database_url)


def _examine_house(database_url: str) -> str:
    with tempfile.TemporaryDirectory() as place, chdir(place):
        Path("switchboard.toml").write_text(_HOUSE, encoding="utf-8")
        Path("channels.d").mkdir()
        Path("channels.d", "telegram-house.toml").write_text(_ACCOUNT, encoding="utf-8")
        with _environment({"SWITCHBOARD_DATABASE_URL": database_url, "SWITCHBOARD_DATA_DIR": "data"}):
            out = _run_command("doctor", "--json")
        return "".join(_render_finding(one).replace(place, "HOUSE") for one in json.loads(out)["findings"])


def _render_finding(finding: Mapping[str, str]) -> str:
    if finding["name"] in _OF_THE_MACHINE:
        return f"{finding['name']} …\n"
    return "{name} {status}: {detail}; {remedy}\n".format_map(finding)


async def _record_doctor() -> str:
    place = Path(tempfile.gettempdir(), f"switchboard-surface-{os.getpid()}")
    try:
        async with embedded_postgres(place, settings=FAST) as server:
            return await render_doctor(server.url)
    finally:
        shutil.rmtree(place, ignore_errors=True)


FILES: Final[Mapping[str, Callable[[], str]]] = {
    "openapi.txt": render_openapi,
    "help.txt": render_help,
    "names.txt": render_names,
    WRONG_SETTINGS.name: render_wrong_settings,
}
"""What needs no database."""
DOCTOR: Final = "doctor.txt"


def recorded(name: str) -> str:
    """What was recorded last."""
    return DIRECTORY.joinpath(name).read_text(encoding="utf-8")


def record() -> None:
    """Write all files again."""
    for name, render in FILES.items():
        DIRECTORY.joinpath(name).write_text(render(), encoding="utf-8")
    DIRECTORY.joinpath(DOCTOR).write_text(asyncio.run(_record_doctor()), encoding="utf-8")


if __name__ == "__main__":
    record()

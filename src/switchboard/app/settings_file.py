"""The file `switchboard.toml` and the variables of the environment, as text: reading them, and where a mistake stands.

Called by `settings.py` for all settings, and by `whereabouts.py` for the few that tell where the server is. In: the
file; out: its values, and for what is wrong the variable or the line. Next: `settings.py`.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from switchboard.app.ownership import read_ours
from switchboard.core.problems import after, path_of, wrong
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject

FILE_NAME: Final = "switchboard.toml"
PREFIX: Final = "SWITCHBOARD_"
NAMES: Final = frozenset(
    (
        *("host", "port", "public_names", "public_url", "trusted_proxies", "database_url", "database_direct_url"),
        *("data_dir", "postgres_binaries", "teams_dir", "channels_dir", "teams", "program_user", "log_level", "accept"),
        *("blobs", "gateway", "worker", "turn", "liveness", "dead_letters", "callbacks", "models", "classify"),
        *("spending", "memory", "trio", "sandbox", "mcp_servers", "email", "endpoints", "schedules", "channels"),
    )
)
"""Of the settings, known here so that a command that asks the server does without what they take."""
_ELSEWHERE: Final = frozenset({"token", "url", "crash_at", "idempotency_key"})
"""Variables read elsewhere: by the command line, by tests that crash us, by programs of butlers."""
_DIRECTORIES: Final = ("teams_dir", "channels_dir", "data_dir")
"""In the file they are relative to it."""


class SettingsFile(Struct, frozen=True):
    """A file of settings, its text and its values; without a path there is none."""

    path: Path | None
    text: str
    values: JsonObject

    def blamed(self, error: ValidationError, said: Callable[[ErrorDetails], str] = wrong) -> ConfigurationError:
        """What is wrong with the settings, each with the variable or the line that it really comes from."""
        problems = []
        for problem in error.errors(include_url=False):
            name = path_of(problem["loc"])
            place = self.place(problem["loc"]) if name else None
            problems.append(f"{place or self.path or 'environment'}: {after(name, said(problem))}")
        return ConfigurationError("; ".join(problems))

    def place(self, path: tuple[int | str, ...]) -> str | None:
        """The variable that sets it, which wins, else the line; what nobody sets lacks in a variable above."""
        path = tuple(part for part in path if part != "[key]")
        above = _variables_above(path)
        variable = next((name for name, inner in above if _sets(os.environ[name], inner)), None)
        if variable is None and (line := _line_of(path, self.text)):
            return f"{self.path}, line {line}"
        variable = variable or next((name for name, _ in above), None)
        return f"environment variable {variable}" if variable else None


def read_settings_file(path: Path | None = None) -> SettingsFile:
    """`path`, or `switchboard.toml` here, if it is there. Raises ConfigurationError, also for an unknown variable."""
    _refuse_unknown_variables()
    file = path or (Path(FILE_NAME) if Path(FILE_NAME).is_file() else None)
    text = _read(file) if file else ""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of endless numbers and nesting
        raise ConfigurationError(f"{file}: not TOML: {error}") from error
    for name in _DIRECTORIES:
        if file and isinstance(values.get(name), str):
            values[name] = file.parent / values[name]
    return SettingsFile(file, text, values)


def source_of(setting: str) -> str:
    """`switchboard.toml, line 3: ` or `environment variable …: `, to begin a message about a setting with.

    Empty where the setting stands in neither.
    """
    file = Path(FILE_NAME)
    place = SettingsFile(file, _read(file) if file.is_file() else "", {}).place((setting,))
    return f"{place}: " if place else ""


def _refuse_unknown_variables() -> None:
    """A misspelt variable would be a setting that silently does not count, one in lower case only for some of us."""
    known = {f"{PREFIX}{name.upper()}" for name in NAMES | _ELSEWHERE}
    for name in os.environ:
        if name.upper().startswith(PREFIX) and name.partition("__")[0] not in known:
            raise ConfigurationError(f"environment variable {name}: {unknown(name.upper(), known)}")


def unknown(name: str, known: Collection[str]) -> str:
    """That there is no such setting, and which was meant."""
    meant = get_close_matches(name, known, 1)
    return f"unknown setting; did you mean {meant[0]}?" if meant else "unknown setting"


def _read(file: Path) -> str:
    try:
        return read_ours(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error


def _variables_above(path: tuple[int | str, ...]) -> list[tuple[str, tuple[int | str, ...]]]:
    """The variables of the environment that are set and may hold this setting, and where in their values it is."""
    above = [(f"{PREFIX}{'__'.join(map(str, path[:end])).upper()}", path[end:]) for end in range(len(path), 0, -1)]
    return [(name, inner) for name, inner in above if os.environ.get(name)]


def _sets(value: str, inner: Sequence[int | str]) -> bool:
    """Whether the JSON of a variable holds what this path leads to."""
    if not inner:
        return True
    try:
        found = json.loads(value)
        for part in inner:
            found = found[part]
    except (ValueError, LookupError, TypeError):
        return False
    return True


def _line_of(place: tuple[int | str, ...], text: str) -> int | None:
    """Where a setting stands; one of a table is looked for in its table, and what is missing there at its head."""
    lines = text.splitlines()
    names = [part for part in place if isinstance(part, str)]
    begin = _head(place, lines) if len(place) > 1 else 0
    wanted = names[-1:] if begin else _written(names)
    for number, line in enumerate(lines[begin:], begin + 1):
        if any(re.match(rf"\s*\[*\s*[\"']?{re.escape(name)}[\"']?\s*[=\].]", line) for name in wanted):
            return number
        if begin and line.lstrip().startswith("["):
            break
    return begin or None


def _written(names: Sequence[str]) -> list[str]:
    """How a setting may stand outside of its table: `turn.attempts = 3`, or `turn = {attempts = 3}`."""
    return [".".join(names[:end]) for end in range(len(names), 0, -1)]


def _head(place: tuple[int | str, ...], lines: list[str]) -> int:
    """The line of `[turn]`, `[schedules."office"]`, or the right one of several `[[models]]`; 0: there is none."""
    names = [f"[\"']?{re.escape(part)}[\"']?" for part in place if isinstance(part, str)]
    which = place[1] if isinstance(place[1], int) else 0
    for end in range(len(names), 0, -1):
        head = re.compile(r"\s*\[+\s*" + r"\s*\.\s*".join(names[:end]) + r"\s*\]")
        heads = [number for number, line in enumerate(lines, 1) if head.match(line)]
        if which < len(heads):
            return heads[which]
    return 0

"""The file `switchboard.toml` and the variables of the environment, as text: reads them, and locates mistakes.

Called by `settings.py` for all settings, and by `whereabouts.py` for the few that locate the server. In: the file; out:
its values, and for mistakes the variable or the line. Next: `settings.py`.
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
from switchboard.core.text.problems import after, path_of, wrong
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject

FILE_NAME: Final = "switchboard.toml"
NAMES: Final = frozenset(
    (
        *("host", "port", "public_names", "public_url", "trusted_proxies"),
        *("database", "database_url", "database_direct_url", "data_dir", "postgres_binaries", "teams_dir"),
        *("channels_dir", "teams", "program_user", "log_level", "accept", "blobs", "gateway", "worker", "turn"),
        *("liveness", "dead_letters", "callbacks", "models", "classify", "spending", "memory", "trio", "sandbox"),
        *("search", "traces", "mcp_servers", "email", "notify", "endpoints", "schedules", "channels", "connectors"),
        *("modules", "transcription", "embedders", "web"),
    )
)
"""Of the settings, known here so that a command that asks the server does without what they take."""
_ELSEWHERE: Final = frozenset({"token", "url", "crash_at", "idempotency_key"})
"""Variables read elsewhere: by the command line, by tests that crash us, by programs of butlers."""
_DIRECTORIES: Final = ("teams_dir", "channels_dir", "data_dir")
"""In the file they are relative to it."""


class SettingsFile(Struct, frozen=True):
    """A file of settings, its text and its values; without a path there is no file."""

    path: Path | None
    text: str
    values: JsonObject

    def errors_with_places(
        self, error: ValidationError, said: Callable[[ErrorDetails], str] = wrong
    ) -> ConfigurationError:
        """What is wrong with the settings, each with the variable or line that it comes from."""
        problems = []
        for problem in error.errors(include_url=False):
            name = path_of(problem["loc"])
            place = self.place(problem["loc"]) if name else None
            problems.append(f"{place or self.path or 'environment'}: {after(name, said(problem))}")
        return ConfigurationError("; ".join(problems))

    def place(self, path: tuple[int | str, ...]) -> str | None:
        """The variable that sets it, which takes precedence, otherwise the line, or an enclosing variable."""
        path = tuple(part for part in path if part != "[key]")
        above = _variables_above(path)
        variable = next((name for name, inner in above if _sets_value(os.environ[name], inner)), None)
        if variable is None and (line := _line_of(path, self.text)):
            return f"{self.path}, line {line}"
        variable = variable or next((name for name, _ in above), None)
        return f"environment variable {variable}" if variable else None


def read_settings_file(path: Path | None = None) -> SettingsFile:
    """Read `path`, or `switchboard.toml` here if it exists. Raises ConfigurationError, also for an unknown variable."""
    _refuse_unknown_variables()
    file = path or (Path(FILE_NAME) if Path(FILE_NAME).is_file() else None)
    text = _read_text(file) if file else ""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for infinite numbers and deep nesting
        raise ConfigurationError(f"{file}: not TOML: {error}") from error
    for name in _DIRECTORIES:
        if file and isinstance(values.get(name), str):
            values[name] = file.parent / values[name]
    return SettingsFile(file, text, values)


def present_file() -> SettingsFile:
    """The file here, if there is one, as it is now: to say where a setting is that was read from it."""
    file = Path(FILE_NAME)
    return SettingsFile(file, _read_text(file), {}) if file.is_file() else SettingsFile(None, "", {})


def source_of(setting: str) -> str:
    """`switchboard.toml, line 3: ` or `environment variable …: `, to begin a message about a setting with.

    Empty if neither has the setting.
    """
    place = present_file().place((setting,))
    return f"{place}: " if place else ""


def _refuse_unknown_variables() -> None:
    """A misspelt variable would be silently ignored, one in lower case by some of our readers."""
    known = {f"{OUR_VARIABLES}{name.upper()}" for name in NAMES | _ELSEWHERE}
    for name in os.environ:
        if name.upper().startswith(OUR_VARIABLES) and name.partition("__")[0] not in known:
            raise ConfigurationError(f"environment variable {name}: {describe_unknown_setting(name.upper(), known)}")


def describe_unknown_setting(name: str, known: Collection[str]) -> str:
    """The error for an unknown setting, with the one that was probably meant."""
    meant = get_close_matches(name, known, 1)
    return f"unknown setting; did you mean {meant[0]}?" if meant else "unknown setting"


def _read_text(file: Path) -> str:
    try:
        return read_ours(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error


def _variables_above(path: tuple[int | str, ...]) -> list[tuple[str, tuple[int | str, ...]]]:
    """The set variables of the environment that may contain this setting, and where in their values it is."""
    above = [
        (f"{OUR_VARIABLES}{'__'.join(map(str, path[:end])).upper()}", path[end:]) for end in range(len(path), 0, -1)
    ]
    return [(name, inner) for name, inner in above if os.environ.get(name)]


def _sets_value(value: str, inner: Sequence[int | str]) -> bool:
    """Whether the JSON of a variable has a value at this path."""
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
    """The line of a setting; in a table, searched for within the table; a missing one is at its head."""
    lines = text.splitlines()
    names = [part for part in place if isinstance(part, str)]
    begin = _head_of_table(place, lines) if len(place) > 1 else 0
    wanted = names[-1:] if begin else _written_forms(names)
    for number, line in enumerate(lines[begin:], begin + 1):
        if any(re.match(rf"\s*\[*\s*[\"']?{re.escape(name)}[\"']?\s*[=\].]", line) for name in wanted):
            return number
        if begin and line.lstrip().startswith("["):
            break
    return begin or None


def _written_forms(names: Sequence[str]) -> list[str]:
    """How a setting may be written outside its table: `turn.attempts = 3`, or `turn = {attempts = 3}`."""
    return [".".join(names[:end]) for end in range(len(names), 0, -1)]


def _head_of_table(place: tuple[int | str, ...], lines: list[str]) -> int:
    """The line of `[turn]`, `[schedules."office"]`, or the right one of several `[[models]]`; 0 if there is none."""
    names = [f"[\"']?{re.escape(part)}[\"']?" for part in place if isinstance(part, str)]
    which = place[1] if isinstance(place[1], int) else 0
    for end in range(len(names), 0, -1):
        head = re.compile(r"\s*\[+\s*" + r"\s*\.\s*".join(names[:end]) + r"\s*\]")
        heads = [number for number, line in enumerate(lines, 1) if head.match(line)]
        if which < len(heads):
            return heads[which]
    return 0

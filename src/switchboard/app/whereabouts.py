"""The address of the server and of the operator's token: the few settings that clients need.

The command line reads only these: importing all settings takes a third as long as everything else that a command does.
In: `switchboard.toml` and the environment; out: `Whereabouts`. Next: `settings_file.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct
from pydantic import Field, ValidationError, create_model

from switchboard.app.settings_file import NAMES, describe_unknown_setting, read_settings_file
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject

HOST: Final = "127.0.0.1"
PORT: Final = 8470
_MAX_PORT: Final = 65_535
Host = Annotated[str, Field(min_length=1)]
Port = Annotated[int, Field(ge=0, le=_MAX_PORT)]
OPERATOR_FILE: Final = "operator.token"
"""In `data_dir`: the token that the server makes for the operator, and that the command line reads."""
ADDRESS_FILE: Final = "server.url"
"""Beside it: where the server that started last is reached from this machine."""
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - told apart, not bound to


def default_data_dir() -> Path:
    """`/var/lib/switchboard` as root, else `~/.local/share/switchboard` (XDG_DATA_HOME is respected)."""
    if os.geteuid() == 0:
        return Path("/var/lib/switchboard")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "switchboard"


class Whereabouts(Struct, frozen=True):
    """Host and port of the server, and its data directory."""

    host: str
    port: int
    data_dir: Path


def find_whereabouts() -> Whereabouts:
    """Read from the settings. Raises ConfigurationError; of all other settings only the names are checked."""
    file = read_settings_file()
    if strange := next((name for name in file.values if name not in NAMES), None):
        raise ConfigurationError(
            f"{file.place((strange,)) or file.path}: {strange}: {describe_unknown_setting(strange, NAMES)}"
        )
    usual: JsonObject = {"host": HOST, "port": PORT, "data_dir": default_data_dir()}
    found = {
        name: os.environ.get(f"{OUR_VARIABLES}{name.upper()}") or file.values.get(name, usual[name]) for name in usual
    }
    match found:
        case {"host": str(host), "port": int() | str() as port, "data_dir": str() | Path() as data_dir}:
            if host and re.fullmatch("[0-9]{1,5}", str(port)) and int(port) <= _MAX_PORT:
                return Whereabouts(host, int(port), Path(data_dir))
    # Not always: a model costs more time than reading the file.
    checked = create_model("Whereabouts", host=(Host, ...), port=(Port, ...), data_dir=(Path, ...))
    try:
        return Whereabouts(**checked.model_validate(found).model_dump())
    except ValidationError as error:
        raise file.errors_with_places(error) from error


def url_of(host: str, port: int) -> str:
    """How a server that listens on host and port is reached from this machine."""
    name = "127.0.0.1" if host in _ANY_ADDRESS else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

"""Writes the files of a new installation, and the key of its model. What exists is never overwritten.

`cli/init` and the page Welcome call it. In: texts by path; out: the written paths, or a ConfigurationError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from switchboard.app.ownership import write_private
from switchboard.app.setup.chosen import ChosenModel
from switchboard.domain.errors import ConfigurationError


def write_key(directory: Path, chosen: ChosenModel) -> Sequence[Path]:
    """Keep a typed key in a file that nobody else may read."""
    if chosen.key is None:
        return ()
    file = directory / chosen.key_file
    try:
        file.parent.mkdir(mode=0o700, parents=True)
        write_private(file, chosen.key + "\n")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    return (file,)


def write_files(directory: Path, files: Mapping[PurePosixPath, str]) -> Sequence[Path]:
    """Write all, each only if it is new."""
    written = []
    for name, text in files.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
        written.append(path)
    return written

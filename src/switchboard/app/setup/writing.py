"""Writes the files of a new installation, and the key of its model. What exists is never overwritten.

`cli/init` and the page Welcome call it. In: texts by path; out: the written paths, or a ConfigurationError. Next:
`app/settings.py`, which reads them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from switchboard.app.ownership import write_private
from switchboard.app.rules.seed import read_seed
from switchboard.app.settings import load_settings
from switchboard.app.setup.chosen import ChosenModel
from switchboard.app.setup.files import SETTINGS
from switchboard.core.channels.registry import CHANNELS
from switchboard.domain.errors import ConfigurationError
from switchboard.lanes import faults

_STAGE: Final = ".switchboard-setup"


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


def require_unwritten(directory: Path, files: Mapping[PurePosixPath, str]) -> None:
    """Raise ConfigurationError if something is in the way. Files that an interrupted attempt wrote just so are not."""
    for name, text in files.items():
        path = directory / name
        if os.path.lexists(path) and _text_of(path) != text:
            raise ConfigurationError(f"{path} exists, and is not overwritten; move it away")
        others = {one.name for one in path.parent.glob("*.json")} - {one.name for one in files}
        if name != SETTINGS and others:
            raise ConfigurationError(
                f"{path.parent} has files already ({min(others)}), which stay as they are; move it"
            )


def write_whole(directory: Path, files: Mapping[PurePosixPath, str]) -> None:
    """Write all for ourselves only, or nothing: they are read as at a start first, and the settings come last.

    Without settings there is no installation, and the next attempt may write the same files. Raises ConfigurationError.
    """
    require_unwritten(directory, files)
    try:
        with _stage_files(directory, files) as stage:
            faults.point("setup_staged")
            settings = load_settings(stage / SETTINGS)
            read_seed(settings.teams_dir, CHANNELS)
            for name in sorted(files, key=lambda name: name == SETTINGS):
                _publish_file(stage / name, directory / name)
                faults.point("setup_published", name.name)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or directory} cannot be written: {error.strerror}") from error


@contextmanager
def _stage_files(directory: Path, files: Mapping[PurePosixPath, str]) -> Iterator[Path]:
    """The files in a directory beside their place, which only we may read, and which is gone afterwards."""
    stage = directory / _STAGE
    shutil.rmtree(stage, ignore_errors=True)  # of an attempt that was killed
    try:
        for name, text in files.items():
            (stage / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(stage / name, text)
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish_file(draft: Path, path: Path) -> None:
    """Put a whole file in its place, never over another one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(draft, path)
    except FileExistsError:
        if _text_of(path) != draft.read_text(encoding="utf-8"):
            raise ConfigurationError(f"{path} exists, and is not overwritten; move it away") from None


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None

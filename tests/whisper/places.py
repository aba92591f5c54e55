"""Where the real Whisper is. Read by everything in `tests/whisper`.

`SWITCHBOARD_WHISPER` names another directory, such as another checkout's.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

BUILD: Final = Path(os.environ.get("SWITCHBOARD_WHISPER") or Path(__file__).resolve().parents[2] / ".whisper")
PYTHON: Final = BUILD / "venv/bin/python"
SERVER: Final = BUILD / "venv/bin/faster-whisper-server"
MODEL: Final = BUILD / "model"
SAY: Final = Path(__file__).with_name("say.py")


def missing() -> str:
    """Why nobody can speak and be heard here; empty: somebody can."""
    if not (MODEL / "model.bin").exists():
        return "there is no Whisper: `make voice` builds it"
    return "" if shutil.which("espeak-ng") else "nobody can speak: apt install espeak-ng"

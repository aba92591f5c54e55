"""Where the local model and the results of its report are. Read by everything in `tests/local_model`.

`SWITCHBOARD_LOCAL_MODEL` names another directory with `llama-server` and `model.gguf`, such as another checkout's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

BUILD: Final = Path(os.environ.get("SWITCHBOARD_LOCAL_MODEL") or Path(__file__).resolve().parents[2] / ".local-model")
SERVER: Final = BUILD / "llama-server"
MODEL: Final = BUILD / "model.gguf"


def missing() -> str:
    """Why the local model cannot be asked; empty: it can."""
    return "" if SERVER.exists() and MODEL.exists() else "there is no local model: `make local-model` builds it"

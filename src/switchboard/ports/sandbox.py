"""What the settings say of the sandbox in which commands run. `sandbox/` obeys it; engines get it in their context."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class SandboxRules(Struct, frozen=True):
    """What commands in a sandbox may take together."""

    memory: int = 2 * 1024**3
    """Bytes."""
    processes: int = 256
    """Threads count."""
    tmpfs: int = 256 * 1024**2
    """Bytes of files in memory: /tmp and /dev/shm."""
    hidden: tuple[Path, ...] = ()
    """Directories of Switchboard that no command may see."""

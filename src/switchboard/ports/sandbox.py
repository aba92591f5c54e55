"""The settings of the sandbox in which commands run. `sandbox/` applies them; engines get them in their context."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class SandboxRules(Struct, frozen=True):
    """What the commands in a sandbox may use together."""

    memory: int = 2 * 1024**3
    """Bytes."""
    processes: int = 256
    """Threads count."""
    tmpfs: int = 256 * 1024**2
    """Bytes of files in memory: /tmp and /dev/shm."""
    hidden: tuple[Path, ...] = ()
    """Directories of Switchboard that no command may see."""

"""Whether secrets can be encrypted here: that needs the package pyrage of the extra `backup`, which may be missing.

Called by `cli/backup.py`, `saving.py` and `restoring.py` before anything is asked or written. Next: `sealing.py`.
"""

from __future__ import annotations

from importlib.util import find_spec

from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError


def can_seal() -> bool:
    """Whether the package is installed."""
    return find_spec("pyrage") is not None


def require_sealing() -> None:
    """Raise ConfigurationError if the package is missing."""
    if not can_seal():
        raise ConfigurationError(
            f"the secrets of a backup are encrypted by the package pyrage, which is missing: "
            f"{install_command('backup')}"
        )
